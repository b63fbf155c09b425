"""Accuracy against compute, with the Pareto front of the runs, as inline SVG."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import NamedTuple

from gridprobe.report.run_page.axes import LEFT, RUN_COLOURS, WIDTH, Axis, across, frame, svg, text_at, upwards
from gridprobe.report.words import amount
from gridprobe.statistics import Interval

__all__ = ["Point", "frontier", "pareto_svg"]

TOP = 44
"""Room for the name of a run with 100 %."""
LETTER, LINE = 9.2, 17
"""Width of a letter and height of a line of a name, at the size it has on a phone."""
MARK = 7
"""Radius that a mark takes up."""
FEW = 6
"""Of more runs, those behind the front get faint error bars."""
WIDE = 8
"""From this factor between the cheapest and the dearest run on, the axis of compute is logarithmic."""
LONGEST = 20
"""Letters of a name; of a longer one the end is shown."""


@dataclass(frozen=True)
class Point:
    """Compute and accuracy of a run."""

    name: str
    number: int
    compute: float
    accuracy: Interval


class _Box(NamedTuple):
    """A rectangle that a text or a mark takes up."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: "_Box") -> bool:
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )


def frontier(points: Sequence[Point]) -> list[Point]:
    """The Pareto front: points that no other beats in both compute and accuracy, in order of compute."""
    best: list[Point] = []
    for point in sorted(points, key=lambda p: (p.compute, -p.accuracy.mean)):
        if not best or point.accuracy.mean > best[-1].accuracy.mean:
            best.append(point)
    return best


def pareto_svg(points: Sequence[Point], *, words: str, everything: float) -> str:
    """Accuracy against mean compute; a line joins the front, and the region that it dominates is shaded.

    `everything` is the cost of all frames in one pass, drawn as a line.
    """
    highest = max(everything, *(point.compute for point in points))
    lows, highs = ([100 * getattr(p.accuracy, end) for p in points] for end in ("low", "high"))
    margin = max(2.0, 0.15 * (max(highs) - min(lows)))
    x = _compute_axis([point.compute for point in points], highest)
    y = upwards(max(0.0, min(lows) - margin), min(100.0, max(highs) + margin), TOP)
    best = frontier(points)
    stairs = _stairs(best, x, y)
    parts = [*_shade(stairs, x, y), *frame(x, y, f"TFLOPs a question, {words}", "accuracy %")]
    taken = [_mark_box(point, x, y) for point in points]
    taken += [_Box(min(a, c), min(b, d) - 2, max(a, c) + 2, max(b, d) + 2) for (a, b), (c, d) in pairwise(stairs)]
    if everything:
        at, label = x(everything), "all frames in one pass"
        parts.append(f'<line class="reference" x1="{at:.1f}" x2="{at:.1f}" y1="{y.end}" y2="{y.start}"/>')
        parts.append(text_at(at - 5, y.start - 6, label, "end"))
        taken.append(_Box(at - 5 - LETTER * len(label), y.start - LINE, at, y.start))
    others = sorted((point for point in points if point not in best), key=lambda p: -p.accuracy.mean)
    for point in (*reversed(best), *others):  # the front gets its names first
        parts.append(_mark(point, x, y, taken, best=point in best, faint=len(points) > FEW and point not in best))
    values = "; ".join(f"{p.name}: {100 * p.accuracy.mean:.1f} % at {amount(p.compute)} TFLOPs" for p in points)
    front = ", ".join(point.name for point in best)
    return svg(parts, f"accuracy against compute, {words}; on the front: {front}; {values}")


def _compute_axis(spent: Sequence[float], highest: float) -> Axis:
    """Logarithmic where the runs differ by a large factor."""
    lowest = min(spent)
    if lowest > 0 and highest / lowest >= WIDE:
        return across(lowest / 1.3, highest * 1.3, log=True)
    return across(0, highest * 1.12)


