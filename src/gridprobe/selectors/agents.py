"""What selectors that look at frames in rounds have in common: how many frames they may see, and when they stop."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from gridprobe.budget import Fixed
from gridprobe.selectors.by_model import ByModel

__all__ = ["SURE", "Agent", "farthest"]

SURE = 0.9
"""The confidence at which an agent stops looking."""


@dataclass(frozen=True)
class Agent(ByModel):
    """A selector that looks in rounds until it is sure. A fixed number of frames is the most that it keeps."""

    sure: float = SURE
    most: int = 8
    """The most frames it keeps if the budget gives no number."""

    def limit(self, pool: int) -> int:
        """The most frames it keeps of a pool."""
        return min(pool, self.budget.frames if isinstance(self.budget, Fixed) else self.most)

    def first(self, pool: int) -> int:
        """How many frames it keeps at least: those of its first round."""
        return 1

    def bounds(self, pool: int) -> tuple[int, int]:
        """From the frames of the first round to the limit."""
        return self.first(pool), self.limit(pool)

    def describe(self) -> dict[str, Any]:
        """With its own limits in place of a budget's rule, which it does not use."""
        number = self.budget.frames if isinstance(self.budget, Fixed) else self.most
        return {**super().describe(), "budget": {"name": "at most", "frames": number}, "sure": self.sure}


def farthest(pool: int, seen: Collection[int], count: int) -> list[int]:
    """So many positions, each as far as possible from those before it and those seen; without any, the middle first."""
    chosen: list[int] = [] if seen else [pool // 2]
    while len(chosen) < count and len(chosen) + len(seen) < pool:
        taken = [*seen, *chosen]
        others = (i for i in range(pool) if i not in taken)
        chosen.append(max(others, key=lambda i: (min(abs(i - other) for other in taken), -i)))
    return chosen
