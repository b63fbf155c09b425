"""Prompt templates: the exact text that follows the frames. Changing a prompt changes results.

`default` is for any question; `paper` and `paper-v2` are the wordings of the authors' code on LongVideoBench and on
Video-MME-v2; the others are the official wordings of the benchmarks they are named after. We letter the options
ourselves, so an option string without a space after its letter ("C.Mission accomplished") gets one.

`default` and `paper` collapse white space in options, as an option on several lines could look like two. The official
wordings keep it: a benchmark's authors sent their texts as they are.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gridprobe.question import Question

__all__ = ["NO_TEXT", "PAPER_SUBTITLES", "TEMPLATES", "wording"]

NO_TEXT = "(no text)"
"""Stands for an empty question or option that a benchmark asks nevertheless; the official wordings show it as empty."""

PAPER_SUBTITLES = 3000
"""How many characters of subtitles the authors' code shows."""


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
    subtitles = f"Subtitles of the video:\n{question.subtitles}\n\n" if question.subtitles else ""
    return (
        f"{subtitles}Question: {question.text}\n{options}\n"
        "Answer with the option's letter from the given choices directly."
    )


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
    """For subtitles between the frames (`gridprobe.subtitles.interleave`); a block of subtitles stays a block."""
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
    subtitles = f"Subtitles of the video:\n{question.subtitles}\n\n" if question.subtitles else ""
    text = "" if question.text == NO_TEXT else question.text
    asked = f"Question: {text}\nOptions:\n{_verbatim(question, '({}) {}')}".rstrip()
    return (
        "Carefully watch this video and pay attention to every detail. Based on your observations, select the best "
        f"option that accurately addresses the question.\n{subtitles}{asked}\n"
        "Only give the best option.\nBest Option: ("
    )


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
}


def wording(template: str, own: str) -> str:
    """The template to use where settings name one: `paper` has a wording of its own for questions of Video-MME-v2."""
    return "paper-v2" if template == "paper" and own.startswith("video-mme-v2") else template
