"""Accuracy, of all questions and by bin: what most benchmarks report."""

from collections.abc import Mapping, Sequence

from gridprobe.benchmarks.base import Item, Metric

__all__ = ["accuracy", "by_bin", "mean", "values"]


def accuracy(items: Sequence[Item], right: Mapping[str, bool], *, name: str = "accuracy") -> Metric:
    """The share of right answers among the questions that were asked and have a known answer."""
    known = [item for item in items if item.question.answer is not None]
    asked = [right[item.id] for item in known if item.id in right]
    notes = [
        f"{len(known) - len(asked)} of {len(known)} not asked" if len(asked) < len(known) else "",
        f"{len(items) - len(known)} without a public answer" if len(known) < len(items) else "",
    ]
    return Metric(name, mean([100.0 * each for each in asked]), len(asked), ", ".join(filter(None, notes)))


def by_bin(items: Sequence[Item], right: Mapping[str, bool], *bins: str) -> list[Metric]:
    """The accuracy in every value of these bins that questions were asked of."""
    found = []
    for each in bins:
        for value in values(items, each):
            inside = [item for item in items if item.bins.get(each) == value]
            found.append(accuracy(inside, right, name=f"{each} {value}"))
    return [metric for metric in found if metric.count]


def values(items: Sequence[Item], name: str) -> list[str]:
    """What a bin holds: in numerical order where all are numbers, else in the order of the items."""
    found = list(dict.fromkeys(item.bins[name] for item in items if name in item.bins))
    return sorted(found, key=int) if all(value.isdecimal() for value in found) else found


def mean(scores: Sequence[float]) -> float:
    """The mean, 0 of nothing; the count beside it tells the two apart."""
    return sum(scores) / len(scores) if scores else 0.0
