"""What runs in one pass: whole sequences, and texts that follow kept stems, sized by what is computed for them."""

from collections import Counter
from collections.abc import Container, Hashable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from gridprobe.backends.local.batching import batches
from gridprobe.backends.qwen3vl.jobs import Job, Span
from gridprobe.backends.qwen3vl.pixels import upload

__all__ = ["Room", "narrowed", "passes", "rows_of", "side_by_side"]

LEAST_ROW = 512
"""Texts of so many tokens together share a row after any stem; after a long one, half as many tokens as it has."""
WATCHED_SCORES = 2**26
"""The most attention scores of one layer that are looked at together."""


class Room(NamedTuple):
    """How much a pass may hold."""

    tokens: int
    """Tokens that are computed."""
    copies: int
    """Tokens whose keys and values are copied, because the texts that follow them differ in what they see of them."""


def passes(jobs: Sequence[Job], room: Room, *, kept: Container[Hashable], copying: bool) -> Iterator[list[Job]]:
    """The jobs in batches; those that share a stem are together, and it is counted once.

    Args:
        jobs: what to run.
        room: the most that a batch may hold; a single job may exceed it.
        kept: the stems that need not be computed.
        copying: whether each text gets keys and values of its own, as texts do that the model goes on writing.
    """
    shared = [job for job in jobs if job.shared]
    often = Counter(job.stem for job in shared)
    order = {stem: place for place, stem in enumerate(often)}
    batch, stems, tokens, copies = list[Job](), set[Hashable](), 0, 0
    for job in sorted(shared, key=lambda job: (order[job.stem], -job.rest)):
        copied = len(job.columns) if copying or job.narrow or often[job.stem] == 1 else 0
        while True:
            new = job.rest + (0 if job.stem in stems or job.stem in kept else job.layout.stem)
            if not batch or (tokens + new <= room.tokens and copies + copied <= room.copies):
                break
            yield batch
            batch, stems, tokens, copies = [], set(), 0, 0
        batch.append(job)
        stems.add(job.stem)
        tokens, copies = tokens + new, copies + copied
    if batch:
        yield batch
    yield from batches([job for job in jobs if not job.shared], room=room.tokens)


def rows_of(spans: Sequence[Span], *, heads: int) -> Iterator[list[Span]]:
    """Texts that follow the same stem and can stand side by side, so that its keys and values are not copied.

    A token's attention is computed over the whole row, so a row is short in comparison with its stem. One that is
    watched is shorter still, because its attention is held in memory; `heads` is the number of rows of scores a token
    has.
    """
    groups: dict[tuple[Hashable, bool], list[Span]] = {}
    for span in spans:
        groups.setdefault((span.job.stem, span.job.request.attention), []).append(span)
    for (_, watched), group in groups.items():
        most = max(LEAST_ROW, group[0].known // 2)
        if watched:
            most = min(most, WATCHED_SCORES // (heads * (group[0].known + most)))
        row: list[Span] = []
        for span in group:
            if row and sum(map(len, row)) + len(span) > most:
                yield row
                row = []
            row.append(span)
        yield row


def side_by_side(span: Span, often: int) -> bool:
    """Whether a text stands in one row with others that follow its stem, `often` of them, instead of copying it."""
    job = span.job
    return job.request.attention or (often > 1 and not job.narrow and not span.sees)


def narrowed(span: Span) -> Span:
    """The span with none but the keys and values that it may attend to."""
    if span.job.request.sees is None or span.past is None:
        return span
    return replace(span, past=span.past[..., upload(span.job.columns, span.past.device), :])
