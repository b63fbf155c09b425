"""How letter probabilities are read from a server: three ways, the best first.

ids      the log-probabilities of the letters' own tokens (vLLM)
top      the likeliest tokens; a letter that is not among them has a stated bound
samples  how often each letter is answered
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from gridprobe.models.openai.client import Garbled
from gridprobe.models.prompting import SURFACE_FORMS, single_tokens

__all__ = ["Ids", "Reading", "Rung", "Samples", "Top"]

TOKEN_ID = re.compile(r"token_id:(\d+)")
ANSWER_TOKENS = 16
PRIOR = 0.5
"""Added to every count of answers, so that a letter that was never drawn is unlikely and not impossible."""


@dataclass(frozen=True)
class Reading:
    """Log-probabilities of the labels, which sum to 1, and the share of all probability that they have."""

    logprobs: tuple[float, ...]
    mass: float
    raw: Mapping[str, float] = field(default_factory=dict)
    """The numbers that the server gave, to compare two replies with."""
    notes: tuple[str, ...] = ()


class Rung(Protocol):
    """A way to ask for letter probabilities."""

    @property
    def name(self) -> str:
        """For identities."""
        ...

    @property
    def summary(self) -> str:
        """For people."""
        ...

    def fields(self, labels: Sequence[str]) -> dict[str, Any]:
        """What a request's body says about it."""
        ...

    def read(self, choices: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> Reading:
        """The probabilities in the choices of a reply."""
        ...


@dataclass(frozen=True)
class Ids:
    """Asks for the log-probabilities of the letters' tokens, at any rank."""

    encode: Callable[[str], Sequence[int]] = field(repr=False)
    """The server's tokenizer."""
    name: ClassVar[str] = "ids"
    summary: ClassVar[str] = "exact letter probabilities (by token ids)"

    def fields(self, labels: Sequence[str]) -> dict[str, Any]:
        """One token, and the letters' tokens beside it."""
        ids = [token for tokens in single_tokens(self.encode, labels).values() for token in tokens]
        asked = {"logprobs": True, "logprob_token_ids": ids, "return_tokens_as_token_ids": True}
        return {"max_tokens": 1, "temperature": 0, **asked}

    def read(self, choices: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> Reading:
        """All forms of a letter together."""
        raw = {}
        for token, value in _listed(choices[0]):
            found = TOKEN_ID.fullmatch(token)
            if found:
                raw[found[1]] = value
        letters = []
        for label, tokens in single_tokens(self.encode, labels).items():
            if any(str(token) not in raw for token in tokens):
                raise Garbled(f"the reply lacks the probability of the letter {label}")
            letters.append(_pooled([raw[str(token)] for token in tokens]))
        return _normalised(letters, raw)


@dataclass(frozen=True)
class Top:
    """Asks for the likeliest tokens."""

    count: int = 20

    @property
    def name(self) -> str:
        """With the number of tokens."""
        return f"top{self.count}"

    @property
    def summary(self) -> str:
        """With the number of tokens."""
        return (
            f"letter probabilities from the {self.count} likeliest tokens; a letter that is not among them has a bound"
        )

    def fields(self, labels: Sequence[str]) -> dict[str, Any]:
        """One token, and the likeliest beside it."""
        return {"max_tokens": 1, "temperature": 0, "logprobs": True, "top_logprobs": self.count}

    def read(self, choices: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> Reading:
        """A letter that is missing counts as likely as the least likely token that is there, which is its bound."""
        raw = dict(_listed(choices[0]))
        if len(raw) < 2:
            raise Garbled("the reply has no list of likely tokens")
        forms = {form.format(label): label for label in labels for form in SURFACE_FORMS}
        found: dict[str, list[float]] = {}
        for token, value in raw.items():
            label = forms.get(re.sub("^[Ġ▁]", " ", token))
            if label is not None:
                found.setdefault(label, []).append(value)
        rest = 1.0 - math.fsum(map(math.exp, raw.values()))
        bound = min(min(raw.values()), math.log(max(rest, 1e-12)))
        missing = [label for label in labels if label not in found]
        lacks = f"the server's list of likely tokens lacks {', '.join(missing)}"
        letters = [_pooled(found.get(label, [bound])) for label in labels]
        return _normalised(
            letters, raw, (f"{lacks}: counted as {math.exp(bound):.1g} each, their bound",) if missing else ()
        )


@dataclass(frozen=True)
class Samples:
    """Draws answers and counts them."""

    count: int

    @property
    def name(self) -> str:
        """With the number of answers."""
        return f"samples{self.count}"

    @property
    def summary(self) -> str:
        """With the number of answers."""
        return f"no letter probabilities, so {self.count} answers are drawn for each request and counted"

    def fields(self, labels: Sequence[str]) -> dict[str, Any]:
        """Several short answers."""
        return {"max_tokens": ANSWER_TOKENS, "temperature": 1.0, "n": self.count, "seed": 0}

    def read(self, choices: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> Reading:
        """The share of each letter; an answer without a letter lowers the mass."""
        pattern = re.compile(rf"(?<![A-Za-z])([{''.join(labels)}])(?![A-Za-z])")
        found = [pattern.search(_text(choice)) for choice in choices]
        answers = [match[1] for match in found if match]
        if not answers:
            raise Garbled(f"none of {len(choices)} answers is an option letter, such as {_text(choices[0])[:60]!r}")
        letters = [math.log(answers.count(label) + PRIOR) for label in labels]
        reading = _normalised(letters, {label: float(answers.count(label)) for label in labels})
        note = f"probabilities are counts of {len(answers)} sampled answers"
        return Reading(reading.logprobs, len(answers) / len(choices), reading.raw, (note,))


def _listed(choice: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Tokens and log-probabilities of the first position, the chosen one among them."""
    content = (choice.get("logprobs") or {}).get("content") or []
    try:
        entries = [*(content[0].get("top_logprobs") or []), content[0]]
        return [(str(each["token"]), float(each["logprob"])) for each in entries]
    except (IndexError, KeyError, TypeError, ValueError, AttributeError):
        raise Garbled("the reply has no log-probabilities") from None


def _text(choice: Mapping[str, Any]) -> str:
    message = choice.get("message")
    return str(message.get("content") or "") if isinstance(message, Mapping) else ""


def _pooled(values: Sequence[float]) -> float:
    most = max(values)
    return most + math.log(math.fsum(math.exp(value - most) for value in values))


def _normalised(letters: Sequence[float], raw: Mapping[str, float], notes: tuple[str, ...] = ()) -> Reading:
    total = _pooled(letters)
    if not math.isfinite(total):
        raise Garbled("the letters' log-probabilities are not numbers")
    return Reading(tuple(value - total for value in letters), min(1.0, math.exp(total)), raw, notes)
