"""What a question about an open video would take, before it is asked: the table of `gridprobe plan` for clients."""

from typing import Any

from gridprobe.evaluation.offers import TYPICAL, Models, offers
from gridprobe.question import Question
from gridprobe.report.format import share_words
from gridprobe.settings import Settings
from gridprobe.video import VideoInfo

__all__ = ["ALL", "plan_of"]

ALL = "all frames"


def plan_of(
    models: Models, settings: Settings, info: VideoInfo, *, selector: str, question: Question | None
) -> list[dict[str, Any]]:
    """Each way to ask as plain values, with its compute as a share of showing all frames."""
    priced = question or TYPICAL
    if priced.open:  # its overview and its focused pass cost nearly the same
        priced = Question(priced.text, TYPICAL.options)
    found = offers(settings, info, models, selector=selector, question=priced)
    whole = next(each.tflops[1] for each in found if each.name == ALL)
    return [each.to_dict() | _shares(each.tflops, whole) for each in found]


def _shares(tflops: tuple[float, float], whole: float) -> dict[str, Any]:
    least, most = (value / whole for value in tflops)
    low, high = share_words(least), share_words(most)
    return {"share": (least, most), "share_words": high if low == high else f"{low.removesuffix(' %')}–{high}"}
