"""Question: its text, options and labels, and the prompt that a model gets. Without options it is an open question."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from string import ascii_uppercase

from gridprobe.errors import UsageError
from gridprobe.prompts import TEMPLATES, open_prompt
from gridprobe.subtitles import Between

__all__ = ["MAX_OPTIONS", "TEMPLATES", "Question"]

MAX_OPTIONS = len(ascii_uppercase)
_LABELLED = re.compile(r"\s*\(?([A-Z])(?:\)|\.|:)\s*(.*)")
"""A line that starts an option: "A. text", "(A) text", "A) text" or "A: text"."""


@dataclass(frozen=True)
class Question:
    """A question with 2 to 26 options, or an open one without any.

    Labels belong to the question: three options are A, B and C, never A to H.
    """

    text: str
    options: Sequence[str] = ()
    answer: str | None = None
    """The right label, or the right text of an open question, if known; no model ever sees it."""
    subtitles: str = ""
    template: str = "default"
    id: str | None = None
    spoken: Between | None = None
    """Subtitles that are shown between the frames instead, at the time they are spoken."""
    verbatim: str = ""
    """The whole prompt, as another program wrote it, in place of a template's; see `from_prompt`."""

    @classmethod
    def from_prompt(cls, prompt: str, *, id: str | None = None) -> "Question":
        """The question in a prompt that is to be shown as it is; its options are found in it, one on each line."""
        text, options = _parts(prompt)
        return cls(text, options, id=id, verbatim=prompt)

    def __post_init__(self) -> None:
        if isinstance(self.options, str) or not isinstance(self.options, Iterable):
            raise UsageError(f"options must be a list of texts, got {self.options!r}")
        object.__setattr__(self, "options", tuple(self.options))
        _check_text("question", self.text)
        if len(self.options) == 1 or len(self.options) > MAX_OPTIONS:
            given = len(self.options)
            raise UsageError(f"a question needs 2 to {MAX_OPTIONS} options, got {given}; an open one has none")
        for label, option in zip(ascii_uppercase, self.options, strict=False):
            _check_text(f"option {label}", option)
        if self.subtitles != "":
            _check_text("subtitle text", self.subtitles)
        if self.id is not None and not isinstance(self.id, str):
            raise UsageError(f"a question's id must be text, got {self.id!r}")
        if self.template not in TEMPLATES:
            raise UsageError(f"unknown prompt template {self.template!r}; choose one of {', '.join(TEMPLATES)}")
        if self.open and self.answer is not None:
            _check_text("right answer", self.answer)
        elif self.answer is not None and self.answer not in self.labels:
            raise UsageError(f"the answer {self.answer!r} is not one of the labels {', '.join(self.labels)}")

    @property
    def open(self) -> bool:
        """Whether it has no options, so that the answer is a text."""
        return not self.options

    @property
    def labels(self) -> tuple[str, ...]:
        """The letters of this question's own options, "A" first."""
        return tuple(ascii_uppercase[: len(self.options)])

    @property
    def prompt(self) -> str:
        """The text that follows the frames."""
        if self.verbatim:
            return self.verbatim
        return open_prompt(self) if self.open else TEMPLATES[self.template](self)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Peculiarities of the question that are not errors."""
        same = (f"options {first} and {second} are the same text" for first, second in self.repeated)
        return tuple(f"{words}; their probabilities are not merged" for words in same)

    @property
    def repeated(self) -> tuple[tuple[str, str], ...]:
        """The labels of options with the same text, but for case and white space: the first one and another."""
        seen: dict[str, str] = {}
        pairs = [
            (seen.setdefault(" ".join(self.option(label).split()).casefold(), label), label) for label in self.labels
        ]
        return tuple(pair for pair in pairs if pair[0] != pair[1])

    def between(self, times: Sequence[float]) -> tuple[str, ...]:
        """The texts before, between and after frames at these times; empty for most questions."""
        return () if self.spoken is None else self.spoken.texts(times)

    def option(self, label: str) -> str:
        """The text of a label's option."""
        return self.options[self.labels.index(label)]


def _parts(prompt: str) -> tuple[str, list[str]]:
    """What precedes the last list of options A, B, … in a prompt, and the options.

    Lines between two labels belong to the option before. What follows the line of the last option is the instruction.
    """
    lines = prompt.splitlines()
    matches = [_LABELLED.fullmatch(line) for line in lines]
    for first in reversed([place for place, match in enumerate(matches) if match and match[1] == "A"]):
        options: list[list[str]] = []
        known = first
        for place in range(first, len(lines)):
            match = matches[place]
            if match and len(options) < MAX_OPTIONS and match[1] == ascii_uppercase[len(options)]:
                if options:
                    options[-1] += lines[known + 1 : place]
                options.append([match[2]])
                known = place
        if len(options) >= 2:
            before = "\n".join(lines[:first]).strip()
            return before or prompt, ["\n".join(option).strip() for option in options]
    raise UsageError(
        f"no options were found in the prompt {prompt[:80]!r}; at least 2 lines such as A. text or (A) text are needed"
    )


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
