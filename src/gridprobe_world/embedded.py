"""The models inside the package: small, genuine Qwen3-VL checkpoints that know only gridworld.

They would answer any other question as well, and with confidence. So the package has a list of the words they were
trained on. A text with other words is refused if nobody named the model, and answered with a warning otherwise.
"""

import hashlib
import json
import math
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from gridprobe._util import parse_json
from gridprobe.errors import ModelError, UsageError
from gridprobe.models.base import (
    LOW_MASS,
    Capabilities,
    Choose,
    Completion,
    Cost,
    CostModel,
    Model,
    Posterior,
    Request,
    Response,
    SamplingParams,
    posteriors,
)
from gridprobe.models.local import checkpoint
from gridprobe.models.profile import Profile, read_profile
from gridprobe.open_ended import remembered
from gridprobe.question import OR_NOT_SHOWN, SHORT, Question
from gridprobe_world.world import BACKGROUNDS, COLOURS, DIGITS, NOT_SHOWN, PATTERNS, SHAPES, TIMES

# check_shipped(): the files of a model of the package are those that were released, byte for byte.
#
# The hashes are in weights/hashes.json. New weights need new ones:
#
#     python -m gridprobe_world.embedded > hashes.json && mv hashes.json src/gridprobe_world/weights/

SHIPPED = Path(__file__).parent / "weights"
HASHES = "hashes.json"


def hashes(folder: Path) -> dict[str, str]:
    """The SHA-256 of every file in a folder, by name; hidden files, and the list of hashes, are left out."""
    files = sorted(file for file in folder.iterdir() if file.is_file() and file.name[0] != "." and file.name != HASHES)
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@cache
def check_shipped(folder: Path) -> None:
    """Raise ModelError if a file of this model, or one that all share, was changed, added or removed.

    Files are read once per process.

    A folder that is not one of the package is not checked.
    """
    if folder.parent != SHIPPED:
        return
    try:
        released = parse_json((SHIPPED / HASHES).read_bytes())
        changed = [*_changed(folder, released[folder.name]), *_changed(SHIPPED, released["."])]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"the embedded model in {folder} cannot be checked ({error}); reinstall gridprobe") from error
    if changed:
        raise ModelError(
            f"{changed[0]} is not the file that was released with gridprobe; reinstall gridprobe, or give "
            "the folder's own path as --model to use it as it is"
        )


def _changed(folder: Path, released: dict[str, str]) -> list[Path]:
    present = hashes(folder)
    return [folder / name for name in sorted({*released, *present}) if released.get(name) != present.get(name)]


WEIGHTS = SHIPPED
SIZES = ("micro", "nano")
FRAMES = 168
"""The most frames of a sequence: 144, as they were trained on, and 24 close-ups. Of four times as many they understand
next to nothing."""
TRAINED = ("default", "paper")
"""The prompt templates they were trained with."""
WORDS_FILE = "vocabulary.json"

LABEL = re.compile(r"^\(?[A-Z][.)] ", re.MULTILINE)
"""What stands before an option in a prompt."""
TWO = re.compile(r"^(\(?)A([.)]) (.+)\n\1B\2 (.+)$", re.MULTILINE)
"""The lines of two options."""
YES_NO = re.compile(
    r"^Question: (.+)\n\n?(?:(\(?)A[.)] (yes|no)\n\(?B[.)] (yes|no)(?!\n\(?C)|" + re.escape(SHORT) + ")$",
    re.MULTILINE | re.IGNORECASE,
)
"""A question with the options yes and no, or with none, in the wordings of `TRAINED`."""
YES_NO_WORDS = ("yes", "no")
TINY = 1e-30
KINDS = (tuple(COLOURS), SHAPES, DIGITS, TIMES, PATTERNS, tuple(BACKGROUNDS))
"""The words that may stand among the same options."""
SHOWN_WORDS, SHOWN_LETTERS = 5, 20
"""An error shows at most this many unknown words, and this many letters of each."""


