"""How the contract suite builds a small selector of every name in the registry.

A selector that a model and an encoder suffice for needs no entry. One that takes an argument, or may keep fewer frames
than it is given, says so in `DECLARED`.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from encoder_checkpoints import ScriptedEncoder, matching
from gridprobe import MockModel
from gridprobe.importance import Budget
from gridprobe.models import Model, Request, View
from gridprobe.registry import SELECTORS
from gridprobe.selectors import Parts, Selector
from gridprobe.selectors.base import PROBE, Encoder

__all__ = ["DECLARED", "Small", "constant_encoder", "constant_model", "encoder", "model", "small"]

NEEDLE = 17


@dataclass(frozen=True)
class Small:
    """How a small selector is built."""

    argument: Callable[[Path, int], str] = lambda folder, pool: ""
    """What follows the colon, for a pool of so many frames; files are written to the folder."""
    own_map: bool = False
    """Whether its map is not flat for frames that are all alike, since it comes from a file."""
    stops_early: bool = False
    """Whether it stops looking when it is sure, so that a number of frames is the most it keeps."""


def _keyframes(folder: Path, pool: int) -> str:
    path = folder / "chosen.json"
    path.write_text(json.dumps({"schema": "gridprobe.keyframes/1", "questions": {"q": {"times": [0.0, 30.0]}}}))
    return str(path)


def _scores(folder: Path, pool: int) -> str:
    path = folder / "scores.jsonl"
    path.write_text(json.dumps({"id": "q", "scores": [i % 7 / 7 for i in range(pool)]}))
    return str(path)


DECLARED: Mapping[str, Small] = {
    "keyframes": Small(_keyframes),
    "scores": Small(_scores, own_map=True),
    "videoagent": Small(stops_early=True),
    "avua": Small(stops_early=True),
}


def model(name: str = "model") -> MockModel:
    """Sure of the second label exactly when the needle is among the frames shown."""

    def answer(request: Request) -> dict[str, float]:
        shown = {int(frame[0, 0, 0]) for group in request.groups for frame in group.frames.pixels}
        return {label: 0.96 if NEEDLE in shown and label == request.labels[1] else 0.02 for label in request.labels}

    return MockModel(answer, name=name)


def encoder() -> ScriptedEncoder:
    """Finds the needle, its neighbours a little, and in other frames some noise."""
    return matching(lambda level: 0.8 / (1 + abs(level - NEEDLE)) + (level * 37 % 11) / 100)


def constant_model() -> MockModel:
    return MockModel(lambda request: dict.fromkeys(request.labels, 1.0))


def constant_encoder() -> ScriptedEncoder:
    return ScriptedEncoder(lambda level: [0.6, 0.8])


def small(
    name: str,
    folder: Path,
    budget: Budget,
    *,
    pool: int = 144,
    asks: Model | None = None,
    compares: Encoder | None = None,
) -> Selector:
    """A selector of the registry by name."""
    argument = DECLARED.get(name, Small()).argument(folder, pool)
    make, _ = SELECTORS.resolve(f"{name}:{argument}" if argument else name)
    parts = Parts(asks or model(), budget, View(PROBE), encoder=compares or encoder())
    found: Selector = make(argument, parts)
    return found
