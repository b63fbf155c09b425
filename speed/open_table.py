"""The table of open questions, from the run folders that recipes/open-questions.sh makes.

    python speed/open_table.py RUNS/all RUNS/all-small RUNS/drafts …    # Markdown; the first run: all frames

Accuracy is exact match in % with its 95 % interval over videos; compute is the honest convention as a share of the
first run's. The second table says how far the confidence can be trusted: answers in bins of it, and how often they are
right. The third is about questions that the video does not answer.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from gridprobe.open_ended import kind_of
from gridprobe.record import Record
from gridprobe_eval.metrics import Row, score
from gridprobe_eval.reader import Result, Run, read_runs
from gridprobe_eval.statistics import expected_calibration_error

BINS = ((0.0, 0.5), (0.5, 0.8), (0.8, 0.95), (0.95, 0.99), (0.99, 1.01))


def main() -> None:
    """Print the tables."""
    runs = read_runs([Path(name) for name in sys.argv[1:]])
    rows = score(runs, by=["part"])
    whole = {row.run: row for row in rows if not row.bin}
    parts = list(dict.fromkeys(row.value for row in rows if row.bin == "part"))
    of_part = {(row.run, row.value): row for row in rows if row.bin == "part"}
    base = whole[runs[0].name].cost
    assert base is not None
    heads = ["accuracy %", "95 %", "token F1 %", "compute", "from the overview %", *parts]
    table = {}
    for run in runs:
        row = whole[run.name]
        table[run.name] = [
            *_accuracy(row),
            f"{100 * _mean([each.f1 for each in run.results if each.f1 is not None]):.1f}",
            f"{row.cost.tflops / base.tflops:.3f}" if row.cost else "–",
            f"{100 * row.reached.overview:.0f}" if row.reached else "0",
            *(_accuracy(of_part[run.name, part])[0] for part in parts),
        ]
    _print("Questions without options", heads, table)
    heads = ["calibration error", *(f"{low:.2f} to {min(1.0, high):.2f}" for low, high in BINS)]
    _print("Confidence: right of all, by confidence", heads, {run.name: _calibration(run) for run in runs})
    heads = ["said so, of those not shown", "said so, of all others", "mean confidence", "right of these"]
    _print("What the video does not show", heads, {run.name: _not_shown(run) for run in runs})


def _accuracy(row: Row) -> list[str]:
    assert row.accuracy is not None
    return [f"{100 * row.accuracy.mean:.1f}", f"{100 * row.accuracy.low:.1f} … {100 * row.accuracy.high:.1f}"]


def _answers(run: Run) -> list[tuple[Result, Record]]:
    return [(each, each.answered) for each in run.results if each.answered]


def _calibration(run: Run) -> list[str]:
    pairs = [(found.confidence, bool(result.right)) for result, found in _answers(run)]
    error = expected_calibration_error([p for p, _ in pairs], [right for _, right in pairs])
    inside = [[right for p, right in pairs if low <= p < high] for low, high in BINS]
    return [f"{error:.3f}", *(f"{sum(each)} of {len(each)}" for each in inside)]


def _not_shown(run: Run) -> list[str]:
    answers = _answers(run)
    said = {result.id for result, found in answers if kind_of(found.reply or "") == "not said"}
    absent = {result.id for result, _ in answers if kind_of(result.answer or "") == "not said"}
    told = [found.confidence for result, found in answers if result.id in said]
    others = len(answers) - len(absent)
    right = f"{len(said & absent)} of {len(said)}"
    return [
        f"{len(said & absent)} of {len(absent)}",
        f"{len(said - absent)} of {others}",
        f"{_mean(told):.3f}" if told else "–",
        right,
    ]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _print(title: str, heads: Sequence[str], table: dict[str, list[str]]) -> None:
    print(f"## {title}\n\n| run | {' | '.join(heads)} |\n|---|{'---:|' * len(heads)}")
    for name, cells in table.items():
        print(f"| {name} | {' | '.join(cells)} |")
    print()


if __name__ == "__main__":
    main()
