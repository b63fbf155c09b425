"""Answers: the latest ones are kept, so that their reports can be drawn when somebody asks for them."""

from collections import OrderedDict
from threading import Lock

from gridprobe.answer import Answer
from gridprobe.serving.refusals import not_found

__all__ = ["Answers"]

MOST_BYTES = 256 << 20
"""Bytes of the frames of all answers that are kept; the latest is kept in any case."""
MOST = 64


class Answers:
    """The latest answers, by the id of their job."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: OrderedDict[str, Answer] = OrderedDict()

    def keep(self, id: str, answer: Answer) -> None:
        """Keep an answer, and drop the oldest ones if all together take too much."""
        with self._lock:
            self._kept[id] = answer
            while len(self._kept) > 1 and (len(self._kept) > MOST or self._bytes > MOST_BYTES):
                self._kept.popitem(last=False)

    def get(self, id: str) -> Answer:
        """The answer of a job."""
        with self._lock:
            if id not in self._kept:
                raise not_found("answer")
            return self._kept[id]

    @property
    def _bytes(self) -> int:
        """Of different arrays: answers about one video share its frames."""
        arrays = {id(pool.data): pool.data for each in self._kept.values() for pool in (each.pool, each.frames)}
        return sum(getattr(each, "nbytes", 0) for each in arrays.values())
