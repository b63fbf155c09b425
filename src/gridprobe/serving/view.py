"""What a page shows of an answer, in the words of the reports."""

from typing import Any

from gridprobe.answer import Answer
from gridprobe.report.facts import (
    bill,
    compute_words,
    folded_words,
    options_title,
    said_words,
    split_options,
    stage_words,
)
from gridprobe.report.where import kept_frames, levels, main_spans, sheet_words, spans, where_words
from gridprobe.report.words import mark_words, reached_words, share_words, sure_words

__all__ = ["view_of"]


def view_of(answer: Answer) -> dict[str, Any]:
    """Plain values: where the answer is, its options, its frames, and how it was reached."""
    main = main_spans(answer)
    return {
        "said": said_words(answer),
        "sure": sure_words(answer.confidence),
        "where": where_words(answer),
        "compute": compute_words(answer),
        "reached": reached_words(answer),
        "stages": stage_words(answer),
        "moments": [{"start": each.start, "end": each.end, "words": each.words} for each in main or spans(answer)],
        "main": [index for each in main for index in each.indices],
        "kept": list(kept_frames(answer)),
        "levels": levels(answer),
        "mark": mark_words(answer),
        "sheet": sheet_words(answer),
        "stretches": [list(each) for each in answer.reached.stretches],
        "bill": [
            {"name": each.name, "share": share_words(each.share), "seconds": each.seconds} for each in bill(answer)
        ],
        **_options(answer),
    }


def _options(answer: Answer) -> dict[str, Any]:
    shown, folded = split_options(answer)
    found = [
        {
            "label": each.label,
            "text": each.text,
            "share": each.share,
            "percent": sure_words(each.share),
            "chosen": each.chosen,
        }
        for each in shown
    ]
    return {"options_title": options_title(answer), "options": found, "others": folded_words(folded)}
