"""Requests with fewer frames: a window of them, or less context."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gridprobe.backends.base import FrameGroup, ScoreRequest
from gridprobe.budget import spread

__all__ = ["nearby", "window_of", "with_context", "without_frames"]


def window_of(request: ScoreRequest, cut: range) -> ScoreRequest:
    """Some consecutive frames of a request with one group."""
    (group,) = request.groups
    last = request.between[-1] if request.between and cut.stop == len(group.frames) else ""
    between = (*request.between[cut.start : cut.stop], last) if request.between else ()
    sees = None if request.sees is None else tuple(place - cut.start for place in request.sees if place in cut)
    return replace(request, groups=(FrameGroup(group.frames.cut(cut), group.view),), between=between, sees=sees)


def without_frames(request: ScoreRequest) -> ScoreRequest:
    """The text of a request alone."""
    return replace(request, groups=(), between=(), sees=None, attention=False, again=False)


def with_context(request: ScoreRequest, count: int) -> ScoreRequest:
    """The request with so many frames of its last group; texts before the others stay, before the next frame."""
    *others, context = request.groups
    kept = nearby(context.frames.times, [time for group in others for time in group.frames.times], count)
    groups = [*others, FrameGroup(context.frames.take(kept), context.view)] if kept else others
    between = _texts(request, set(kept)) if request.between else ()
    return replace(request, groups=tuple(groups), between=between, sees=_seen(request, set(kept)))


def nearby(times: Sequence[float], others: Sequence[float], count: int) -> tuple[int, ...]:
    """So many of some moments: half of them nearest to other moments, and half evenly spaced among the rest."""
    if count >= len(times):
        return tuple(range(len(times)))
    distance = np.abs(np.asarray(times)[:, None] - np.asarray(others)[None]).min(axis=1)
    near = np.argsort(distance, kind="stable")[: count // 2].tolist()
    rest = sorted(set(range(len(times))).difference(near))
    return tuple(sorted([*near, *(rest[i] for i in spread(len(rest), count - len(near)))]))


def _order(request: ScoreRequest) -> list[tuple[int, int]]:
    """Group and place in it of every frame, in the order shown."""
    return [(unit.group, member) for unit in request.units for member in unit.members]


def _seen(request: ScoreRequest, kept: set[int]) -> tuple[int, ...] | None:
    """What the text may look at, when only some frames of the last group are kept."""
    if request.sees is None:
        return None
    last = len(request.groups) - 1
    left = [place for place, (group, member) in enumerate(_order(request)) if group != last or member in kept]
    return tuple(new for new, place in enumerate(left) if place in set(request.sees))


def _texts(request: ScoreRequest, kept: set[int]) -> tuple[str, ...]:
    """What stands before each frame and after the last, when only some frames of the last group are kept."""
    last, texts, held = len(request.groups) - 1, list[str](), list[str]()
    for (group, member), text in zip(_order(request), request.between[:-1], strict=True):
        held.append(text)
        if group != last or member in kept:
            texts.append("\n".join(filter(None, held)))
            held = []
    return (*texts, "\n".join(filter(None, [*held, request.between[-1]])))
