"""Open questions: what a model answers in words, from which candidates, and how sure it is.

The model writes its likeliest answer and some drawn at random. Those that say the same are one candidate, whose
probability is that of writing any of its wordings. If that is high enough, it is the answer. If not, and the frames are
the last to be looked at, the candidates are shown as lettered options about the same frames, and the letters decide.
"""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from gridprobe.early_exit import CAUTIOUS, EarlyExit
from gridprobe.models import Model, Posterior, Request
from gridprobe.models.base import Basis, Completion, Cost, SamplingParams, generate, rotations_of, score_rotated
from gridprobe.question import Question, describes

# Answers in words: when two of them say the same, what kind they are, and candidates merged from several drafts.

Kind = Literal["yes/no", "number", "not said", "text", "description"]
NOT_SAID = "not shown in the video"
"""How it is said that the video does not show what is asked."""
UNKNOWN = frozenset(
    (
        "not shown",
        "not shown in video",
        "video does not say",
        "it never appears",
        "unknown",
        "not visible",
        "i dont know",
    )
)
"""What models write when they mean it, in canonical form."""
NUMBERS = {
    word: str(number)
    for number, word in enumerate(
        [
            "zero",
            "one",
            "two",
            "three",
            "four",
            "five",
            "six",
            "seven",
            "eight",
            "nine",
            "ten",
            "eleven",
            "twelve",
            "thirteen",
            "fourteen",
            "fifteen",
            "sixteen",
            "seventeen",
            "eighteen",
            "nineteen",
            "twenty",
        ]
    )
} | {"once": "1 times", "twice": "2 times", "none": "0"}
ARTICLES = frozenset(("a", "an", "the"))
YES, NO = frozenset(("yes", "yeah", "true", "correct")), frozenset(("no", "nope", "false", "incorrect"))
WORD = re.compile(r"[^\W_]+(?:\.\d+)?")


class Draft(NamedTuple):
    """A candidate answer."""

    text: str
    """As it was written most often."""
    share: float
    """The share of the drafts that say it."""
    probability: float | None = None
    """The probability of writing any of its wordings that were drafted; None if that is not known."""


def canonical(text: str) -> str:
    """The text without case, punctuation, articles and accents, and with digits for number words.

    "The 3rd of May." and "3rd of may" are the same, and so are "Twice" and "two times".
    """
    plain = unicodedata.normalize("NFKD", text.replace("'", "").replace("’", "")).casefold()
    plain = "".join(letter for letter in plain if not unicodedata.combining(letter))
    words = [NUMBERS.get(word, word) for word in WORD.findall(plain) if word not in ARTICLES]
    phrase = " ".join(words)
    if phrase in YES:
        return "yes"
    if phrase in NO:
        return "no"
    return NOT_SAID if phrase in UNKNOWN or phrase == "not shown in video" else phrase


def kind_of(text: str) -> Kind:
    """What kind of answer a text is; whether it is a description, its question says."""
    plain = canonical(text)
    if plain in ("yes", "no"):
        return "yes/no"
    if plain == NOT_SAID:
        return "not said"
    return "number" if re.fullmatch(r"\d+(?:\.\d+)?(?: times)?", plain) else "text"


def exact_match(text: str, truth: str) -> bool:
    """Whether two answers say the same; numbers are compared as numbers."""
    one, other = canonical(text), canonical(truth)
    if {kind_of(text), kind_of(truth)} == {"number"}:
        return float(one.split()[0]) == float(other.split()[0])
    return one == other


def token_f1(text: str, truth: str) -> float:
    """The harmonic mean of precision and recall over the words of both; 1 for two empty texts."""
    one, other = Counter(canonical(text).split()), Counter(canonical(truth).split())
    if not one or not other:
        return float(one == other)
    shared = (one & other).total()
    return 2 * shared / (one.total() + other.total())


