"""Which sequences share a forward pass."""

from collections.abc import Iterator, Sequence, Sized
from typing import Protocol, TypeVar

__all__ = ["batches"]


class Job(Protocol):
    """One request; its layout's length is its number of tokens."""

    @property
    def layout(self) -> Sized:
        """The request as tokens."""
        ...


J = TypeVar("J", bound=Job)


def batches(jobs: Sequence[J], *, room: int) -> Iterator[list[J]]:
    """Longest first, so that sequences of similar length share a batch and the worst case comes early."""
    batch: list[J] = []
    for job in sorted(jobs, key=lambda job: -len(job.layout)):
        if batch and (len(batch) + 1) * len(batch[0].layout) > room:
            yield batch
            batch = []
        batch.append(job)
    if batch:
        yield batch
