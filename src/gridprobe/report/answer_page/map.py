"""Draw the importance map, or a timeline, as inline SVG."""

from html import escape

from gridprobe.answer import Answer
from gridprobe.importance import ImportanceMap
from gridprobe.report.colours import MARK, Scale, hex_colour, ramp
from gridprobe.report.words import MAP_WORDS, clock, kept_words, mark_words, score_words

__all__ = ["map_svg", "strip_svg"]

TIMES, BARS, COLUMN_BARS = 66, 118, 62
"""Space at the left, at the right and below, in SVG units."""
AREA = 660
TRACK = 70
"""Length of a row's confidence bar at 1."""
STRIP = 960


def map_svg(answer: Answer, evidence: ImportanceMap) -> str:
    """A heat map, with row and column confidences if it is made of them; cells show time and importance on hover."""
    grid, side = evidence.grid, _side(evidence)
    right, below = (BARS, COLUMN_BARS) if evidence.row_confidence else (0, 0)
    width, height = TIMES + grid.k * side + right, grid.rows * side + below
    kept, scale = set(answer.selection.indices), Scale.over(evidence.scores)
    cells = [_cell(answer, evidence, index, scale, index in kept) for index in range(grid.rows * grid.k)]
    parts = [*cells, *_times(answer, evidence), *_rows(evidence), *_columns(evidence)]
    marked = f"{kept_words(answer.selection)} {mark_words(answer)}"
    words = f"{MAP_WORDS[evidence.kind]}: {grid.rows} rows and {grid.k} columns of frames; {marked}"
    return _figure(parts, width, height, words, _legend(answer, evidence, scale))


def _side(evidence: ImportanceMap) -> int:
    """The side of a cell: smaller for larger grids, but large enough to hover over."""
    return min(54, max(12, AREA // evidence.grid.k))


def _cell(answer: Answer, evidence: ImportanceMap, index: int, scale: Scale, kept: bool) -> str:
    side, (row, column) = _side(evidence), divmod(index, evidence.grid.k)
    x, y = TIMES + column * side, row * side
    if index >= evidence.grid.cells:
        return f'<rect class="blank" x="{x + 1}" y="{y + 1}" width="{side - 2}" height="{side - 2}"/>'
    value = float(evidence.scores[index])
    mark = f", {mark_words(answer)}" if kept else ""
    words = f"{clock(answer.pool.times[index], tenths=True)}, importance {score_words(value, 3)}{mark}"
    fill = hex_colour(ramp(scale.level(value)))
    rect = f'<rect class="cell" x="{x}" y="{y}" width="{side - 1}" height="{side - 1}" rx="2" fill="{fill}"/>'
    dot = _dot(x + (side - 1) / 2, y + (side - 1) / 2, side) if kept else ""
    return f"<g><title>{words}</title>{rect}{dot}</g>"


def _dot(x: float, y: float, side: int) -> str:
    """A bright dot with a dark outline, visible on every colour of the ramp."""
    radius = max(3.0, side * 0.17)
    fill = hex_colour(MARK)
    return (
        f'<circle class="mark" cx="{x:g}" cy="{y:g}" r="{radius:g}" fill="{fill}" stroke="#0c1016" stroke-width="2"/>'
    )


def _times(answer: Answer, evidence: ImportanceMap) -> list[str]:
    """The time of each row's first frame."""
    side, k = _side(evidence), evidence.grid.k
    return [
        _text(TIMES - 10, row * side + side / 2 + 4, clock(answer.pool.times[row * k]), "end")
        for row in range(evidence.grid.rows)
    ]


def _rows(evidence: ImportanceMap) -> list[str]:
    side, right = _side(evidence), TIMES + evidence.grid.k * _side(evidence) + 12
    thick = min(12, side - 4)
    parts = []
    for row, value in enumerate(evidence.row_confidence):
        middle = row * side + side / 2
        parts += [
            _bar((right, middle - thick / 2, TRACK, thick), (TRACK * value, thick), f"row confidence {value:.3f}"),
            _text(right + TRACK + 6, middle + 4, f"{value:.2f}", "start"),
        ]
    return parts


def _columns(evidence: ImportanceMap) -> list[str]:
    side, top = _side(evidence), evidence.grid.rows * _side(evidence) + 10
    thick, length = min(12, side - 4), 32
    parts = []
    for column, value in enumerate(evidence.column_confidence):
        middle = TIMES + column * side + side / 2
        words = f"column confidence {value:.3f}"
        parts.append(_bar((middle - thick / 2, top, thick, length), (thick, length * value), words))
        if side >= 30:
            parts.append(_text(middle, top + length + 14, f"{value:.2f}", "middle"))
    return parts


def _bar(track: tuple[float, float, float, float], filled: tuple[float, float], words: str) -> str:
    x, y, width, height = track
    corner = f'x="{x:g}" y="{y:g}" rx="2"'
    return (
        f'<g><title>{words}</title><rect class="track" {corner} width="{width:g}" height="{height:g}"/>'
        f'<rect class="value" {corner} width="{filled[0]:.1f}" height="{filled[1]:.1f}"/></g>'
    )


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}">{text}</text>'


def _legend(answer: Answer, evidence: ImportanceMap, scale: Scale) -> str:
    low, high = float(evidence.scores.min()), float(evidence.scores.max())
    start, end = scale.level(low), scale.level(high)
    stops = ", ".join(hex_colour(ramp(start + (end - start) * step / 8)) for step in range(9))
    bar = f'<span class="legend" style="background:linear-gradient(90deg, {stops})"></span>'
    shape = evidence.shape
    words = f"σ {shape.sigma:.2f} (skew {shape.skew:.2f}, excess kurtosis {shape.excess_kurtosis:.2f})"
    ends = (score_words(value, 3) for value in (low, high))
    key = f'importance {bar.join(ends)} <span class="dot"></span>{mark_words(answer)} &emsp; {words}'
    return f"The map shows {escape(MAP_WORDS[evidence.kind])}.<br>{key}"


def strip_svg(answer: Answer) -> str:
    """A timeline with a tick for each kept frame, for selectors without a map."""
    times, selection = answer.pool.times, answer.selection
    length = (times[-1] - times[0]) or 1.0
    overview = answer.reached.by == "overview"
    mark = "shown" if overview else "kept"
    reason = "no map was asked for" if overview else "this selector produces no importance map"
    parts = [f'<rect class="rail" x="0" y="8" width="{STRIP}" height="22" rx="4"/>']
    for time in selection.timestamps:
        x = (time - times[0]) / length * (STRIP - 4)
        tick = f'<rect class="kept" x="{x:.1f}" y="4" width="4" height="30" rx="1"/>'
        parts.append(f"<g><title>{clock(time, tenths=True)}, {mark}</title>{tick}</g>")
    parts += [_text(0, 52, clock(times[0]), "start"), _text(STRIP, 52, clock(times[-1]), "end")]
    words = f"timeline; {kept_words(selection)} {mark}"
    return _figure(parts, STRIP, 58, words, f"{mark} frames on the timeline; {reason}")


def _figure(parts: list[str], width: int, height: int, words: str, caption: str) -> str:
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    svg = f'<svg role="img" aria-label="{escape(words)}" {size}>'
    return f'<figure class="map">{svg}{"".join(parts)}</svg><figcaption>{caption}</figcaption></figure>'