def _printable(text: str) -> str:
    """What a model wrote, in one line and without control characters, which no prompt may contain."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def merge(texts: Sequence[str], logprobs: Sequence[float | None] = ()) -> list[Draft]:
    """Drafts that say the same as one, the likeliest first, then the most frequent; empty ones are dropped.

    Args:
        texts: the drafts, of which control characters are dropped. The wording that occurs most often stands for those
            that say the same.
        logprobs: the log-probability of writing each; a text that was drafted twice counts once.
    """
    wordings: dict[str, Counter[str]] = {}
    likely: dict[str, float | None] = {}
    for text, logprob in zip(texts, logprobs or [None] * len(texts), strict=True):
        wording = _printable(text)
        if canonical(wording):
            wordings.setdefault(canonical(wording), Counter())[wording] += 1
            likely[wording] = None if logprob is None else math.exp(min(0.0, logprob))
    merged = []
    for counts in wordings.values():
        probabilities = [likely[text] for text in counts]
        total = None if None in probabilities else min(1.0, math.fsum(p for p in probabilities if p is not None))
        merged.append(Draft(counts.most_common(1)[0][0], counts.total() / len(texts), total))
    return sorted(merged, key=lambda draft: (-(draft.probability or 0.0), -draft.share))


CANDIDATES = 6
"""The most candidates of a question."""
PHRASE, SENTENCES = 32, 256
"""The most tokens of an answer."""
DRAFTS = SamplingParams(limit=PHRASE, temperature=1.0, samples=4)
"""The drafts in addition to the likeliest one."""
ABSENT, PRESENT = "not shown", "shown"
"""What stands next to a single candidate."""
NOTHING = "(no answer)"
"""Stands for the answer of a model that wrote nothing."""

TINY = 1e-9
"""The least probability of a candidate."""
OPTION_TOKENS = 8
"""Tokens of an option in addition to its text, roughly."""
INSTRUCTION_TOKENS = 64
"""More tokens than the instruction for options has beyond that of an open question."""
FILLER = " word"
"""At least one token, for any tokenizer and by any rule of thumb."""

NO_PLACE = "no single place of the video decides this, so evenly spaced frames were shown large"


@dataclass(frozen=True)
class OpenRule:
    """How open questions are answered."""

    rotations: int = 1
    """In how many orders candidates are shown as options."""
    exit: EarlyExit | None = None
    """When an answer is sure."""

    def sure(self, posterior: Posterior) -> bool:
        """Whether what was written needs no choice among candidates."""
        return posterior.confidence >= (self.exit.threshold if self.exit else CAUTIOUS)


def answer_open(
    model: Model,
    question: Question,
    show: Callable[[Question], Request],
    *,
    rule: OpenRule,
    before: Sequence[str] | None,
) -> Posterior:
    """The probabilities of texts that answer an open question; they are the labels of the posterior.

    Args:
        model: who writes and chooses.
        question: an open question.
        show: a question with the frames that it is about.
        rule: how the answer is found.
        before: candidates of an earlier look, which may be chosen again; None if a closer look will follow.
    """
    request = replace(show(question), keep_kv=True)  # everything else is asked about the same frames
    texts = _write(model, question, request)
    cost = sum((each.cost for each in texts), Cost())
    drafts = merge([each.text for each in texts], [each.logprob for each in texts])[:CANDIDATES]
    notes = tuple(dict.fromkeys(note for each in texts for note in each.notes))
    longer = describes(question.text)
    windows = max(each.windows for each in texts)
    posterior = replace(_posterior(drafts, texts[0], longer=longer), cost=cost, notes=notes, windows=windows)
    if before is None or rule.sure(posterior) or longer:
        return posterior
    candidates = _union(posterior.labels, before)
    if len(candidates) < 2:
        return posterior
    lettered_candidates = replace(question, options=candidates, answer=None)
    again = remembered(model, show(lettered_candidates))
    chosen = score_rotated(model, again, lettered_candidates, rotations=rule.rotations)
    return replace(chosen, labels=candidates, cost=cost + chosen.cost, notes=(*notes, *chosen.notes))


def _write(model: Model, question: Question, request: Request) -> list[Completion]:
    """The likeliest answer, and others; a description stays alone."""
    if describes(question.text):
        return list(generate(model, [request], SamplingParams(limit=SENTENCES))[0])
    ((likeliest,),) = generate(model, [request], SamplingParams(limit=PHRASE))
    (more,) = generate(model, [remembered(model, request)], DRAFTS)
    return [likeliest, *more]


def requests_about(
    model: Model, question: Question, show: Callable[[Question], Request], *, rotations: int
) -> list[Request]:
    """Every request that asking a model may make, with texts as long as they may be: what is priced in advance."""
    request = show(question)
    if not question.open:
        return rotations_of(request, question, rotations=rotations)
    if describes(question.text):
        return [replace(request, task=SamplingParams(limit=SENTENCES))]
    again = remembered(model, request)
    filler = FILLER * (CANDIDATES * (PHRASE + OPTION_TOKENS) + INSTRUCTION_TOKENS)
    longest = replace(again, prompt=again.prompt + filler)
    likeliest = replace(request, task=SamplingParams(limit=PHRASE))
    return [likeliest, replace(again, task=DRAFTS), *[longest] * rotations]


def remembered(model: Model, request: Request) -> Request:
    """The request, with the frames taken from memory by a model that has just read them."""
    count = sum(len(group.frames) for group in request.groups)
    able = model.capabilities.kv_reuse and request.prompt_order == "frames_first" and count
    return (
        replace(request, keep_kv=True, visible_frames=tuple(range(count))) if able else replace(request, keep_kv=True)
    )


def _posterior(drafts: Sequence[Draft], likeliest: Completion, *, longer: bool) -> Posterior:
    """The probabilities of candidates, normalised; `mass` is what they have together."""
    if not drafts:
        return Posterior((NOTHING,), (0.0,), mass=0.0, basis="written")
    basis: Basis = "written"
    weights = [draft.probability for draft in drafts]
    if longer and likeliest.logprob is not None:
        basis, weights = "tokens", [math.exp(min(0.0, likeliest.logprob / max(1, likeliest.tokens)))]
    elif None in weights:
        basis, weights = "drafts", [draft.share for draft in drafts]
    masses = [max(weight or 0.0, TINY) for weight in weights]
    total = math.fsum(masses)
    logprobs = tuple(math.log(weight / total) for weight in masses)
    return Posterior(tuple(draft.text for draft in drafts), logprobs, mass=min(1.0, total), basis=basis)


def _union(found: Sequence[str], before: Sequence[str]) -> tuple[str, ...]:
    """The candidates of this look, and those of the one before that say something else."""
    old = [text for text in before if not any(exact_match(text, new) for new in found)]
    return tuple(text for text in (*found, *old) if text != NOTHING)[:CANDIDATES]


def lettered(question: Question, posterior: Posterior) -> tuple[Question, Posterior]:
    """An open question as selectors can ask it, with candidates as its options, and their probabilities by letters.

    A single candidate gets "not shown" next to it, or "shown" if it says that itself.
    """
    if not question.open:
        return question, posterior
    shares = dict(zip(posterior.labels, posterior.shares, strict=True))
    if len(shares) < 2:
        other = PRESENT if kind_of(posterior.choice) == "not said" else ABSENT
        shares[other] = max(TINY, 1.0 - sum(shares.values()))
    lettered_question = replace(question, options=tuple(shares), answer=None)
    lettered_posterior = Posterior.from_probabilities(
        dict(zip(lettered_question.labels, shares.values(), strict=True)), posterior.cost
    )
    return lettered_question, replace(lettered_posterior, heads=posterior.heads)
