"""Question: its text, options and labels, and the prompt that a model gets."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from string import ascii_uppercase

from gridprobe.errors import UsageError
from gridprobe.prompts import TEMPLATES
from gridprobe.subtitles import Between

__all__ = ["MAX_OPTIONS", "TEMPLATES", "Question"]

MAX_OPTIONS = len(ascii_uppercase)


@dataclass(frozen=True)
class Question:
    """A multiple-choice question. Labels belong to the question: three options are A, B and C, never A to H."""

    text: str
    options: Sequence[str] = ()
    answer: str | None = None
    """The right label, if known (evaluation and the demo); no model ever sees it."""
    subtitles: str = ""
    template: str = "default"
    id: str | None = None
    spoken: Between | None = None
    """Subtitles that are shown between the frames instead, at the time they are spoken."""

    def __post_init__(self) -> None:
        if isinstance(self.options, str) or not isinstance(self.options, Iterable):
            raise UsageError(f"options must be a list of texts, got {self.options!r}")
        object.__setattr__(self, "options", tuple(self.options))
        _check_text("question", self.text)
        if not 2 <= len(self.options) <= MAX_OPTIONS:
            raise UsageError(
                f"a question needs 2 to {MAX_OPTIONS} options, got {len(self.options)}: "
                "GridProbe reads how sure the model is among a finite set of answers"
            )
        for label, option in zip(ascii_uppercase, self.options, strict=False):
            _check_text(f"option {label}", option)
        if self.subtitles != "":
            _check_text("subtitle text", self.subtitles)
        if self.id is not None and not isinstance(self.id, str):
            raise UsageError(f"a question's id must be text, got {self.id!r}")
        if self.template not in TEMPLATES:
            raise UsageError(f"unknown prompt template {self.template!r}; choose one of {', '.join(TEMPLATES)}")
        if self.answer is not None and self.answer not in self.labels:
            raise UsageError(f"the answer {self.answer!r} is not one of the labels {', '.join(self.labels)}")

    @property
    def labels(self) -> tuple[str, ...]:
        """The letters of this question's own options, "A" first."""
        return tuple(ascii_uppercase[: len(self.options)])

    @property
    def prompt(self) -> str:
        """The text that follows the frames."""
        return TEMPLATES[self.template](self)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Peculiarities of the question that are not errors."""
        seen: dict[str, str] = {}
        found = []
        for label, option in zip(self.labels, self.options, strict=True):
            first = seen.setdefault(" ".join(option.split()).casefold(), label)
            if first != label:
                found.append(f"options {first} and {label} are the same text; their probabilities are not merged")
        return tuple(found)

    def between(self, times: Sequence[float]) -> tuple[str, ...]:
        """The texts before, between and after frames at these times; empty for most questions."""
        return () if self.spoken is None else self.spoken.texts(times)

    def option(self, label: str) -> str:
        """The text of a label's option."""
        return self.options[self.labels.index(label)]


def _check_text(name: str, text: str) -> None:
    if not isinstance(text, str):
        raise UsageError(f"the {name} must be text, got {type(text).__name__}")
    if not text.strip():
        raise UsageError(f"the {name} is empty")
    if "\0" in text:
        raise UsageError(f"the {name} contains a NUL character, which no tokenizer accepts; remove it")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise UsageError(f"the {name} contains half of a surrogate pair, which is not valid text") from None
