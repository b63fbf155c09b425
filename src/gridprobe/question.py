"""Question: its text, options and labels, and the prompt that a model gets. Without options it is an open question."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from string import ascii_uppercase
from typing import TYPE_CHECKING

from gridprobe.errors import UsageError

if TYPE_CHECKING:
    from gridprobe.video.subtitles import Between, Subtitles

# Prompt templates: the exact text that follows the frames. Changing a prompt changes results.
#
# `default` is for any question; `paper` and `paper-v2` are the wordings of the authors' code on LongVideoBench and on
# Video-MME-v2; `lmms-eval` and `lmms-eval-qwen3` are those of that harness (0.7.3), which has one for each benchmark;
# the others are the official wordings of the benchmarks they are named after, or `default` where there is none. We
# letter
# the options ourselves, so an option string without a space after its letter ("C.Mission accomplished") gets one. A
# question without options has one wording, `open_prompt`.
#
# `default` and `paper` collapse white space in options, as an option on several lines could look like two. The official
# wordings keep it: a benchmark's authors sent their texts as they are.

NO_TEXT = "(no text)"
"""Stands for an empty question or option that a benchmark asks nevertheless; the official wordings show it as empty."""

PAPER_SUBTITLES = 3000
"""How many characters of subtitles the authors' code shows."""
SHORT = "Answer with a short phrase."
OR_NOT_SHOWN = 'If the video does not show it, answer "not shown in the video".'
DIRECTLY = "Answer with the option's letter from the given choices directly."


def _said(question: "Question") -> str:
    """A block of subtitles, where a wording has no place of its own for one."""
    return f"Subtitles of the video:\n{question.subtitles}\n\n" if question.subtitles else ""


DESCRIBE = re.compile(
    r"\s*(?:(?:please|can you|could you)\s+)*"
    r"(?:describe|summari[sz]e|outline|give (?:me )?(?:a|an) (?:short )?(?:summary|overview|description)"
    r"|what (?:happens|is happening|is going on|is shown) in (?:the|this) (?:video|clip|film)"
    r"|what is (?:the|this) (?:video|clip|film) about|tell me (?:about|what))\b",
    re.IGNORECASE,
)


def describes(text: str) -> bool:
    """Whether a question asks for a description or summary, which no single place of a video decides."""
    return DESCRIBE.match(text) is not None


def open_prompt(question: "Question") -> str:
    """The text for a question without options."""
    how = "Answer in a few sentences." if describes(question.text) else f"{SHORT} {OR_NOT_SHOWN}"
    return f"{_said(question)}Question: {question.text}\n{how}"


def _options(question: "Question", form: str) -> str:
    """One line per option, with white space collapsed."""
    pairs = zip(question.labels, question.options, strict=True)
    return "\n".join(form.format(label, " ".join(text.split())) for label, text in pairs)


def _verbatim(question: "Question", form: str) -> str:
    pairs = zip(question.labels, question.options, strict=True)
    return "\n".join(form.format(label, "" if text == NO_TEXT else text) for label, text in pairs)


def _default(question: "Question") -> str:
    return _directly(question, _options(question, "{}. {}"))


def _longvideobench(question: "Question") -> str:
    return _directly(question, _verbatim(question, "{}. {}"))


def _directly(question: "Question", options: str) -> str:
    return f"{_said(question)}Question: {question.text}\n{options}\n{DIRECTLY}"


def _paper(question: "Question") -> str:
    """The wording of the authors' code: the first 3000 characters of subtitles, options as "(A) text"."""
    subtitles = f"Video subtitles:\n{question.subtitles[:PAPER_SUBTITLES]}\n\n" if question.subtitles else ""
    options = _options(question, "({}) {}")
    return f"{subtitles}Question: {question.text}\n\n{options}\n\nAnswer with the letter of the correct option."


def _paper_v2(question: "Question") -> str:
    """The wording of the authors' code on Video-MME-v2; every option ends with one full stop."""
    listed = f"This video's subtitles are listed below:\n{question.subtitles.strip()}\n\n" if question.subtitles else ""
    pairs = zip(question.labels, question.options, strict=True)
    options = "\n".join(f"{label}. {text.strip().removesuffix('.').rstrip()}." for label, text in pairs)
    return (
        f"{listed}Select the best answer to the following multiple-choice question based on the video.\n"
        "Respond with only the letter (A, B, C, D, E, F, G, or H) of the correct option.\n"
        f"Question: {question.text}\n{options}"
    )


