"""Whether a run was interrupted by Ctrl-C or a signal: a file for each shard, which the next start removes."""

import json
from pathlib import Path

from gridprobe.evaluation.disk import listed, remove, write_whole
from gridprobe.evaluation.outcomes import now

__all__ = ["clear_interruption", "interruptions", "write_interruption"]


def write_interruption(folder: Path, shard: str) -> None:
    """Keep that the user ended a run, so that its workers do not count as dead."""
    write_whole(folder / f"interrupted-{shard}.json", json.dumps({"at": now()}).encode())


def clear_interruption(folder: Path, shard: str) -> None:
    """The run goes on."""
    remove(folder / f"interrupted-{shard}.json")


def interruptions(folder: Path) -> list[str]:
    """The shards of a run that were interrupted and not started again."""
    return [file.stem.removeprefix("interrupted-") for file in listed(folder, "interrupted-*.json")]
