"""Prompt templates: the exact text that follows the frames. Changing a prompt changes results.

`default` is for any question; `paper` and `paper-v2` are the wordings of the authors' code on LongVideoBench and on
Video-MME-v2; `lmms-eval` and `lmms-eval-qwen3` are those of that harness (0.7.3), which has one for each benchmark;
the others are the official wordings of the benchmarks they are named after, or `default` where there is none. We letter
the options ourselves, so an option string without a space after its letter ("C.Mission accomplished") gets one. A
question without options has one wording, `open_prompt`.

`default` and `paper` collapse white space in options, as an option on several lines could look like two. The official
wordings keep it: a benchmark's authors sent their texts as they are.
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gridprobe.question import Question

__all__ = ["NO_TEXT", "OR_NOT_SHOWN", "PAPER_SUBTITLES", "TEMPLATES", "describes", "open_prompt", "wording"]

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
    text = "" if question.text == NO_TEXT else question.text
    asked = f"Question: {text}\nOptions:\n{_verbatim(question, '({}) {}')}".rstrip()
    return (
        "Carefully watch this video and pay attention to every detail. Based on your observations, select the best "
        f"option that accurately addresses the question.\n{_said(question)}{asked}\n"
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
    asked = f"{_said(question)}{question.text}\n{_verbatim(question, '({}) {}')}"
    return f"{asked}\nAnswer the question with the option letter"


def _lmms_eval_mlvu(question: "Question") -> str:
    text = "" if question.text == NO_TEXT else question.text
    asked = f"{_said(question)}{text}\n{_verbatim(question, '({}) {}')}"
    return f"{asked}\nOnly give the best option.\nBest option: ("


def _lmms_eval_video_mme(question: "Question") -> str:
    """It speaks of subtitles whether there are any or not; with a block of them, its end is another one."""
    end = "The best answer is:" if question.subtitles else f"\n{DIRECTLY}"
    return (
        f"{_lmms_eval_block(question)}Select the best answer to the following multiple-choice question based on the "
        "video and the subtitles. Respond with only the letter (A, B, C, or D) of the correct option.\n"
        f"{question.text}\n{_verbatim(question, '{}. {}')}\n{end}"
    )


def _lmms_eval_qwen3_video_mme(question: "Question") -> str:
    asked = f"Question: {question.text}\nOptions:\n{_verbatim(question, '{}. {}')}"
    return f"{_lmms_eval_block(question)}{asked}\nAnswer with the option letter only."


def _lmms_eval_block(question: "Question") -> str:
    return f"This video's subtitles are listed below: \n{question.subtitles}\n" if question.subtitles else ""


def _lmms_eval_video_mme_v2(question: "Question") -> str:
    return _lmms_eval_v2_block(question) + _video_mme_v2_question(question)


def _lmms_eval_qwen3_video_mme_v2(question: "Question") -> str:
    asked = f"Question: {question.text}\n{_verbatim(question, '{}. {}')}"
    return f"{_lmms_eval_v2_block(question)}{asked}\nAnswer with the option letter only."


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