def _video_mme_v2(question: "Question") -> str:
    """The official script's two texts. Its instruction names A to H, whatever the number of options."""
    if question.subtitles:
        return _video_mme_v2_listed(question)
    return "These are the frames of a video." + _video_mme_v2_question(question)


def _video_mme_v2_listed(question: "Question") -> str:
    """With subtitles in a block, which is there even if nothing is said in the video."""
    listed = f"This video's subtitles are listed below:\n{question.subtitles}\n"
    return f"These are the frames of a video. {listed}" + _video_mme_v2_question(question)


def _video_mme_v2_interleaved(question: "Question") -> str:
    """For subtitles between the frames (`gridprobe.video.subtitles.interleave`); a block of subtitles stays a block."""
    if question.subtitles:
        return _video_mme_v2_listed(question)
    return (
        "These are the frames of a video with corresponding subtitles shown between frames. "
        "The subtitles indicate what is being said during the time interval between adjacent frames."
    ) + _video_mme_v2_question(question)


def _video_mme_v2_question(question: "Question") -> str:
    return (
        f"Question: {question.text}\n{_verbatim(question, '{}. {}')}\n"
        "Select the best answer to the following multiple-choice question based on the video. "
        "Respond with only the letter (A, B, C, D, E, F, G, or H) of the correct option."
    )


def _video_mme(question: "Question") -> str:
    listed = f"This video's subtitles are listed below:\n{question.subtitles}\n" if question.subtitles else ""
    return (
        f"{listed}Select the best answer to the following multiple-choice question based on the video. "
        "Respond with only the letter (A, B, C, or D) of the correct option.\n"
        f"{question.text}\n{_verbatim(question, '{}. {}')}\nThe best answer is:"
    )


def _mlvu(question: "Question") -> str:
    """The official system sentence, question and start of the answer, in one turn: only the frames precede it."""
    text = "" if question.text == NO_TEXT else question.text
    body = f"Question: {text}\nOptions:\n{_verbatim(question, '({}) {}')}".rstrip()
    return (
        "Carefully watch this video and pay attention to every detail. Based on your observations, select the best "
        f"option that accurately addresses the question.\n{_said(question)}{body}\n"
        "Only give the best option.\nBest Option: ("
    )


# lmms-eval.


def _lmms_eval(question: "Question") -> str:
    """On EgoSchema, and for questions of benchmarks that the harness does not have."""
    return f"{_said(question)}{question.text}\n{_verbatim(question, '{}. {}')}\n{DIRECTLY}"


def _lmms_eval_longvideobench(question: "Question") -> str:
    return f"{_lmms_eval(question)}\n"


def _lmms_eval_nextqa(question: "Question") -> str:
    """Without an instruction: the harness has none for this task."""
    return f"{_said(question)}{question.text.strip()}\n{_verbatim(question, '{}. {}')}"


def _lmms_eval_lvbench(question: "Question") -> str:
    body = f"{_said(question)}{question.text}\n{_verbatim(question, '({}) {}')}"
    return f"{body}\nAnswer the question with the option letter"


def _lmms_eval_mlvu(question: "Question") -> str:
    text = "" if question.text == NO_TEXT else question.text
    body = f"{_said(question)}{text}\n{_verbatim(question, '({}) {}')}"
    return f"{body}\nOnly give the best option.\nBest option: ("


def _lmms_eval_video_mme(question: "Question") -> str:
    """It speaks of subtitles whether there are any or not; with a block of them, its end is another one."""
    end = "The best answer is:" if question.subtitles else f"\n{DIRECTLY}"
    return (
        f"{_lmms_eval_block(question)}Select the best answer to the following multiple-choice question based on the "
        "video and the subtitles. Respond with only the letter (A, B, C, or D) of the correct option.\n"
        f"{question.text}\n{_verbatim(question, '{}. {}')}\n{end}"
    )


def _lmms_eval_qwen3_video_mme(question: "Question") -> str:
    body = f"Question: {question.text}\nOptions:\n{_verbatim(question, '{}. {}')}"
    return f"{_lmms_eval_block(question)}{body}\nAnswer with the option letter only."


def _lmms_eval_block(question: "Question") -> str:
    return f"This video's subtitles are listed below: \n{question.subtitles}\n" if question.subtitles else ""


def _lmms_eval_video_mme_v2(question: "Question") -> str:
    return _lmms_eval_v2_block(question) + _video_mme_v2_question(question)


