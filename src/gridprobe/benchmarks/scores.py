"""Accuracy, overall and by bin, as most benchmarks report it."""

from collections.abc import Mapping, Sequence

from gridprobe.benchmarks.base import Item, Metric

__all__ = ["accuracy", "by_bin", "mean", "values"]


def accuracy(items: Sequence[Item], right: Mapping[str, bool], *, name: str = "accuracy") -> Metric:
    """The percentage of right answers among the questions that were asked and have a known answer."""
    known = [item for item in items if not item.withheld]
    asked = [(item.group, 100.0 * right[item.id]) for item in known if item.id in right]
    notes = [
        f"{len(known) - len(asked)} of {len(known)} not asked" if len(asked) < len(known) else "",
        f"{len(items) - len(known)} with a withheld answer" if len(known) < len(items) else "",
    ]
    value = mean([score for _, score in asked])
    return Metric(name, value, len(asked), ", ".join(filter(None, notes)), [asked])


def by_bin(items: Sequence[Item], right: Mapping[str, bool], *bins: str) -> list[Metric]:
    """The accuracy for each value of these bins, except values without an asked question."""
    found = []
    for each in bins:
        for value in values(items, each):
            inside = [item for item in items if item.bins.get(each) == value]
            found.append(accuracy(inside, right, name=f"{each} {value}"))
    return [metric for metric in found if metric.count]


def values(items: Sequence[Item], name: str) -> list[str]:
    """The values of a bin: in numerical order if all are numbers, else in the order of the items."""
    found = list(dict.fromkeys(item.bins[name] for item in items if name in item.bins))
    return sorted(found, key=int) if all(value.isdecimal() for value in found) else found


def mean(scores: Sequence[float]) -> float | None:
    """The mean, or None if there are none: nothing asked is not the same as nothing right."""
    return sum(scores) / len(scores) if scores else None