@dataclass(frozen=True)
class Vocabulary:
    """The words a model was trained on, in lower case."""

    words: frozenset[str]

    @classmethod
    def embedded(cls) -> "Vocabulary":
        """The list of words of both embedded models."""
        file = WEIGHTS / WORDS_FILE
        try:
            words = json.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise _missing(file) from None
        except (OSError, ValueError) as error:
            raise ModelError(f"cannot read {file}, the words the embedded model knows: {error}") from error
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise ModelError(f"{file} must hold a JSON list of words; reinstall gridprobe")
        return cls(frozenset(word.casefold() for word in words))

    def unknown(self, text: str) -> tuple[str, ...]:
        """The words of a question or prompt that are in neither the list nor the templates, each once."""
        words = self.words | TEMPLATE_WORDS
        texts = [asked for asked, _, _ in _behind(text)] or [text]
        return tuple(word for word in dict.fromkeys(_split(LABEL.sub("", " ".join(texts)))) if word not in words)

    def require(self, text: str) -> None:
        """Refuse a text with unknown words."""
        words = self.unknown(text)
        if words:
            raise UsageError(_refusal(f"has never seen {some_words(words)}"))


class Embedded:
    """A model of the package as a backend."""

    def __init__(self, engine: Model, vocabulary: Vocabulary, name: str, *, implied: bool = False) -> None:
        """Wrap an engine.

        Args:
            engine: what runs the checkpoint.
            vocabulary: the words it knows.
            name: such as "embedded:micro".
            implied: nobody named this model, so it refuses what it does not know instead of guessing.
        """
        self.vocabulary = vocabulary
        self.name = name
        self.implied = implied
        self.engine = engine
        """What runs the checkpoint."""

    @property
    def identity(self) -> str:
        """The engine's, with the model's name in place of the folder's."""
        return f"{self.name}@{self.engine.identity.rpartition('@')[2]}"

    @property
    def capabilities(self) -> Capabilities:
        """The engine's, for as many frames as it was trained on, with the profile that it was shipped with."""
        return replace(self.engine.capabilities, context_frames=FRAMES, profile=self.profile)

    @cached_property
    def profile(self) -> Profile | None:
        """What was measured on it before it was shipped, whatever its dtype."""
        file = SHIPPED / f"{self.name.partition(':')[2]}-profile.json"
        profile = read_profile(file) if file.is_file() else None
        if profile is None or not self.identity.startswith(f"{profile.model}:"):  # other weights under this name
            return None
        return replace(profile, model=self.identity)

    def run(self, requests: Sequence[Request]) -> list[Response]:
        """Answer the requests; one with unknown words is refused or gets a note."""
        notes = self._checked([request.prompt for request in requests])
        trained = [_trained(self.engine, request) for request in requests]
        answers = iter(self.engine.run([asked for some in trained for asked, _ in some]))
        responses = [
            _read([(next(answers), meanings) for _, meanings in some], request)
            for some, request in zip(trained, requests, strict=True)
        ]
        if self.implied:
            _require_mass([each for each in responses if isinstance(each, Posterior)])
        return [_noted(each, more) for each, more in zip(responses, notes, strict=True)]

    def cost(self, request: Request) -> Cost:
        """What the request would cost."""
        return _cost(self.engine, request)

    def _checked(self, texts: Sequence[str]) -> list[tuple[str, ...]]:
        """What to note about each text; a model that nobody named refuses instead."""
        if self.implied:
            for text in set(texts):
                self.vocabulary.require(text)
        notes = {text: self._notes(text) for text in set(texts)}
        return [notes[text] for text in texts]

    def unknown_words(self, text: str) -> tuple[str, ...]:
        """The words of a text that the model was not trained on."""
        return self.vocabulary.unknown(text)

    def _notes(self, prompt: str) -> tuple[str, ...]:
        words, asked = self.unknown_words(prompt), " ".join(question.text for _, question, _ in _behind(prompt))
        notes = [f"the embedded model was asked: {asked}"] if asked else []
        if words:
            notes.append(f"the embedded model met {some_words(words)}, which it has never seen, and guesses")
        return tuple(notes)


