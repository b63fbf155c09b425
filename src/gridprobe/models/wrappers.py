"""Models in front of another model: `CachedModel` computes each request once, `ChunkedModel` cuts long ones.

Several selectors on one question send the same probes, and an adaptive selector may keep every frame.
"""

import math
import time
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise

import numpy as np

from gridprobe.errors import UsageError
from gridprobe.importance import spread
from gridprobe.models.base import (
    Capabilities,
    Choose,
    Completions,
    Cost,
    FrameGroup,
    Heads,
    Model,
    Posterior,
    Request,
    Response,
    SamplingParams,
    completions,
    posteriors,
)
from gridprobe.open_ended import kind_of

# The base of models that change how another one is asked.


class ModelWrapper:
    """A model in front of another."""

    def __init__(self, model: Model) -> None:
        self._model = model

    @property
    def identity(self) -> str:
        """That of the model behind it."""
        return self._model.identity

    @property
    def capabilities(self) -> Capabilities:
        """Those of the model behind it."""
        return self._model.capabilities

    def cost(self, request: Request) -> Cost:
        """What the model behind it says."""
        return self._model.cost(request)

    def run(self, requests: Sequence[Request]) -> Sequence[Response]:
        """What the model behind it answers."""
        return self._model.run(requests)


# Each request is computed once.


class CachedModel(ModelWrapper):
    """The same model, but each request is computed once; the least recently used responses are dropped first.

    A cached response keeps its cost, so compute is reported as if the model had been asked again.
    """

    def __init__(self, model: Model, *, capacity: int = 4096) -> None:
        if capacity < 1:
            raise UsageError(f"a memo needs room for at least 1 answer, got {capacity}")
        super().__init__(model)
        self._capacity = capacity
        self._entries: OrderedDict[Hashable, tuple[Response, float]] = OrderedDict()
        """Responses with their seconds: an equal share of their call."""
        self.hits = 0
        """How many requests were answered without asking the model."""
        self.saved = 0.0
        """Seconds the model took for these when it was first asked; add them to a measured time to get the true one."""

    def __len__(self) -> int:
        return len(self._entries)

    def run(self, requests: Sequence[Request]) -> list[Response]:
        """A response to each request, in order; all new ones go to the model in one call."""
        keys = [self._key(request) for request in requests]
        entries = {key: self._entries[key] for key in keys if key in self._entries}
        missing = {key: request for key, request in zip(keys, requests, strict=True) if key not in entries}
        fresh = self._ask(list(missing.values()))
        repeated = [key for place, key in enumerate(keys) if key in entries or key in keys[:place]]
        entries.update(zip(missing, fresh, strict=True))
        self.hits += len(repeated)
        self.saved += sum(entries[key][1] for key in repeated)
        self._remember(entries)
        return [entries[key][0] for key in keys]

    def _key(self, request: Request) -> Hashable:
        """Everything a response depends on. Equal frame keys mean equal pixels."""
        question = (
            request.prompt,
            request.prompt_order,
            request.task,
            request.between,
            request.visible_frames,
            request.attention,
            request.close_ups,
        )
        return self.identity, question, tuple((group.frames.keys, group.view) for group in request.groups)

    def _ask(self, requests: Sequence[Request]) -> list[tuple[Response, float]]:
        if not requests:
            return []
        start = time.perf_counter()
        responses = self._model.run(requests)
        each = (time.perf_counter() - start) / len(requests)
        return [(response, each) for response in responses]

    def _remember(self, entries: dict[Hashable, tuple[Response, float]]) -> None:
        self._entries.update(entries)
        for key in entries:
            self._entries.move_to_end(key)
        while len(self._entries) > self._capacity:
            self._entries.popitem(last=False)


# Requests with fewer frames: a chunk of them, or less context.


def chunk_of(request: Request, cut: range) -> Request:
    """Some consecutive frames of a request with one group."""
    (group,) = request.groups
    last = request.between[-1] if request.between and cut.stop == len(group.frames) else ""
    between = (*request.between[cut.start : cut.stop], last) if request.between else ()
    visible_frames = (
        None
        if request.visible_frames is None
        else tuple(place - cut.start for place in request.visible_frames if place in cut)
    )
    return replace(
        request, groups=(FrameGroup(group.frames.cut(cut), group.view),), between=between, visible_frames=visible_frames
    )


