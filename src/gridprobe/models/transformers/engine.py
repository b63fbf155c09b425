"""Auto: scores requests with any vision-language model of transformers that `prompt.FAMILY` knows.

A frame's vision features are computed once and used by every request that shows it at this size, where the model takes
features; otherwise with each pass that reads the frame. Sequences by themselves are padded on the left and run in
batches. Frames that more questions will be asked about are read once, into a cache of transformers (`KeptPrefix`); each
question, with close-ups or without, goes on from a copy of it. Nothing here knows a family.
"""

import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor
from torch.nn.functional import pad

from gridprobe._util import check_cancelled
from gridprobe.errors import ModelError, UsageError
from gridprobe.models.base import Capabilities, Cost, CostModel, Request, Unit, require_single
from gridprobe.models.local.base import BatchResult, LocalModel
from gridprobe.models.local.generate import MIN_MASS, Step
from gridprobe.models.local.kv_cache import CAUTION, SHORTEST_PART, Cached, most_scores
from gridprobe.models.local.layout import Batch, Layout, PreparedRequest, with_texts
from gridprobe.models.local.loading import LoadOptions, Opened, opened, read, read_config
from gridprobe.models.qwen3vl.blocks import resize
from gridprobe.models.transformers.attention import Watch, layers_of, make_watchable, watched_layers, watching
from gridprobe.models.transformers.pricing import (
    LanguagePrice,
    PicturePrice,
    Tower,
    accepted,
    cache_bytes,
    hollow_tower,
    language_price,
    price,
    price_text,
    text_config,
    token_bytes,
)
from gridprobe.models.transformers.prompt import (
    FAMILY,
    Composer,
    Pictures,
    Size,
    learn,
    read_pictures,
    time_text,
)
from gridprobe.video.frames import Pixels

PATCHES_PER_TOKEN = 4
"""Patches of the vision tower for each visual token, roughly; limits how many pictures are encoded at once."""
LEAST_ROW = 512
"""Texts of that many tokens together share a row after any prefix; after a long one, half as many tokens as it has.
After a very long one they are fewer, because the mask of a row has an entry for every pair of tokens."""
Shown = Sequence[tuple[PreparedRequest, int]]
"""Pictures: requests, and the numbers of their units."""
TYPES = frozenset({"mm_token_type_ids", "token_type_ids"})
"""Names under which models ask which tokens are visual."""


@dataclass(frozen=True, eq=False)
class KeptPrefix:
    """Frames that were read, in a cache of transformers; a `Store` keeps it as it keeps tensors."""

    cache: Any
    tokens: int
    ahead: int | None
    """How far positions are ahead of the number of tokens, for models that count rows and columns of pictures."""
    homes: tuple[torch.device, ...]
    """Where each layer's part belongs: a model may be spread over devices."""

    @classmethod
    def of(cls, cache: Any, tokens: int, ahead: Tensor | None) -> "KeptPrefix":
        """A cache that was just filled."""
        homes = tuple(next(each.device for each in _tensors(layer)) for layer in cache.layers)
        return cls(cache, tokens, None if ahead is None else int(ahead[0, 0]), homes)

    def copies(self, count: int) -> Any:
        """A cache for that many texts, each of which goes on by itself."""
        cache = copy(self.cache)
        cache.layers = [deepcopy(layer) if _grows_in_place(layer) else copy(layer) for layer in cache.layers]
        if count > 1:
            cache.batch_repeat_interleave(count)
        return cache

    @property
    def nbytes(self) -> int:
        """Its bytes on the device."""
        return sum(tensor.nbytes for layer in self.cache.layers for tensor in _tensors(layer))

    def to(self, device: torch.device, non_blocking: bool = False) -> "KeptPrefix":
        """The same in the host's memory, or else on the model's devices."""
        places = [device if device.type == "cpu" else home for home in self.homes]
        cache = copy(self.cache)
        cache.layers = [copy(layer) for layer in cache.layers]
        for layer, place in zip(cache.layers, places, strict=True):
            for name, value in vars(layer).items():
                setattr(layer, name, _moved(value, place))
        return replace(self, cache=cache)

    def cpu(self) -> "KeptPrefix":
        """The same in the host's memory."""
        return self.to(torch.device("cpu"))

    def detach(self) -> "KeptPrefix":
        """The same: nothing is trained here."""
        return self