def _lmms_eval_qwen3_video_mme_v2(question: "Question") -> str:
    body = f"Question: {question.text}\n{_verbatim(question, '{}. {}')}"
    return f"{_lmms_eval_v2_block(question)}{body}\nAnswer with the option letter only."


def _lmms_eval_v2_block(question: "Question") -> str:
    return f"This video's subtitles are listed below:\n{question.subtitles}\n\n" if question.subtitles else ""


TEMPLATES: dict[str, Callable[["Question"], str]] = {
    "default": _default,
    "paper": _paper,
    "paper-v2": _paper_v2,
    "longvideobench": _longvideobench,
    "video-mme-v2": _video_mme_v2,
    "video-mme-v2-listed": _video_mme_v2_listed,
    "video-mme-v2-interleaved": _video_mme_v2_interleaved,
    "video-mme": _video_mme,
    "mlvu": _mlvu,
    "lvbench": _default,
    "egoschema": _default,
    "nextqa": _default,
    "lmms-eval": _lmms_eval,
    "lmms-eval-longvideobench": _lmms_eval_longvideobench,
    "lmms-eval-video-mme-v2": _lmms_eval_video_mme_v2,
    "lmms-eval-video-mme": _lmms_eval_video_mme,
    "lmms-eval-mlvu": _lmms_eval_mlvu,
    "lmms-eval-lvbench": _lmms_eval_lvbench,
    "lmms-eval-nextqa": _lmms_eval_nextqa,
    "lmms-eval-qwen3": _lmms_eval,
    "lmms-eval-qwen3-video-mme-v2": _lmms_eval_qwen3_video_mme_v2,
    "lmms-eval-qwen3-video-mme": _lmms_eval_qwen3_video_mme,
}
VARIANTS = ("-listed", "-interleaved")
"""Ends of names: the same benchmark with subtitles."""


def wording(template: str, own: str) -> str:
    """The template to use where settings name one: those of other programs have a wording for each benchmark.

    `own` is the question's template, which is that of its benchmark. `lmms-eval-qwen3` is `lmms-eval` where the harness
    has no wording of its own for Qwen3-VL.
    """
    for variant in VARIANTS:
        own = own.removesuffix(variant)
    if template == "paper":
        return "paper-v2" if own == "video-mme-v2" else "paper"
    if template in ("lmms-eval", "lmms-eval-qwen3"):
        names = (f"{template}-{own}", f"lmms-eval-{own}")
        return next((name for name in names if name in TEMPLATES), "lmms-eval")
    return template


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
    spoken: "Between | None" = None
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
            count = len(self.options)
            raise UsageError(f"a question needs 2 to {MAX_OPTIONS} options, got {count}; an open one has none")
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

    def distinct(self) -> "Question":
        """The question, as a user asks it; UsageError if two options are the same text, so that no answer can choose.

        Rows of a benchmark are asked as they are, with a warning: official questions are not ours to change.
        """
        for first, second in self.repeated:
            raise UsageError(f"options {first} and {second} are the same text, {self.option(first)!r}; remove one")
        return self

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

    def hearing(self, subtitles: "Subtitles", *, interleaved: bool) -> "Question":
        """The question with what is said in the video, unless it has subtitles of its own.

        Args:
            subtitles: lines in the video's time.
            interleaved: whether they stand between the frames, as many as fit a limit; else all are one block of text.
        """
        if self.subtitles or self.spoken is not None or not subtitles.segments:
            return self
        if not interleaved:
            return replace(self, subtitles=subtitles.text)
        from gridprobe.video.subtitles import Between, most_telling

        return replace(self, spoken=Between(most_telling(subtitles.segments, self.words), rule="every"))

    @property
    def words(self) -> str:
        """The text and the options, for a search by words."""
        return " ".join((self.text, *self.options))

    def heard_at(self, times: Sequence[float]) -> tuple[float, ...]:
        """For each frame from 0 to 1 how well what is said next to it matches the question; empty if that says nothing.

        Benchmarks place subtitles by their own rules, and there it is left to the model.
        """
        if self.spoken is None or self.spoken.rule != "every":
            return ()
        from gridprobe.video.subtitles import matching_frames

        scores = matching_frames(self.words, self.spoken.segments, times)
        return scores if any(scores) else ()

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
        last = first
        for place in range(first, len(lines)):
            match = matches[place]
            if match and len(options) < MAX_OPTIONS and match[1] == ascii_uppercase[len(options)]:
                if options:
                    options[-1] += lines[last + 1 : place]
                options.append([match[2]])
                last = place
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
