"""What a page shows of an answer, in the words of the reports."""

from typing import Any

from gridprobe.answer import Answer
from gridprobe.report.format import share_words, sure_words
from gridprobe.report.view import AnswerView

__all__ = ["view_of"]


def view_of(answer: Answer) -> dict[str, Any]:
    """Plain values: where the answer is, its options, its frames, and how it was reached."""
    view = AnswerView(answer)
    return {
        "said": view.text,
        "sure": view.sure,
        "where": view.where,
        "compute": view.compute,
        "reached": view.reached,
        "stages": view.stages,
        "moments": [{"start": each.start, "end": each.end, "words": each.words} for each in view.moments],
        "main": [index for each in view.main_spans for index in each.indices],
        "kept": list(view.kept),
        "levels": view.levels,
        "mark": view.mark,
        "sheet": view.sheet_words,
        "stretches": [list(each) for each in answer.reached.stretches],
        "bill": [{"name": each.name, "share": share_words(each.share), "seconds": each.seconds} for each in view.bill],
        "options_title": view.options_title,
        "options": [
            {
                "label": each.label,
                "text": each.text,
                "share": each.share,
                "percent": sure_words(each.share),
                "chosen": each.chosen,
            }
            for each in view.shown_options
        ],
        "others": view.folded_words,
    }