def _grows_in_place(layer: Any) -> bool:
    """Whether a layer of a cache writes into its tensors, as linear attention does; others make new ones."""
    return hasattr(layer, "recurrent_states")


def _tensors(layer: Any) -> Iterator[Tensor]:
    """The tensors of a layer of a cache: keys and values, or the states of linear attention."""
    for value in vars(layer).values():
        values = value.values() if isinstance(value, dict) else [value]
        yield from (each for each in values if isinstance(each, Tensor))


def _moved(value: Any, device: torch.device) -> Any:
    """An attribute of a layer of a cache on a device."""
    if isinstance(value, dict):
        return {name: _moved(each, device) for name, each in value.items()}
    if isinstance(value, torch.device):
        return device
    return value.to(device, non_blocking=True) if isinstance(value, Tensor) else value


class Auto(LocalModel):
    """A model that runs through transformers."""

    copies_prefix = True

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        pictures: Pictures,
        composer: Composer,
        prices: tuple[LanguagePrice, PicturePrice],
        identity: str,
        min_letter_mass: float = MIN_MASS,
    ) -> None:
        size = model.dtype.itemsize
        super().__init__(
            model,
            tokenizer,
            identity=identity,
            min_letter_mass=min_letter_mass,
            context=getattr(text_config(model.config), "max_position_embeddings", None),
            token_bytes=token_bytes(model.config, size),
            cache_bytes=cache_bytes(model.config, size),
        )
        self._pictures = pictures
        self._composer = composer
        self._language, self._price_of = prices
        self._filler = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
        self._tower = Tower(model, pictures, device=model.device, dtype=model.dtype)
        self._names = accepted(model.forward) | accepted(model.model.forward)
        self._reuses = "mm_encoder_outputs" in self._names  # from transformers 5.18 on
        self._text = text_config(model.config)
        self._linear, self._full = _mixes(model.config), set(layers_of(self._text)) == {"full_attention"}
        self._watchable = make_watchable(model.get_decoder())
        self._watched = watched_layers(self._text)
        self.capabilities = replace(
            _capabilities(model.config, pictures, weights=self._memory.weights, pass_bytes=self._memory.pass_bytes),
            attention_map=self._watchable,
            context_tokens=self._context,
        )

    def _layout(self, request: Request) -> Layout:
        return self._composer.layout(request, picture_sizes(request, self._pictures.multiple))

    def _prompt_cost(self, job: PreparedRequest) -> Cost:
        return price(self._language, job, self._price_of)

    def _text_cost(self, job: PreparedRequest, tokens: int) -> Cost:
        return price_text(self._language, tokens, known=len(job.columns) + job.rest)

    def _prepared(self, place: int, request: Request) -> PreparedRequest:
        job = super()._prepared(place, request)
        if self._linear and len(job.columns) < job.layout.prefix:
            raise UsageError("linear attention mixes what it has read, so this model cannot look at some frames only")
        if request.attention and not self._watchable:
            raise UsageError("this model computes attention in a way that cannot be watched; use probes=fresh")
        return job

    def _shares(self, job: PreparedRequest, often: int) -> bool:
        return job.layout.prefix > 0 and super()._shares(job, often)

    def _scores(self, batch: Batch) -> BatchResult:
        scores = BatchResult()
        if alone := [job for job in batch if not job.shared]:
            inputs = self._inputs([(job, len(job.layout)) for job in alone], scores.flops)
            logits = self._model(**inputs, use_cache=False, logits_to_keep=1).logits[:, -1]
            scores.logits.update({job.place: row for job, row in zip(alone, logits.float(), strict=True)})
        for jobs in self._rows([job for job in batch if job.shared]):
            watch = self._watch(jobs) if jobs[0].request.attention else None
            if self._full and watch is None and len(jobs) > 1:
                logits = self._side_by_side(jobs, scores.flops)
            else:
                logits, *_ = self._continue(jobs, scores.flops, watch)
            scores.logits.update({job.place: row for job, row in zip(jobs, logits, strict=True)})
            if watch is not None:
                scores.heads.update(
                    {job.place: heads for job, heads in zip(jobs, watch.heads.cpu().numpy(), strict=True)}
                )
        for job in batch:
            scores.flops[job.place] += int(self._language.head)
        return scores

    def _rows(self, shared: Batch) -> list[list[PreparedRequest]]:
        """Jobs that follow one prefix in one pass; with linear attention, or pictures behind it, each by itself."""
        groups: dict[Hashable, list[PreparedRequest]] = {}
        for job in shared:
            alone = job.place if self._linear or job.request.close_ups else -1
            groups.setdefault((job.prefix, job.request.attention, alone), []).append(job)
        rows = []
        for jobs in groups.values():
            known, tokens = jobs[0].layout.prefix, 0
            most = min(max(LEAST_ROW, known // 2), most_scores(self._memory.device) // (2 * known))
            for job in jobs:
                if job is jobs[0] or tokens + job.rest > most:
                    rows.append(list[PreparedRequest]())
                    tokens = 0
                rows[-1].append(job)
                tokens += job.rest
        return rows

    def _watch(self, jobs: Batch) -> Watch:
        device, layout = self._memory.device, jobs[0].layout
        lengths = torch.tensor([job.rest for job in jobs], device=device)
        return Watch(torch.from_numpy(layout.owners).to(device), len(layout.sizes), lengths, self._watched)

    def _prefix(self, job: PreparedRequest, flops: Counter[int]) -> "KeptPrefix":
        """The job's prefix: kept, or read now."""
        kept: KeptPrefix | None = self.kept.get(job.prefix, self._memory.device)
        if kept is None:
            cache = transformers.DynamicCache(config=self._text)
            inputs = self._inputs([(job, job.layout.prefix)], flops)
            self._model(**inputs, past_key_values=cache, use_cache=True, logits_to_keep=1)
            kept = KeptPrefix.of(cache, job.layout.prefix, getattr(self._model.model, "rope_deltas", None))
            self.kept.put(job.prefix, kept)
        return kept

    def _side_by_side(self, jobs: Batch, flops: Counter[int]) -> Tensor:
        """Logits after texts that follow one prefix, in one row, each as if it were alone; the prefix is not copied."""
        prefix, device = self._prefix(jobs[0], flops), self._memory.device
        ends = np.cumsum([job.rest for job in jobs])
        places = np.concatenate([np.arange(job.rest) for job in jobs])
        ids = np.concatenate([job.layout.ids[prefix.tokens :] for job in jobs])
        seen = torch.zeros((len(ids), prefix.tokens + len(ids)), dtype=torch.bool)
        for job, end in zip(jobs, ends, strict=True):
            own = slice(end - job.rest, end)
            seen[own, torch.from_numpy(job.columns)] = True
            seen[own, prefix.tokens + end - job.rest : prefix.tokens + end] = torch.ones(job.rest, job.rest).tril() > 0
            flops[job.place] += self._layers_after(job)
        positions = torch.from_numpy(places)[None].to(device) + prefix.tokens + (prefix.ahead or 0)
        more = self._more(torch.from_numpy(ids)[None].to(device), seen[None, None].to(device))
        more["position_ids"] = positions if prefix.ahead is None else positions.expand(3, 1, -1)
        check_cancelled("model")
        keep = torch.from_numpy(ends - 1).to(device)
        out = self._model(**more, past_key_values=prefix.copies(1), use_cache=True, logits_to_keep=keep)
        logits: Tensor = out.logits[0]
        return (logits if len(logits) == len(jobs) else logits[keep]).float()

    def _layers_after(self, job: PreparedRequest) -> int:
        """Operations of reading what follows a job's prefix, whose keys and values are there."""
        seen = len(job.columns)
        return int(self._language.layers(seen + job.rest, known=seen))

    def _continue(
        self, jobs: Batch, flops: Counter[int], watch: Watch | None = None
    ) -> tuple[Tensor, Any, Tensor, list[int | None]]:
        """Read what follows one prefix, each after a copy of it, padded on the right, where causal attention sees none.

        Returns the logits after each, the cache, which tokens in it are no padding, and how far positions are ahead.
        """
        prefix, device = self._prefix(jobs[0], flops), self._memory.device
        cache, known, length = prefix.copies(len(jobs)), prefix.tokens, max(job.rest for job in jobs)
        ids = torch.full((len(jobs), length), self._filler, dtype=torch.long)
        mask = torch.zeros((len(jobs), known + length), dtype=torch.long)
        for row, job in enumerate(jobs):
            ids[row, : job.rest] = torch.from_numpy(job.layout.ids[known:])
            mask[row, torch.from_numpy(job.columns)] = 1
            mask[row, known : known + job.rest] = 1
            watched = self._language.watched * job.rest * (len(job.columns) + job.rest) if watch else 0
            flops[job.place] += self._layers_after(job) + int(watched)
        ids, mask = ids.to(device), mask.to(device)
        positions, ahead = self._positions(jobs[0], ids, prefix)
        with watching(watch):
            logits = self._read(jobs, ids, mask, positions, cache=cache, watch=watch, flops=flops)
        return logits, cache, mask, [ahead] * len(jobs)

    def _positions(self, job: PreparedRequest, ids: Tensor, prefix: "KeptPrefix") -> tuple[Tensor | None, int | None]:
        """Positions of tokens after a prefix, and how far the last is ahead; None for models that count tokens."""
        if prefix.ahead is None:
            return None, None
        start, model = prefix.tokens + prefix.ahead, self._model.model
        if not job.behind:
            return (torch.arange(ids.shape[1], device=ids.device) + start).expand(3, len(ids), -1), prefix.ahead
        inputs = {"input_ids": ids, **self._types(ids), **self._extras([(job, number) for number in job.behind])}
        names = accepted(model.get_rope_index)
        positions, ahead = model.get_rope_index(
            **{name: self._placed(value) for name, value in inputs.items() if name in names}
        )
        return positions + start, prefix.ahead + int(ahead[0, 0])

    def _read(
        self,
        jobs: Batch,
        ids: Tensor,
        mask: Tensor,
        positions: Tensor | None,
        *,
        cache: Any,
        watch: Watch | None,
        flops: Counter[int],
    ) -> Tensor:
        """Logits at the last token of each row.

        What is long is read in parts, so that memory does not grow with its square.
        """
        rows, known, last = len(ids), jobs[0].layout.prefix, [job.rest - 1 for job in jobs]
        step = max(SHORTEST_PART, most_scores(ids.device) // (rows * mask.shape[1]))
        logits: dict[int, Tensor] = {}
        for start, end, units in self._parts(jobs[0], ids.shape[1], step):
            check_cancelled("model")
            here = sorted({place - start for place in last if start <= place < end})
            if watch is not None:
                watch.start = start
            more = self._more(ids[:, start:end], mask[:, : known + end])
            if positions is not None:
                more["position_ids"] = positions[..., start:end]
            if units:
                types = {name: pad(each, (known + start, 0)) for name, each in self._types(ids[:, start:end]).items()}
                more |= self._arguments(types | self._vision_inputs([(jobs[0], number) for number in units], flops))
            keep = torch.tensor(here, device=ids.device) if here else 1
            out = self._model(**more, past_key_values=cache, use_cache=True, logits_to_keep=keep).logits
            if out.shape[1] != len(here):  # some models give the logits after every token
                out = out[:, here]
            logits |= {
                row: out[row, here.index(place - start)] for row, place in enumerate(last) if start <= place < end
            }
        return torch.stack([logits[row] for row in range(rows)]).float()

    def _parts(self, job: PreparedRequest, length: int, step: int) -> Iterator[tuple[int, int, range]]:
        """Parts of about `step` tokens of what follows a prefix: start, end and units. A picture is not cut."""
        sizes = [job.layout.sizes[number] for number in job.behind]
        counts = np.cumsum([self._pictures.placeholder(size).tokens for size in sizes], dtype=np.int64)
        ends = (np.flatnonzero(job.layout.visual[job.layout.prefix :])[counts - 1] + 1).tolist()
        stops = [*ends, *range(step + (ends[-1] if ends else 0), length, step), length]
        start = 0
        for stop, following in zip(stops, [*stops[1:], sys.maxsize], strict=True):
            if following - start > step:
                yield start, stop, job.behind[bisect_right(ends, start) : bisect_right(ends, stop)]
                start = stop

    def _more(self, ids: Tensor, mask: Tensor) -> dict[str, Any]:
        """What the model takes for text after what is in its cache."""
        return {"input_ids": ids, "attention_mask": mask, **dict.fromkeys(TYPES & self._names, torch.zeros_like(ids))}

    def _begin_texts(self, batch: Batch, flops: Counter[int], *, texts: int, steps: int) -> tuple[Tensor, Step]:
        for job in batch:
            flops[job.place] += int(self._language.head)
        alone = [job for job in batch if not job.shared]
        groups = [*([alone] if alone else []), *self._rows([job for job in batch if job.shared])]
        logits: dict[int, Tensor] = {}
        caches: list[Cached] = []
        for jobs in groups:
            rows, cached = self._cached(jobs, flops)
            cached.copies([texts] * len(jobs))
            caches.append(cached)
            logits |= {job.place: row for job, row in zip(jobs, rows, strict=True)}
        where = {job.place: (group, row) for group, jobs in enumerate(groups) for row, job in enumerate(jobs)}
        places = [where[job.place] for job in batch]

        def step(tokens: Sequence[int], live: Sequence[int]) -> Tensor:
            """Go on with some of the texts; text n is the one of request n // texts."""
            states: dict[int, Tensor] = {}
            for group, cached in enumerate(caches):
                mine = [number for number in live if places[number // texts][0] == group]
                if mine:
                    own = [places[number // texts][1] * texts + number % texts for number in mine]
                    order = sorted(range(len(mine)), key=own.__getitem__)
                    rows = cached.step([tokens[live.index(mine[i])] for i in order], [own[i] for i in order])
                    states |= {mine[i]: row for i, row in zip(order, rows, strict=True)}
            return torch.stack([states[number] for number in live])

        return torch.stack([logits[job.place] for job in batch]), step

    def _cached(self, jobs: Batch, flops: Counter[int]) -> tuple[Tensor, Cached]:
        """Read requests that share a prefix, or none: the logits after each, and their cache, to go on with."""
        if jobs[0].shared:
            logits, cache, mask, ahead = self._continue(jobs, flops)
        else:
            inputs = self._inputs([(job, len(job.layout)) for job in jobs], flops)
            out = self._model(**inputs, use_cache=True, logits_to_keep=1)
            cache, mask, logits = out.past_key_values, inputs["attention_mask"], out.logits[:, -1].float()
            deltas = getattr(self._model.model, "rope_deltas", None)
            ahead = [None] * len(jobs) if deltas is None else deltas[:, 0].tolist()

        def forward(ids: Tensor, mask: Tensor, numbers: Tensor, rows: Sequence[int]) -> Tensor:
            more = self._more(ids, mask)
            if ahead[0] is not None:
                shifts = torch.tensor([ahead[row] for row in rows], device=ids.device)[:, None]
                more["position_ids"] = (numbers + shifts).expand(3, -1, -1)
            logits: Tensor = self._model(**more, past_key_values=cache, use_cache=True).logits
            return logits

        return logits, Cached(forward, cache, mask)

    def _inputs(self, parts: Sequence[tuple[PreparedRequest, int]], flops: Counter[int]) -> dict[str, Any]:
        """What the model takes for the first tokens of each job; `flops` counts what is computed."""
        length = max(tokens for _, tokens in parts)
        ids = torch.full((len(parts), length), self._filler, dtype=torch.long)
        mask = torch.zeros((len(parts), length), dtype=torch.long)
        for row, (job, tokens) in enumerate(parts):
            flops[job.place] += int(self._language.layers(tokens))
            ids[row, length - tokens :] = torch.from_numpy(job.layout.ids[:tokens])
            mask[row, length - tokens :] = 1
        types = {name: each * mask for name, each in self._types(ids).items()}
        inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": mask, **types}
        shown = [(job, number) for job, tokens in parts for number in job.units_of(tokens)]
        inputs |= self._vision_inputs(shown, flops)
        if hasattr(self._model.model, "rope_deltas"):
            self._model.model.rope_deltas = None  # left over from the call before, it would shift positions
        return self._arguments(inputs)

    def _arguments(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Those inputs that this model takes, on its device."""
        return {name: self._placed(value) for name, value in inputs.items() if name in self._names}

    def _placed(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return value.to(self._model.device, self._model.dtype if value.is_floating_point() else None)

    def _types(self, ids: Tensor) -> dict[str, Tensor]:
        """Which tokens are visual, for models that ask; both names are in use."""
        if not TYPES & self._names:
            return {}
        return dict.fromkeys(TYPES, torch.tensor(self._pictures.processor.create_mm_token_type_ids(ids.tolist())))

    def _vision_inputs(self, shown: Shown, flops: Counter[int]) -> dict[str, Any]:
        """Some pictures: features and what belongs to them, or pixels."""
        if not shown:
            return {}
        if not self._reuses:
            for job, number in shown:
                flops[job.place] += int(self._price_of([job.layout.sizes[number]]))
            return self._pictures.joined([self._pictures.inputs(_picture(job, number)) for job, number in shown])
        features = self._features(shown, flops)
        outputs = self._tower.outputs([features[job.units[number]] for job, number in shown])
        return {**self._extras(shown), "mm_encoder_outputs": {"image": outputs}}

    def _extras(self, shown: Shown) -> dict[str, Tensor]:
        """What the language model must know about some pictures besides their features."""
        return self._pictures.joined(
            [self._pictures.placeholder(job.layout.sizes[number]).extras for job, number in shown]
        )

    def _features(self, shown: Shown, flops: Counter[int]) -> dict[Hashable, Tensor]:
        """Features of all pictures shown: kept ones, and the others computed now."""
        features: dict[Hashable, Tensor] = {}
        missing: dict[Size, dict[Hashable, tuple[PreparedRequest, int]]] = {}
        for job, number in shown:
            key, size = job.units[number], job.layout.sizes[number]
            if key in features or key in missing.get(size, {}):
                continue
            kept = self.kept.get(key, self._memory.device)
            if kept is not None:
                features[key] = kept
                continue
            missing.setdefault(size, {})[key] = job, number
            flops[job.place] += int(self._price_of([size]))
        for size, new in missing.items():
            step = max(1, self._memory.patches // (PATCHES_PER_TOKEN * self._pictures.placeholder(size).tokens))
            keys = list(new)
            for start in range(0, len(keys), step):
                some = keys[start : start + step]
                tensors = self._tower.encode([self._pictures.inputs(_picture(*new[key])) for key in some])
                for key, each in zip(some, tensors, strict=True):
                    features[key] = each
                    self.kept.put(key, each)
        return features


def picture_sizes(request: Request, multiple: int) -> list[Size]:
    """Width and height of the picture of every unit."""
    require_single(request)
    fitted = [group.size(multiple) for group in request.groups]
    return [fitted[unit.group] for unit in request.units]


def _picture(job: PreparedRequest, number: int) -> Pixels:
    """The picture of a unit: height × width × 3."""
    unit: Unit = job.request.units[number]
    (picture,) = job.request.groups[unit.group].pictures([unit])
    frame = torch.from_numpy(np.ascontiguousarray(picture))
    shown = resize(frame.permute(2, 0, 1)[None], job.layout.sizes[number])[0]
    return shown.permute(1, 2, 0).contiguous().numpy()


# Checkpoints of other families: from a folder on disk to an engine.


def load_engine(
    name: str,
    folder: Path,
    *,
    min_letter_mass: float = MIN_MASS,
    compile: bool = False,
    time: Callable[[Sequence[float]], str] = time_text,
    **options: Any,
) -> Auto:
    """Load a checkpoint.

    Args:
        name: what it is called in its identity.
        folder: the checkpoint.
        min_letter_mass: if the option letters get less than this share of the probability, it is an error.
        compile: refused: only the engine for Qwen3-VL can be compiled.
        time: what stands before a frame shown at a time.
        **options: see `gridprobe.models.local.loading.LoadOptions`.
    """
    if compile:
        raise UsageError("only Qwen3-VL models can be compiled; leave out compile=True")
    checkpoint = opened(name, folder, chosen := LoadOptions.of(**options))
    return around(name, folder, checkpoint, chosen, min_letter_mass=min_letter_mass, time=time)


def around(
    name: str,
    folder: Path,
    checkpoint: Opened,
    options: LoadOptions,
    *,
    min_letter_mass: float,
    time: Callable[[Sequence[float]], str],
) -> Auto:
    """The engine around a checkpoint that is open; arguments as for `load_engine`."""
    config = checkpoint.model.config
    family = FAMILY[config.model_type]
    pictures = read_pictures(name, folder, config=config, tokenizer=checkpoint.tokenizer, family=family)
    return Auto(
        checkpoint.model,
        checkpoint.tokenizer,
        pictures=pictures,
        composer=compose(name, checkpoint.tokenizer, pictures, time=time),
        prices=(language_price(config), PicturePrice(_countable_tower(checkpoint.model, pictures, options), pictures)),
        identity=f"{checkpoint.identity}:auto:{pictures.backend}",
        min_letter_mass=min_letter_mass,
    )


def _countable_tower(model: Any, pictures: Pictures, options: LoadOptions) -> Tower:
    """A tower whose operations torch can count: the model's own, unless it is quantized or has other kernels."""
    if options.quantization is not None or options.attn_implementation not in ("sdpa", "eager"):
        return hollow_tower(model.config, pictures)
    return Tower(model, pictures, device=model.device, dtype=model.dtype)


def compose(
    name: str, tokenizer: Any, pictures: Pictures, *, time: Callable[[Sequence[float]], str] = time_text
) -> Composer:
    """Learn the checkpoint's turn."""
    template = pictures.processor.chat_template or tokenizer.chat_template
    if isinstance(template, dict):
        template = template.get("default")
    if not template:
        raise ModelError(f"the checkpoint {name} has no chat template; gridprobe needs an Instruct checkpoint")

    def render(content: list[dict[str, str]]) -> str:
        turn = [{"role": "user", "content": content}]
        # templates that know no thinking ignore the last option
        options = {"tokenize": False, "add_generation_prompt": True, "enable_thinking": False}
        return str(tokenizer.apply_chat_template(turn, chat_template=template, **options))

    return Composer(tokenizer, learn(render, pictures.marker), pictures=pictures, time=time)


# What a checkpoint of another family costs, from its configuration and tokenizer, without loading its weights.

BYTES = 2
"""Bytes of a weight or an activation in bfloat16, the default on a GPU."""


def cost_model(name: str, folder: Path) -> CostModel:
    """The cost model of a checkpoint folder."""
    config = read_config(name, folder)
    tokenizer = read(name, transformers.AutoTokenizer, folder)
    pictures = read_pictures(name, folder, config=config, tokenizer=tokenizer, family=FAMILY[config.model_type])
    composer = compose(name, tokenizer, pictures)
    language = language_price(config)
    tower = PicturePrice(hollow_tower(config, pictures), pictures)

    def request_price(request: Request) -> Cost:
        layout = composer.layout(request, picture_sizes(request, pictures.multiple))
        text = partial(price_text, language, known=len(layout))
        return with_texts(price(language, PreparedRequest(0, request, layout), tower), request.task, text)

    weights = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    pass_bytes = CAUTION * token_bytes(config, BYTES) + cache_bytes(config, BYTES)
    capabilities = _capabilities(config, pictures, weights=weights, pass_bytes=pass_bytes)
    return CostModel(name, capabilities, request_price)


def _capabilities(config: Any, pictures: Pictures, *, weights: int, pass_bytes: int) -> Capabilities:
    """What a model can do, by its configuration."""
    return Capabilities(
        kv_reuse=True,
        masks_frames=not _mixes(config),
        attention_map=True,
        close_ups=True,
        generates=pictures.family.writes,
        frame_pairs=False,
        frame_multiple=pictures.multiple,
        tokens_per_image=pictures.picture_tokens,
        weight_bytes=weights,
        pass_bytes=pass_bytes,
    )


def _mixes(config: Any) -> bool:
    """Whether some layers have linear attention, which mixes what it has read."""
    return any("linear" in kind for kind in layers_of(text_config(config)))