def _stairs(best: Sequence[Point], x: Axis, y: Axis) -> list[tuple[float, float]]:
    """The corners of the front: level from each run to the next, then up."""
    stairs = []
    for here, after in zip(best, [*best[1:], None], strict=True):
        height = y(100 * here.accuracy.mean)
        stairs += [(x(here.compute), height), (x(after.compute) if after else x.end, height)]
    return stairs


def _shade(stairs: Sequence[tuple[float, float]], x: Axis, y: Axis) -> list[str]:
    """The front as a line, and the region to the right of it and below."""
    corners = [(stairs[0][0], y.start), *stairs, (x.end, y.start)]
    area, line = (" ".join(f"{a:.1f},{b:.1f}" for a, b in path) for path in (corners, stairs))
    hover = "more compute than a run with equal or higher accuracy"
    return [
        f'<polygon class="dominated" points="{area}"><title>{hover}</title></polygon>',
        f'<polyline class="front" points="{line}"><title>Pareto front</title></polyline>',
    ]


def _mark_box(point: Point, x: Axis, y: Axis) -> _Box:
    at, height = x(point.compute), y(100 * point.accuracy.mean)
    return _Box(at - MARK, height - MARK, at + MARK, height + MARK)


def _mark(point: Point, x: Axis, y: Axis, taken: list[_Box], *, best: bool, faint: bool) -> str:
    """An error bar, a mark, and the name where it covers no other; a run behind the front may have none."""
    at, height = x(point.compute), y(100 * point.accuracy.mean)
    low, high = y(100 * point.accuracy.low), y(100 * point.accuracy.high)
    kind = "mark best" if best else "mark"
    shape = f'<circle class="{kind}" cx="{at:.1f}" cy="{height:.1f}" r="6"/>'
    if point.number % 2:
        shape = f'<rect class="{kind}" x="{at - 5.5:.1f}" y="{height - 5.5:.1f}" width="11" height="11" rx="2"/>'
    hover = f"{point.name}: {100 * point.accuracy.mean:.1f} % ({100 * point.accuracy.low:.1f} to "
    hover += f"{100 * point.accuracy.high:.1f}), {amount(point.compute)} TFLOPs"
    whisker = "whisker faint" if faint else "whisker"
    return (
        f'<g class="run-{point.number % RUN_COLOURS}"><title>{escape(hover)}</title>'
        f'<line class="{whisker}" x1="{at:.1f}" x2="{at:.1f}" y1="{low:.1f}" y2="{high:.1f}"/>{shape}'
        + _name(_short(point.name), (at, height), y, taken, needed=best)
        + "</g>"
    )


def _name(text: str, mark: tuple[float, float], y: Axis, taken: list[_Box], *, needed: bool) -> str:
    """The name at the first free place near the mark; a needed one at the first place inside if none is free."""
    inside = [box for box in _places(len(text) * LETTER, mark, far=needed) if _fits(box, y)]
    free = [box for box in inside if not any(box.meets(other) for other in taken)]
    if not free and not (needed and inside):
        return ""
    box = (free or inside)[0]
    taken.append(box)
    right = box.left >= mark[0]
    anchor, x = ("start", box.left) if right else ("end", box.right)
    return text_at(x, box.bottom - 4, text, anchor, "name")


def _places(width: float, mark: tuple[float, float], *, far: bool) -> Iterator[_Box]:
    """Where a name may stand: right and left of the mark, level with it, then above and below, then further off."""
    x, y = mark
    for shift in (0, -1, 1, -2, 2, -3, 3) if far else (0, -1, 1):
        top = y + shift * LINE - LINE / 2
        for left in (x + 10, x - 10 - width):
            yield _Box(left, top, left + width, top + LINE)


def _fits(box: _Box, y: Axis) -> bool:
    return box.left >= LEFT and box.right <= WIDTH - 2 and box.top >= 2 and box.bottom <= y.start


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else "…" + text[-LONGEST + 1 :]
