"""Draw accuracy over compute for each part of gridworld from the lines of speed/method.py, as one SVG.

python speed/method_plot.py speed/results/method-fresh.jsonl.gz --exit 0.99 --out docs/images/beyond.svg
"""

import argparse
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from method import auto, read

WIDTH, HEIGHT, LEFT, TOP, PLOT_WIDTH, PLOT_HEIGHT = 980, 360, 54, 56, 260, 240
GAP = 48
LOW, HIGH = 0.06, 1.3
"""Ends of the axis of compute."""
PANELS = {"standard": "standard questions", "fine": "fine print, unreadable when small", "": "all parts together"}
COLOURS = {"ours": "#1b7f5c", "published": "#b3471d", "all": "#555555", "uniform": "#555555", "nano": "#7a5195"}


def main() -> None:
    """Read, draw, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--exit", type=float, default=0.99)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    lines = list(read(given.files))
    lines = [line for line in lines if not line["way"].startswith("ours auto")] + auto(lines, given.exit)
    body = "\n".join(part for place, name in enumerate(PANELS) for part in _panel(place, name, lines))
    given.out.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="12"><rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>\n{body}\n</svg>\n',
        encoding="utf-8",
    )


def _panel(place: int, part: str, lines: Sequence[dict[str, Any]]) -> Iterator[str]:
    left = LEFT + place * (PLOT_WIDTH + GAP)
    yield f'<text x="{left}" y="{TOP - 30}" font-size="15" font-weight="bold">{PANELS[part]}</text>'
    yield f'<rect x="{left}" y="{TOP}" width="{PLOT_WIDTH}" height="{PLOT_HEIGHT}" fill="none" stroke="#999999"/>'
    for share in (0.1, 0.2, 0.5, 1.0):
        x = _x(left, share)
        yield f'<line x1="{x}" y1="{TOP}" x2="{x}" y2="{TOP + PLOT_HEIGHT}" stroke="#eeeeee"/>'
        yield f'<text x="{x}" y="{TOP + PLOT_HEIGHT + 16}" text-anchor="middle">{share:.0%}</text>'
    for right in (20, 40, 60, 80, 100):
        y = _y(right)
        yield f'<line x1="{left}" y1="{y}" x2="{left + PLOT_WIDTH}" y2="{y}" stroke="#eeeeee"/>'
        yield f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{right}</text>'
    yield f'<text x="{left}" y="{TOP + PLOT_HEIGHT + 34}">compute, of all frames at native size</text>'
    yield f'<text x="{left}" y="{TOP - 10}">right, %</text>'
    yield from _points(left, part, lines)


def _points(left: float, part: str, lines: Sequence[dict[str, Any]]) -> Iterator[str]:
    ways: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        if part in ("", line["part"]):
            ways[line["way"]].append(line)
    used: list[float] = []
    for way, found in sorted(ways.items(), key=lambda each: -_right(each[1])):
        if way in ("ours quick", "nano probes for micro"):  # the same as all small; its own row in the table
            continue
        x, y = _x(left, float(np.mean([line["compute"] for line in found]))), _y(_right(found))
        colour = COLOURS[way.partition(" ")[0].rstrip(",")]
        beside = y + 4
        while any(abs(beside - other) < 14 for other in used):
            beside += 14
        used.append(beside)
        end = x > left + 0.62 * PLOT_WIDTH
        label = way.partition(", exit")[0]
        anchor, offset = ("end", -9) if end else ("start", 9)
        weight = "bold" if way.startswith("ours auto") else "normal"
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}"/>'
        yield (
            f'<text x="{x + offset:.1f}" y="{beside:.1f}" text-anchor="{anchor}" font-weight="{weight}" '
            f'fill="{colour}">{label}</text>'
        )


def _right(lines: Sequence[dict[str, Any]]) -> float:
    return 100 * float(np.mean([line["right"] for line in lines if line["right"] is not None]))


def _x(left: float, share: float) -> float:
    return left + PLOT_WIDTH * (math.log(share) - math.log(LOW)) / (math.log(HIGH) - math.log(LOW))


def _y(right: float) -> float:
    return TOP + PLOT_HEIGHT * (1 - (right - 10) / 95)


if __name__ == "__main__":
    main()