def load(size: str = "", *, implied: bool = False, **options: Any) -> Embedded:
    """Load a model of the package.

    Args:
        size: "micro", the default, or "nano".
        implied: refuse what the model does not know instead of answering with a warning.
        **options: as for any checkpoint; see `gridprobe.models.local.loading.LoadOptions`.
    """
    size = size or SIZES[0]
    folder, vocabulary = _folder(size), Vocabulary.embedded()
    check_shipped(folder)
    # The engine's error about a low letter mass advises on other checkpoints; here a low mass is a warning.
    engine = checkpoint.load(str(folder), **{"min_letter_mass": 0.0, **options})
    return Embedded(engine, vocabulary, f"embedded:{size}", implied=implied)


def cost_model(size: str = "") -> CostModel:
    """What a model of the package costs."""
    size = size or SIZES[0]
    costs = checkpoint.cost_model(str(_folder(size)))
    return replace(costs, identity=f"embedded:{size}", price=lambda request: _cost(costs, request))


def _noted(response: Response, notes: tuple[str, ...]) -> Response:
    if isinstance(response, Posterior):
        return replace(response, notes=response.notes + notes)
    return tuple(replace(text, notes=text.notes + notes) for text in response)


Meanings = tuple[dict[str, float], ...]
"""For each label of a request, the labels that mean it in what is asked in its place, and how much each counts."""


def _trained(engine: Model, request: Request) -> list[tuple[Request, Meanings]]:
    """The request in the form of the model's training: the short instruction, at least three options, no yes or no.

    Of two options a model that never saw so few takes the first, whatever it is. So a third one of the same kind is
    added. In place of a yes/no question, one or two that are behind it are asked. `_read` reads the answer.
    """
    prompt = request.prompt.removesuffix(f" {OR_NOT_SHOWN}")
    if behind := _behind(prompt):
        first = replace(request, keep_kv=request.keep_kv or len(behind) > 1)
        again = replace(remembered(engine, first) if first.visible_frames is None else first, attention=False)
        return [
            (replace(each, prompt=asked, task=Choose(question.labels)), meanings)
            for each, (asked, question, meanings) in zip((first, again), behind, strict=False)
        ]
    options = TWO.search(prompt) if request.labels == ("A", "B") else None
    third = next(_like(options[3], options[4]), None) if options else None
    if not options or not third:
        return [(replace(request, prompt=prompt), ())]
    prompt = f"{prompt[: options.end()]}\n{options[1]}C{options[2]} {third}{prompt[options.end() :]}"
    return [(replace(request, prompt=prompt, task=Choose(("A", "B", "C"))), ({"A": 1.0}, {"B": 1.0}))]


def _behind(prompt: str) -> list[tuple[str, Question, Meanings]]:
    """The prompts that are behind one of a yes/no question, their questions, and what their labels mean.

    Before the frames are looked at, yes is as likely as no, but each of seven other colours is as likely as the one
    that is claimed. So it is their mean probability that counts for no, and not their sum.
    """
    match = YES_NO.search(prompt.removesuffix(f" {OR_NOT_SHOWN}"))
    words = ((match[3] or "yes").casefold(), (match[4] or "no").casefold()) if match else ()
    if not match or len(set(words)) < 2:
        return []
    from gridprobe_world.questions import behind_yes_no  # few questions need it

    behind = []
    for question, means in behind_yes_no(match[1]):
        asked = replace(question, template="paper" if match[2] else "default")
        labels = {word: [each for each in asked.labels if means.get(asked.option(each)) == word] for word in words}
        weights = {"yes": 1.0, "no": 1.0 / len(labels["no"])}
        meanings = tuple(dict.fromkeys(labels[word], weights[word]) for word in words)
        behind.append((prompt[: match.start()] + asked.prompt, asked, meanings))
    return behind


def _read(answers: Sequence[tuple[Response, Meanings]], request: Request) -> Response:
    """The answers to what was asked in place of a request, as one to the request itself: the product of their shares.

    The probability of an option that was added is missing from the mass. Of two questions the first may well have it.
    """
    response, meanings = answers[0]
    if not meanings:
        return response
    asked = posteriors(each for each, _ in answers)
    shares = [_shares(each, meanings) for each, (_, meanings) in zip(asked, answers, strict=True)]
    cost, weights = sum((each.cost for each in asked), Cost()), map(math.prod, zip(*shares, strict=True))
    read = Posterior.from_probabilities(dict(zip(request.labels or YES_NO_WORDS, weights, strict=True)), cost)
    known = sum(asked[0].probabilities[label] for mine in meanings for label in mine) if len(asked) == 1 else 1.0
    read = replace(asked[0], labels=read.labels, logprobs=read.logprobs, cost=cost, mass=asked[0].mass * known)
    return _written(read, request.task) if isinstance(request.task, SamplingParams) else read


