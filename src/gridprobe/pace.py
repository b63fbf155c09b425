"""Pace: how fast a model works on this machine, as measured; and where that is kept between runs.

One small JSON file for each model and machine, in the folder `speeds` beside the frame cache. A file that is missing,
damaged or cannot be written means that the pace is not known yet.
"""

import contextlib
import hashlib
import json
import math
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gridprobe.cores import usable_cores
from gridprobe.files import parse_json, write_whole
from gridprobe.flops import Cost
from gridprobe.video.disk_cache import cache_folder

if TYPE_CHECKING:
    from gridprobe.answer import Answer

__all__ = ["Pace", "learn_from", "learn_pace", "pace_of", "read_pace"]

FADING = 0.7
"""What older measurements count for when a new one arrives."""


@dataclass
class Pace:
    """Work and the time it took. Newer measurements count more, so the pace follows the machine's load."""

    tflops: float = 0.0
    """What was computed; what was reused does not count."""
    tokens: float = 0.0
    seconds: float = 0.0
    excess: float = 1.0
    """The largest ratio of billed to estimated tokens that was seen; 1 for local models. It is not kept."""

    @property
    def known(self) -> bool:
        """Whether anything was measured."""
        return self.seconds > 0

    def note(self, cost: Cost, seconds: float) -> None:
        """Add a measurement."""
        if seconds <= 0 or (cost.tflops_computed <= 0 and cost.tokens <= 0):
            return
        self.tflops = FADING * self.tflops + cost.tflops_computed
        self.tokens = FADING * self.tokens + cost.tokens
        self.seconds = FADING * self.seconds + seconds

    def seconds_for(self, cost: Cost) -> float:
        """How long work of this cost takes: by its operations, or by its tokens where those are not known."""
        if not self.known:
            return 0.0
        if cost.unpriced or not self.tflops:
            return cost.tokens / self.tokens * self.seconds if self.tokens else 0.0
        return cost.tflops / self.tflops * self.seconds


def _file(model: str, folder: Path | None) -> Path | None:
    if folder is None:
        frames = cache_folder()
        folder = None if frames is None else frames.parent / "speeds"
    key = hashlib.sha256(f"{platform.node()}/{usable_cores()}/{model}".encode()).hexdigest()[:16]
    return None if folder is None else folder / f"{key}.json"


def read_pace(model: str, *, folder: Path | None = None) -> Pace:
    """The pace of a model on this machine, by its name or identity; an unknown one if nothing was measured."""
    file = _file(model, folder)
    try:
        found = parse_json(file.read_bytes()) if file else {}
        pace = Pace(**{name: float(found[name]) for name in ("tflops", "tokens", "seconds")})
    except (OSError, ValueError, TypeError, KeyError):
        return Pace()
    return pace if all(math.isfinite(each) and each >= 0 for each in asdict(pace).values()) else Pace()


_PACES: dict[str, Pace] = {}


def pace_of(model: str) -> Pace:
    """The pace that all questions of this process share for a model; it begins with what was kept."""
    return _PACES.setdefault(model, read_pace(model))


def learn_pace(model: str, cost: Cost, seconds: float, *, folder: Path | None = None) -> None:
    """Add a measurement to what is kept about a model; what cannot be written is forgotten."""
    file, pace = _file(model, folder), read_pace(model, folder=folder)
    pace.note(cost, seconds)
    if file is None or not pace.known:
        return
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, json.dumps({"model": model, **asdict(pace)}, allow_nan=False).encode())


def learn_from(answer: "Answer", *, names: tuple[str, str]) -> None:
    """Keep how fast the models worked, by their identities and by the names they were loaded by.

    `names` are those of the model that is asked first and of the answering one.
    """
    asked, answerer = answer.models
    stages = [(names[1], answerer, answer.cost.focus, answer.seconds.focus)]
    if answer.reached.overview is not None:
        stages.append((names[0], asked[0], answer.cost.overview, answer.seconds.overview))
    for name, identity, cost, seconds in stages:
        for each in dict.fromkeys((name, identity)):
            learn_pace(each, cost, seconds)
