"""What is on a figure: its texts, and whether they have room."""

from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from canvas import styled


def texts(figure: Any) -> list[Any]:
    """All texts that are drawn, after layout."""
    with styled():
        figure.set_dpi(400)  # as in a PNG; letters are rounded to whole pixels at a screen's
        FigureCanvasAgg(figure).draw()
    skipped = {text for axes in figure.axes for text in (axes.findobj(Text) if not axes.axison else _beyond(axes))}
    return [t for t in figure.findobj(Text) if t.get_text().strip() and t.get_visible() and t not in skipped]


def _beyond(axes: Any) -> set[Any]:
    """Labels of ticks outside the axes, which matplotlib keeps and does not draw."""
    found: set[Any] = set()
    for axis in (axes.xaxis, axes.yaxis):
        shown = {
            label
            for tick in (axis._update_ticks() if axis.get_visible() else [])
            for label in (tick.label1, tick.label2)
        }
        ticks = [*axis.majorTicks, *axis.minorTicks]
        found |= {label for tick in ticks for label in (tick.label1, tick.label2)} - shown
    return found


def words(figure: Any) -> str:
    return "\n".join(text.get_text() for text in texts(figure))


def cut_off(figure: Any) -> list[str]:
    """Texts that are not wholly on the figure."""
    whole = figure.bbox
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts(figure)]
    return [
        text
        for text, box in boxes
        if box.x0 < whole.x0 - 1 or box.x1 > whole.x1 + 1 or box.y0 < whole.y0 - 1 or box.y1 > whole.y1 + 1
    ]


def overlapping(figure: Any) -> list[tuple[str, str]]:
    """Pairs of texts that cover each other."""
    found, drawn = [], [(text.get_text(), text.get_window_extent()) for text in texts(figure)]
    for place, (one, box) in enumerate(drawn):
        for other, second in drawn[place + 1 :]:
            wide = min(box.x1, second.x1) - max(box.x0, second.x0)
            high = min(box.y1, second.y1) - max(box.y0, second.y0)
            if wide > 1 and high > 1:
                found.append((one, other))
    return found