def _shares(posterior: Posterior, meanings: Meanings) -> list[float]:
    """How much each meaning gets: never 0, so that the product of two sure answers that differ is not 0."""
    chances = posterior.probabilities
    return [max(TINY, sum(chances[label] * weight for label, weight in mine.items())) for mine in meanings]


def _written(posterior: Posterior, params: SamplingParams) -> Response:
    """Yes and no as texts: the likelier one, and among several samples the other one, too."""
    likely, unlikely = sorted(zip(posterior.labels, posterior.logprobs, strict=True), key=lambda each: -each[1])
    chosen = [likely] * (params.samples - 1) + [likely if params.samples == 1 else unlikely]
    costs = [posterior.cost, *[Cost()] * (params.samples - 1)]
    return tuple(
        Completion(text, 1, logprob + math.log(max(TINY, posterior.mass)), True, cost, posterior.notes)
        for (text, logprob), cost in zip(chosen, costs, strict=True)
    )


def _cost(engine: Model, request: Request) -> Cost:
    return sum((engine.cost(asked) for asked, _ in _trained(engine, request)), Cost())


def _like(*options: str) -> Iterator[str]:
    """Further words of the kind that the options are of; none if they are of no kind, or of several."""
    words = {option.casefold() for option in options}
    return (
        word for kind in KINDS if words & {*kind} and words <= {*kind, *NOT_SHOWN} for word in kind if word not in words
    )


def _folder(size: str) -> Path:
    if size not in SIZES:
        raise UsageError(f"there is no embedded model {size!r}; choose embedded:{' or embedded:'.join(SIZES)}")
    folder = WEIGHTS / size
    if not (folder / "config.json").is_file():
        raise _missing(folder)
    return folder


def _missing(path: Path) -> ModelError:
    return ModelError(
        f"the embedded model is missing from this installation (no {path}); "
        "reinstall gridprobe, or name another model with --model or GRIDPROBE_MODEL"
    )


def _require_mass(posteriors: Sequence[Posterior]) -> None:
    least = min((posterior.mass for posterior in posteriors), default=1.0)
    if least < LOW_MASS:
        raise UsageError(_refusal(f"puts only {least:.1%} of its probability on the option letters here"))


def _refusal(reason: str) -> str:
    return (
        f"the embedded model knows only gridworld (see gridprobe demo) and {reason}; name another model with --model "
        "or GRIDPROBE_MODEL, or take this one's guess with --model embedded"
    )


def some_words(words: Sequence[str]) -> str:
    """Such as "dog", "beach" and 3 other words."""
    shown = [f'"{word[:SHOWN_LETTERS]}{"…" if len(word) > SHOWN_LETTERS else ""}"' for word in words[:SHOWN_WORDS]]
    more = len(words) - len(shown)
    if more:
        return f"{', '.join(shown)} and {more} other word{'s' if more > 1 else ''}"
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))


def _split(text: str) -> list[str]:
    """Words and numbers in lower case. A symbol (an emoji, a currency sign) counts as a word."""
    return "".join(map(_spaced, text.casefold())).split()


def _spaced(char: str) -> str:
    if char.isalnum():
        return char
    return f" {char} " if unicodedata.category(char).startswith("S") else " "


def _template_words() -> frozenset[str]:
    """The words around question, options and subtitles in the prompts the models were trained with."""
    question = Question("question", ("option",) * 2, subtitles="subtitles")
    prompts = [replace(question, template=name).prompt for name in TRAINED]
    prompts.append(replace(question, options=()).prompt)
    return frozenset(word for prompt in prompts for word in _split(LABEL.sub("", prompt)))


TEMPLATE_WORDS = _template_words()


if __name__ == "__main__":
    folders = sorted(each for each in SHIPPED.iterdir() if each.is_dir())
    print(json.dumps({".": hashes(SHIPPED), **{each.name: hashes(each) for each in folders}}, indent=2))
