"""gridprobe doctor --model: whether a model can be used, and how fast it is here; any backend, local or remote."""

import time
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np

from gridprobe.backends import Backend, FrameGroup, Posterior, ScoreRequest, View, fuses, load_model, recalls
from gridprobe.backends.base import LOW_MASS
from gridprobe.cli.checks import Check
from gridprobe.errors import GridProbeError
from gridprobe.question import Question
from gridprobe.video import FramePool, FrameSize

__all__ = ["check_model", "checks_of"]

FRAMES = 12
"""Frames of a probe: one row of the default grid."""
WIDTH, HEIGHT = 224, 128
"""Their size, as in the default preset for a video of 16:9."""
ENOUGH = 5.0
"""Seconds of measuring, after which no further round begins."""
MOST = 64
"""Probes of a round; more at once are not sent by any method here."""
SAME = 1e-6
"""Log-probabilities that differ by less are equal."""

QUESTION = Question("What colour is the circle?", ["red", "blue", "green", "none of these"])


def check_model(name: str, **options: Any) -> list[Check]:
    """Load a model and check it."""
    start = time.perf_counter()
    try:
        model = load_model(name, **options)
    except GridProbeError as error:
        return [Check("model", "broken", str(error))]
    return [Check("model", "ok", f"{model.identity}, loaded in {time.perf_counter() - start:.1f} s"), *checks_of(model)]


def checks_of(model: Backend, *, clock: Callable[[], float] = time.perf_counter) -> list[Check]:
    """What a loaded model can do, and how fast; the first error ends the list."""
    checks = []
    try:
        for check in (_answers, _looks, _abilities):
            checks.append(check(model))
        checks.append(_speed(model, clock))
    except GridProbeError as error:
        checks.append(Check("request", "broken", str(error)))
    return checks


def _answers(model: Backend) -> Check:
    """Whether it answers with an option letter."""
    (posterior,) = model.score([_probe(0, frames=1)])
    note = f"{posterior.mass:.0%} of the probability is on the option letters"
    if posterior.mass < LOW_MASS:
        return Check("letters", "absent", f"only {note}, so its answers mean little; use an Instruct checkpoint")
    return Check("letters", "ok", note)


def _looks(model: Backend) -> Check:
    """Whether its answer depends on the frames, on their order and on their times."""
    base = _probe(1, frames=2)
    frames = base.frames
    swapped = FramePool(frames.pixels[::-1].copy(), frames.times, frames.source)
    later = FramePool(frames.pixels, tuple(60.0 + time for time in frames.times), frames.source)
    asked = [base, _probe(2, frames=2), *(_shown(pool) for pool in (swapped, later))]
    first, *others = model.score(asked)
    names = ("the frames", "their order", "their times")
    blind = [what for what, other in zip(names, others, strict=True) if _equal(first, other)]
    if blind:
        state: Literal["absent", "broken"] = "broken" if names[0] in blind else "absent"
        return Check("frames", state, f"its answer does not depend on {' or '.join(blind)}")
    return Check("frames", "ok", "its answer depends on the frames, their order and their times")


def _equal(a: Posterior, b: Posterior) -> bool:
    return max(abs(x - y) for x, y in zip(a.logprobs, b.logprobs, strict=True)) < SAME


def _abilities(model: Backend) -> Check:
    """What methods it allows, and what a frame costs."""
    lacks = [what for what, can in (("probes from memory", recalls(model)), ("pairs", fuses(model))) if not can]
    cost = model.estimate(_probe(3))
    tokens = f"{cost.visual_tokens / FRAMES:g} tokens for a frame of {WIDTH}×{HEIGHT}" if cost.visual_tokens else ""
    fixed = "and as many for one of any other size" if getattr(model, "picture_tokens", None) else ""
    lacking = f"lacks {' and '.join(lacks)}" if lacks else "everything works"
    return Check("abilities", "ok", "; ".join(filter(None, (lacking, " ".join(filter(None, (tokens, fixed)))))))


def _speed(model: Backend, clock: Callable[[], float]) -> Check:
    """Probes and tokens a second, from rounds of new probes, each with twice as many as the one before."""
    model.score([_probe(4)])  # the first pass of a process is slow
    seeds, start = iter(range(5, 1 << 20)), clock()
    count = 1
    while True:
        begin = clock()
        posteriors = model.score(list(_probes(seeds, count)))
        seconds = max(clock() - begin, 1e-9)
        if count >= MOST or clock() - start + 2 * seconds > ENOUGH:
            break
        count *= 2
    tokens = sum(posterior.cost.tokens for posterior in posteriors)
    rate = f"{count / seconds:.3g} probes a second, {count} at once, each of {FRAMES} frames of {WIDTH}×{HEIGHT}"
    return Check("speed", "ok", f"{rate}; {tokens / seconds:,.0f} tokens a second" if tokens else rate)


def _probes(seeds: Iterator[int], count: int) -> Iterator[ScoreRequest]:
    return (_probe(next(seeds)) for _ in range(count))


def _probe(seed: int, *, frames: int = FRAMES) -> ScoreRequest:
    """A question about noise that no other probe shows, so that nothing can be reused."""
    pixels = np.random.default_rng(seed).integers(0, 256, (frames, HEIGHT, WIDTH, 3), dtype=np.uint8)
    return _shown(FramePool(pixels, tuple(5.0 * i for i in range(frames)), f"noise {seed}"))


def _shown(pool: FramePool) -> ScoreRequest:
    return ScoreRequest.about(QUESTION, (FrameGroup(pool, View(FrameSize(max_side=WIDTH))),))
