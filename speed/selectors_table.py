"""The table of all selectors, from the run folders that recipes/selectors.sh makes.

    gridprobe score RUNS/… --by family --by part --format json > scores.json       # all runs, "all-small" first
    python speed/selectors_table.py scores.json                                   # Markdown

Accuracy is in % with its 95 % interval over videos. Compute is the honest convention, selector and answer together, as
a share of one pass over all frames at native size. Precision, recall and F1 are of the kept frames against the
intervals that hold the evidence; "nearest" is the mean distance of kept frames to the nearest evidence in seconds.
"""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]
FIRST = ("all", "all-small", "gridprobe")
NAME = re.compile(r"(?P<selector>.+?)-(?P<budget>8|16|auto)(?P<context>-context)?")
WORDS = {"": "alone", "-context": "with all others small"}


COLUMNS = ("accuracy %", "95 %", "against all small", "compute", "kept", "precision", "recall", "F1", "nearest s")
TEMPORAL = {"precision": ".2f", "recall": ".2f", "f1": ".2f", "distance": ".0f"}


def main() -> None:
    """Print the tables."""
    rows: list[Row] = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["rows"]
    whole = {row["run"]: row for row in rows if not row["bin"]}
    names = sorted(whole, key=lambda name: (name not in FIRST, -whole[name]["accuracy"]))
    _print("All questions", COLUMNS, {name: _cells(whole[name], whole["all"]["tflops"]) for name in names})
    for kind in ("part", "family"):
        of_kind = [row for row in rows if row["bin"] == kind]
        counts = {row["value"]: row["asked"] for row in of_kind if row["run"] == "all"}
        found = {(row["run"], row["value"]): _percent(row["accuracy"]) for row in of_kind}
        heads = [f"{value} ({count})" for value, count in counts.items()]
        _print(f"Accuracy % by {kind}", heads, {name: [found[name, value] for value in counts] for name in names})


def _print(title: str, heads: Sequence[str], table: Mapping[str, Sequence[str]]) -> None:
    print(f"## {title}\n\n| selector | frames | {' | '.join(heads)} |\n|---|---|{'---:|' * len(heads)}")
    for name, cells in table.items():
        print(f"| {' | '.join((*_words(name), *cells))} |")
    print()


def _words(name: str) -> tuple[str, str]:
    found = NAME.fullmatch(name)
    if found is None:
        return {"all": "**all frames**", "all-small": "**all frames, small**"}.get(name, f"**{name}, default**"), ""
    budget = {"auto": "own budget"}.get(found["budget"], found["budget"])
    return found["selector"], f"{budget}, {WORDS[found['context'] or '']}"


def _cells(row: Row, all_frames: float) -> list[str]:
    interval = f"{_percent(row['accuracy_low'])} … {_percent(row['accuracy_high'])}"
    versus = "" if row.get("difference") is None else f"{100 * row['difference']:+.1f}"
    temporal = [(row.get(f"temporal_{name}"), form) for name, form in TEMPORAL.items()]
    found = ["" if value is None else format(value, form) for value, form in temporal]
    return [
        _percent(row["accuracy"]),
        interval,
        versus,
        f"{row['tflops'] / all_frames:.3f}",
        f"{row['kept']:.1f}",
        *found,
    ]


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}"


if __name__ == "__main__":
    main()