def without_frames(request: Request) -> Request:
    """The text of a request alone."""
    return replace(request, groups=(), between=(), visible_frames=None, attention=False, keep_kv=False)


def with_context(request: Request, count: int) -> Request:
    """The request with that many frames of its last group; texts before the others stay, before the next frame."""
    *others, context = request.groups
    kept = nearby(context.frames.times, [time for group in others for time in group.frames.times], count)
    groups = [*others, FrameGroup(context.frames.take(kept), context.view)] if kept else others
    between = _texts(request, set(kept)) if request.between else ()
    return replace(request, groups=tuple(groups), between=between, visible_frames=_seen(request, set(kept)))


def nearby(times: Sequence[float], others: Sequence[float], count: int) -> tuple[int, ...]:
    """So many of some moments: half of them nearest to other moments, and half evenly spaced among the rest."""
    if count >= len(times):
        return tuple(range(len(times)))
    distance = np.abs(np.asarray(times)[:, None] - np.asarray(others)[None]).min(axis=1)
    near = np.argsort(distance, kind="stable")[: count // 2].tolist()
    rest = sorted(set(range(len(times))).difference(near))
    return tuple(sorted([*near, *(rest[i] for i in spread(len(rest), count - len(near)))]))


def _order(request: Request) -> list[tuple[int, int]]:
    """Group and place in it of every frame, in the order shown."""
    return [(unit.group, member) for unit in request.units for member in unit.members]


def _seen(request: Request, kept: set[int]) -> tuple[int, ...] | None:
    """What the text may look at, when only some frames of the last group are kept."""
    if request.visible_frames is None:
        return None
    last = len(request.groups) - 1
    left = [place for place, (group, member) in enumerate(_order(request)) if group != last or member in kept]
    return tuple(new for new, place in enumerate(left) if place in set(request.visible_frames))


def _texts(request: Request, kept: set[int]) -> tuple[str, ...]:
    """What stands before each frame and after the last, when only some frames of the last group are kept."""
    last, texts, pending = len(request.groups) - 1, list[str](), list[str]()
    for (group, member), text in zip(_order(request), request.between[:-1], strict=True):
        pending.append(text)
        if group != last or member in kept:
            texts.append("\n".join(filter(None, pending)))
            pending = []
    return (*texts, "\n".join(filter(None, [*pending, request.between[-1]])))


# Requests of any length.
#
# Frames that do not fit into the model's context are shown in chunks: consecutive frames, each chunk a request of its
# own, all in one call. What the chunks answer becomes one posterior, and their attention one map of all frames.
#
# A chunk says something about the question only as far as its answer differs from the answer without frames: its gain
# is 1 - exp(-KL) of the one against the other. The posterior is the mean of those of the chunks, and attention to a
# frame counts, by this gain. Adding up log-odds is as often right about what one chunk shows, but it is sure of wrong
# answers about the whole video, such as a count of which each chunk shows a part (docs/asking.md). No chunk shows
# the whole, so a session never takes such an overview for the last word, and goes on to a focused pass.
#
# A request with frames of several sizes, such as a focused pass, is not divided, because its frames answer the question
# together. Of its last group, which is the context, only as many frames are shown as fit, half of them nearest to the
# other frames and half evenly spaced.

MARKER = 32
"""More tokens than a frame has in addition to its pixels: its time, and what encloses it."""
TURN = 64
"""More tokens than a turn has in addition to its text."""
LEAST = 1e-4
"""Probabilities below this count as this where they are compared with; gains whose sum is below are none."""


def check_chunk(frames: int | None) -> None:
    """Refuse a number of frames that makes no sense."""
    if frames is not None and (isinstance(frames, bool) or not isinstance(frames, int) or frames < 1):
        raise UsageError(f"a window needs a whole number of at least 1 frame, got {frames!r}")


def chunked(model: Model, frames: int | None = None) -> Model:
    """The model, with chunks of at most that many frames; itself if nothing limits what it reads at once."""
    able = model.capabilities
    if (
        isinstance(model, ChunkedModel)
        or not able.loaded
        or not any((frames, able.context_frames, able.context_tokens))
    ):
        return model
    return ChunkedModel(model, frames=frames)


@dataclass(frozen=True)
class _Plan:
    """A request as it is asked."""

    parts: tuple[Request, ...]
    """The chunks that hold a frame the text may look at; or the request itself."""
    places: tuple[range, ...]
    """The frames of each part, by their places in the request."""
    count: int = 1
    """How many chunks there are."""
    text: Request | None = None
    """The same without frames, if several parts have to be combined."""
    notes: tuple[str, ...] = ()

    @property
    def requests(self) -> list[Request]:
        """All that is asked."""
        return [*self.parts, *([self.text] if self.text else [])]


class ChunkedModel(ModelWrapper):
    """A model with requests of any length."""

    def __init__(self, model: Model, *, frames: int | None = None) -> None:
        """Wrap a model.

        Args:
            model: who is asked. What it reads at once is limited by its `context_tokens` and `context_frames`.
            frames: the most frames of a request, where that is less.
        """
        check_chunk(frames)
        super().__init__(model)
        able = model.capabilities
        self._frames = min([each for each in (frames, able.context_frames) if each], default=None)
        self._tokens = able.context_tokens

    @property
    def capabilities(self) -> Capabilities:
        """Those of the model behind it, without limits to what it reads."""
        return replace(self._model.capabilities, context_tokens=None, context_frames=None)

    def run(self, requests: Sequence[Request]) -> list[Response]:
        """A response to each request, in order; all chunks of all requests are asked in one call.

        Of the texts of its chunks a request gets the likeliest ones.
        """
        plans = [self._plan(request) for request in requests]
        responses = iter(self._model.run([part for plan in plans for part in plan.requests]))
        return [self._response(request, plan, responses) for request, plan in zip(requests, plans, strict=True)]

    def _response(self, request: Request, plan: _Plan, responses: Iterator[Response]) -> Response:
        mine = islice(responses, len(plan.requests))
        if isinstance(request.task, SamplingParams):
            return _likeliest(plan, completions(mine), request.task.samples)
        return _posterior(request, plan, posteriors(mine))

    def cost(self, request: Request) -> Cost:
        """What all chunks of the request would cost."""
        return sum((self._model.cost(part) for part in self._plan(request).requests), Cost())

    def _plan(self, request: Request) -> _Plan:
        """How a request is asked."""
        everything = range(sum(len(group.frames) for group in request.groups))
        if self._fits(request):
            return _Plan((request,), (everything,))
        if len(request.groups) > 1:
            return self._trimmed(request)
        cuts = self._cuts(request)
        seen = set(everything if request.visible_frames is None else request.visible_frames)
        shown = [cut for cut in cuts if seen.intersection(cut)] or cuts[:1]
        note = f"the frames were shown in {len(cuts)} windows of at most {max(map(len, cuts))}"
        text = without_frames(request) if isinstance(request.task, Choose) and len(shown) > 1 else None
        parts = tuple(chunk_of(request, cut) for cut in shown)
        return _Plan(parts, tuple(shown), len(cuts), text, (note,) if len(shown) > 1 else ())

    def _cuts(self, request: Request) -> list[range]:
        """As few chunks of about equal length as fit."""
        frames, step = len(request.frames), request.groups[0].view.step
        units, number = math.ceil(frames / step), max(2, self._least(request))
        while True:
            edges = [step * round(units * i / number) for i in range(number + 1)]
            cuts = [range(start, min(end, frames)) for start, end in pairwise(edges) if start < end]
            if number >= units or self._fits(chunk_of(request, max(cuts, key=len))):
                return cuts
            number += 1

    def _least(self, request: Request) -> int:
        """A number of chunks below which they cannot fit."""
        by_frames = len(request.frames) / (self._frames or math.inf)
        by_tokens = self._length(request) / self._tokens if self._tokens else 0.0
        return math.ceil(max(by_frames, by_tokens))

    def _trimmed(self, request: Request) -> _Plan:
        """The request with as much of its context as fits; without any, if the other frames alone are too many."""
        *others, context = request.groups
        least, most = 0, len(context.frames)
        while least < most:  # the most frames of the context with which it fits
            middle = (least + most + 1) // 2
            least, most = (middle, most) if self._fits(with_context(request, middle)) else (least, middle - 1)
        trimmed = with_context(request, least)
        kept = sum(len(group.frames) for group in others)
        note = (
            f"only {least} of {len(context.frames)} small frames were shown next to the {kept} kept ones, because the "
            "model cannot read more at once"
        )
        if least == 0 and not self._fits(trimmed):
            plan = self._plan(trimmed)
            return replace(plan, notes=(note, *plan.notes))
        return _Plan((trimmed,), (range(len(request.units)),), notes=(note,))

    def _fits(self, request: Request) -> bool:
        if self._frames is not None and sum(len(group.frames) for group in request.groups) > self._frames:
            return False
        if self._tokens is None or self._at_most(request) <= self._tokens:
            return True
        return self._length(request) <= self._tokens

    def _length(self, request: Request) -> int:
        """The tokens of a request, those of all its frames included."""
        return self._model.cost(replace(request.prompt_only, visible_frames=None, attention=False)).tokens

    def _at_most(self, request: Request) -> float:
        """More tokens than a request has, found quickly; infinity if that is not known."""
        multiple = self._model.capabilities.frame_multiple
        if multiple == 1:
            return math.inf
        area = multiple**2
        text = len(request.prompt.encode()) + sum(len(each.encode()) + 1 for each in request.between) + TURN
        sizes = [group.size(multiple) for group in request.groups]
        units = [len(group.frames) for group in request.groups]
        return text + sum(
            count * (width * height // area + MARKER) for (width, height), count in zip(sizes, units, strict=True)
        )


def combined(chunks: Sequence[Posterior], text: Posterior) -> tuple[tuple[float, ...], list[float]]:
    """Log-probabilities of the labels, and each chunk's gain, from chunks and the answer without frames."""
    gains = [_gain(chunk, text) for chunk in chunks]
    weights = gains if sum(gains) > LEAST else [1.0] * len(gains)
    values = [
        sum(weight * math.exp(each) for weight, each in zip(weights, column, strict=True)) / sum(weights)
        for column in zip(*(chunk.logprobs for chunk in chunks), strict=True)
    ]
    total = math.fsum(values)
    return tuple(math.log(value / total) if value > 0 else -math.inf for value in values), gains


def _gain(chunk: Posterior, text: Posterior) -> float:
    """How much a chunk says: 1 - exp(-KL) of its answer against the answer without frames."""
    pairs = zip(chunk.logprobs, text.logprobs, strict=True)
    divergence = sum(math.exp(mine) * (mine - max(other, math.log(LEAST))) for mine, other in pairs if mine > -60.0)
    return -math.expm1(-max(0.0, divergence))


def _posterior(request: Request, plan: _Plan, answers: Sequence[Posterior]) -> Posterior:
    """One posterior from those of the chunks."""
    if plan.text is None:
        only = answers[0]
        heads = None if only.heads is None else _spread_out(request, plan, [only.heads])
        return replace(only, notes=(*only.notes, *plan.notes), heads=heads, windows=plan.count)
    *chunks, text = answers
    logprobs, gains = combined(chunks, text)
    looks = [gain * chunk.heads for chunk, gain in zip(chunks, gains, strict=True) if chunk.heads is not None]
    return replace(
        chunks[0],
        logprobs=logprobs,
        cost=sum((answer.cost for answer in answers), Cost()),
        mass=min(chunk.mass for chunk in chunks),
        notes=tuple(dict.fromkeys((*(note for chunk in chunks for note in chunk.notes), *plan.notes))),
        heads=_spread_out(request, plan, looks) if len(looks) == len(chunks) else None,
        windows=plan.count,
    )


def _spread_out(request: Request, plan: _Plan, chunks: Sequence[Heads]) -> Heads:
    """Attention to every frame of the request; to frames of chunks that were not asked it is 0."""
    heads = np.zeros((len(chunks[0]), sum(len(group.frames) for group in request.groups)))
    for places, some in zip(plan.places, chunks, strict=True):
        heads[:, places.start : places.stop] = some
    return heads


def _likeliest(plan: _Plan, chunks: Sequence[Completions], samples: int) -> Completions:
    """The likeliest texts of all chunks; the first has the costs of those that were left out.

    What a chunk shows counts before what others do not show, since most chunks do not show what is asked about.
    """
    if len(chunks) == 1:
        first, *more = chunks[0]
        return (replace(first, notes=(*first.notes, *plan.notes)), *more)
    texts = [replace(text, windows=plan.count) for some in chunks for text in some]
    texts.sort(key=lambda text: (kind_of(text.text) == "not said", -(text.logprob or 0.0) / max(1, text.tokens)))
    kept = texts[:samples]
    rest = sum((text.cost for text in texts[samples:]), Cost())
    return (replace(kept[0], cost=kept[0].cost + rest, notes=(*kept[0].notes, *plan.notes)), *kept[1:])
