"""Auto: scores requests with any vision-language model of transformers that `families.py` knows.

A frame's vision features are computed once and used by every request that shows it at this size, where the model takes
features; otherwise with each request. Nothing else is kept. Sequences are padded on the left and run in batches.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
import transformers
from torch import Tensor

from gridprobe._util import report
from gridprobe.errors import ModelError, TooLarge, UsageError
from gridprobe.models.base import (
    Capabilities,
    Completions,
    Cost,
    CostModel,
    Posterior,
    Request,
    Response,
    SamplingParams,
    Unit,
    by_task,
    require_plain,
)
from gridprobe.models.local.generate import (
    MIN_MASS,
    GrowingText,
    TextGenerator,
    check_mass,
    end_tokens,
    letter_logprobs,
    letter_tokens,
    write_all,
)
from gridprobe.models.local.kv_cache import CAUTION, Cached, DeviceMemory, Store, batches, steady_attention
from gridprobe.models.local.loading import LoadOptions, opened, read
from gridprobe.models.qwen3vl.blocks import resize
from gridprobe.models.transformers.pricing import (
    LanguagePrice,
    PicturePrice,
    Tower,
    accepted,
    cache_bytes,
    hollow_tower,
    language_price,
    price,
    price_request,
    price_text,
    text_config,
    token_bytes,
)
from gridprobe.models.transformers.prompt import (
    FAMILY,
    Composer,
    Pictures,
    PromptLayout,
    Size,
    learn,
    read_pictures,
    time_text,
)
from gridprobe.video.frames import Pixels

T = TypeVar("T")

PATCHES_PER_TOKEN = 4
"""Patches of the vision tower for each visual token, roughly; limits how many pictures are encoded at once."""
TYPES = frozenset({"mm_token_type_ids", "token_type_ids"})
"""Names under which models ask which tokens are visual."""
TEXT_SHARE = 3
"""A pass that texts follow holds 1/this of the tokens of another one: the keys and values of all layers stay."""


@dataclass(frozen=True, eq=False)
class PreparedPrompt:
    """One request in the engine; `place` is its index in the call."""

    place: int
    request: Request
    layout: PromptLayout

    @cached_property
    def keys(self) -> tuple[Hashable, ...]:
        """The identity of every unit's picture: which frames, at which size."""
        frames = [group.frames.keys for group in self.request.groups]
        shown = zip(self.request.units, self.layout.sizes, strict=True)
        return tuple((tuple(frames[unit.group][i] for i in unit.members), size) for unit, size in shown)


class Auto:
    """A model that runs through transformers."""

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
        self.identity = identity
        self._model = model
        self._tokenizer = tokenizer
        self._pictures = pictures
        self._composer = composer
        self._language, self._price_of = prices
        self._min_mass = min_letter_mass
        self._letters = lru_cache(partial(letter_tokens, tokenizer))
        self._filler = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
        self._tower = Tower(model, pictures, device=model.device, dtype=model.dtype)
        self._names = accepted(model.forward) | accepted(model.model.forward)
        self._reuses = "mm_encoder_outputs" in self._names  # from transformers 5.18 on
        size = model.dtype.itemsize
        self._memory = DeviceMemory.of(
            model, token_bytes=token_bytes(model.config, size), cache_bytes=cache_bytes(model.config, size)
        )
        self.capabilities = Capabilities(
            generates=pictures.family.writes,
            frame_pairs=False,
            frame_multiple=pictures.multiple,
            tokens_per_image=pictures.picture_tokens,
            context_tokens=getattr(text_config(model.config), "max_position_embeddings", None),
            weight_bytes=self._memory.weights,
            pass_bytes=self._memory.pass_bytes,
        )
        self.kept = Store(self._memory.keep, host_limit=self._memory.keep_on_host)
        """Vision features that may be reused."""

    @cached_property
    def _scribe(self) -> TextGenerator:
        return TextGenerator(
            self._tokenizer, end_tokens(self._model, self._tokenizer), self.capabilities.context_tokens
        )

    def run(self, requests: Sequence[Request]) -> list[Response]:
        """Answer all requests in as few forward passes as memory allows; each prompt is read once for all its texts."""
        most = self._memory.most()
        return by_task(
            self,
            requests,
            lambda some: self._each(some, self._score, most=most),
            lambda some, params: self._each(some, partial(self._write, writing=params), most=most // TEXT_SHARE),
        )

    def _each(
        self, requests: Sequence[Request], work: Callable[[Sequence[PreparedPrompt]], dict[int, T]], *, most: int
    ) -> list[T]:
        """What some work gives for each request, in batches of at most that many tokens."""
        jobs = [PreparedPrompt(place, request, self._layout(request)) for place, request in enumerate(requests)]
        for job in jobs:
            self._memory.check(len(job.layout), f"{len(job.layout.sizes)} pictures")
        results: dict[int, T] = {}
        for batch in batches(jobs, room=min(most, self._memory.worthwhile)):
            results.update(self._run(batch, work))
            report("model", len(results), len(jobs))
        return [results[place] for place in range(len(jobs))]

    def cost(self, request: Request) -> Cost:
        """The cost of the request, from its exact token count."""
        layout = self._laid_out(request)
        return price_request(self._language, layout, self._price_of, request.task)

    def _laid_out(self, request: Request) -> PromptLayout:
        return self._composer.layout(request, picture_sizes(request, self._pictures.multiple))

    def _layout(self, request: Request) -> PromptLayout:
        layout = self._laid_out(request)
        if self.capabilities.context_tokens is not None and len(layout) > self.capabilities.context_tokens:
            raise TooLarge(
                f"{len(layout.sizes)} pictures and the question need {len(layout):,} tokens, but the model reads at "
                f"most {self.capabilities.context_tokens:,}; use fewer frames"
            )
        return layout

    @torch.inference_mode()
    def _run(
        self, batch: Sequence[PreparedPrompt], work: Callable[[Sequence[PreparedPrompt]], dict[int, T]]
    ) -> dict[int, T]:
        """Do some work on a batch; when memory runs out, on less at once."""
        try:
            with steady_attention(self._memory.device, tokens=max(len(job.layout) for job in batch)):
                return work(batch)
        except torch.OutOfMemoryError:
            pass  # inside this handler the error would keep tensors alive
        self.kept.clear()
        torch.cuda.empty_cache()
        if len(batch) == 1:
            raise TooLarge(
                f"out of memory on one sequence of {len(batch[0].layout):,} tokens; lower --frames or --k, or use a "
                "smaller or quantized model"
            )
        middle = len(batch) // 2
        return self._run(batch[:middle], work) | self._run(batch[middle:], work)

    def _score(self, batch: Sequence[PreparedPrompt]) -> dict[int, Posterior]:
        spent: Counter[int] = Counter()
        inputs = self._given(batch, spent)
        logits = self._model(**inputs, use_cache=False, logits_to_keep=1).logits[:, -1]
        return self._posteriors(batch, logits.float(), spent)

    def _write(self, batch: Sequence[PreparedPrompt], *, writing: SamplingParams) -> dict[int, Completions]:
        spent: Counter[int] = Counter()
        drafts = {job.place: self._scribe.drafts(job.layout.ids, writing) for job in batch}
        logits, cached = self._cached(batch, spent)
        cached.copies([writing.samples] * len(batch))
        first = logits.repeat_interleave(writing.samples, 0)
        write_all(self._scribe, [draft for some in drafts.values() for draft in some], first, cached.step)
        return {job.place: self._written(job, drafts[job.place], spent[job.place]) for job in batch}

    def _written(self, job: PreparedPrompt, drafts: Sequence[GrowingText], spent: int) -> Completions:
        prompt_length = len(job.layout)
        first, *more = (price_text(self._language, len(draft.ids), known=prompt_length) for draft in drafts)
        costs = [self._prompt_cost(job, spent) + first, *more]
        return tuple(self._scribe.written(draft, cost) for draft, cost in zip(drafts, costs, strict=True))

    def _prompt_cost(self, job: PreparedPrompt, spent: int) -> Cost:
        return replace(
            price(self._language, job.layout, self._price_of), flops_computed=self._language(len(job.layout)) + spent
        )

    def _cached(self, batch: Sequence[PreparedPrompt], spent: Counter[int]) -> tuple[Tensor, Cached]:
        """The logits after every prompt, and the prompts in a cache, to go on with."""
        inputs = self._given(batch, spent)
        out = self._model(**inputs, use_cache=True, logits_to_keep=1)
        cache, ahead = out.past_key_values, getattr(self._model.model, "rope_deltas", None)

        def forward(ids: Tensor, mask: Tensor, numbers: Tensor, rows: Sequence[int]) -> Tensor:
            more: dict[str, Any] = {"input_ids": ids, "attention_mask": mask}
            more |= dict.fromkeys(TYPES & self._names, torch.zeros_like(ids))
            if ahead is not None:
                more["position_ids"] = (numbers + ahead[list(rows)]).expand(3, -1, -1)
            logits: Tensor = self._model(**more, past_key_values=cache, use_cache=True).logits
            return logits

        return out.logits[:, -1].float(), Cached(forward, cache, inputs["attention_mask"])

    def _given(self, batch: Sequence[PreparedPrompt], spent: Counter[int]) -> dict[str, Any]:
        """What the model takes for a batch; `spent` counts the vision tower's FLOPs."""
        length = max(len(job.layout) for job in batch)
        ids = torch.full((len(batch), length), self._filler, dtype=torch.long)
        mask = torch.zeros((len(batch), length), dtype=torch.long)
        for row, job in enumerate(batch):
            ids[row, length - len(job.layout) :] = torch.from_numpy(job.layout.ids)
            mask[row, length - len(job.layout) :] = 1
        inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": mask, **self._types(ids, mask)}
        inputs |= self._seen(batch, spent)
        if hasattr(self._model.model, "rope_deltas"):
            self._model.model.rope_deltas = None  # left over from the call before, it would shift positions
        return {name: self._placed(value) for name, value in inputs.items() if name in self._names}

    def _placed(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return value.to(self._model.device, self._model.dtype if value.is_floating_point() else None)

    def _types(self, ids: Tensor, mask: Tensor) -> dict[str, Tensor]:
        """Which tokens are visual, for models that ask; both names are in use."""
        if not TYPES & self._names:
            return {}
        types = torch.tensor(self._pictures.processor.create_mm_token_type_ids(ids.tolist())) * mask
        return dict.fromkeys(TYPES, types)

    def _seen(self, batch: Sequence[PreparedPrompt], spent: Counter[int]) -> dict[str, Any]:
        """The pictures of a batch: features and what belongs to them, or pixels."""
        shown = [(job, number) for job in batch for number in range(len(job.layout.sizes))]
        if not shown:
            return {}
        if not self._reuses:
            for job in batch:
                spent[job.place] += int(self._price_of(job.layout.sizes))
            return self._pictures.joined([self._pictures.inputs(_picture(job, number)) for job, number in shown])
        features = self._features(shown, spent)
        extras = [self._pictures.placeholder(job.layout.sizes[number]).extras for job, number in shown]
        outputs = self._tower.outputs([features[job.keys[number]] for job, number in shown])
        return {**self._pictures.joined(extras), "mm_encoder_outputs": {"image": outputs}}

    def _features(self, shown: Sequence[tuple[PreparedPrompt, int]], spent: Counter[int]) -> dict[Hashable, Tensor]:
        """Features of all pictures shown: kept ones, and the others computed now."""
        features: dict[Hashable, Tensor] = {}
        missing: dict[Size, dict[Hashable, tuple[PreparedPrompt, int]]] = {}
        for job, number in shown:
            key, size = job.keys[number], job.layout.sizes[number]
            if key in features or key in missing.get(size, {}):
                continue
            kept = self.kept.get(key, self._memory.device)
            if kept is not None:
                features[key] = kept
                continue
            missing.setdefault(size, {})[key] = job, number
            spent[job.place] += int(self._price_of([size]))
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

    def _posteriors(self, batch: Sequence[PreparedPrompt], rows: Tensor, spent: Counter[int]) -> dict[int, Posterior]:
        letters = letter_logprobs(rows, [list(self._letters(job.request.labels).values()) for job in batch])
        posteriors = {}
        for job, (logprobs, mass) in zip(batch, letters, strict=True):
            check_mass(mass, job.request.labels, least=self._min_mass)
            cost = self._prompt_cost(job, spent[job.place])
            posteriors[job.place] = Posterior(job.request.labels, logprobs, cost, mass)
        return posteriors


def picture_sizes(request: Request, multiple: int) -> list[Size]:
    """Width and height of the picture of every unit."""
    require_plain(request)
    fitted = [group.size(multiple) for group in request.groups]
    return [fitted[unit.group] for unit in request.units]


def _picture(job: PreparedPrompt, number: int) -> Pixels:
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
    chosen = LoadOptions(**options)
    checkpoint = opened(name, folder, chosen)
    config = checkpoint.model.config
    family = FAMILY[config.model_type]
    pictures = read_pictures(name, folder, config=config, tokenizer=checkpoint.tokenizer, family=family)
    return Auto(
        checkpoint.model,
        checkpoint.tokenizer,
        pictures=pictures,
        composer=compose(name, checkpoint.tokenizer, pictures, time=time),
        prices=(language_price(config), PicturePrice(_countable_tower(checkpoint.model, pictures, chosen), pictures)),
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
    config = read(name, transformers.AutoConfig, folder)
    tokenizer = read(name, transformers.AutoTokenizer, folder)
    pictures = read_pictures(name, folder, config=config, tokenizer=tokenizer, family=FAMILY[config.model_type])
    composer = compose(name, tokenizer, pictures)
    language = language_price(config)
    tower = PicturePrice(hollow_tower(config, pictures), pictures)

    return CostModel(
        name,
        Capabilities(
            generates=pictures.family.writes,
            frame_pairs=False,
            frame_multiple=pictures.multiple,
            weight_bytes=sum(file.stat().st_size for file in folder.glob("*.safetensors")),
            pass_bytes=CAUTION * token_bytes(config, BYTES) + cache_bytes(config, BYTES),
        ),
        lambda request: price_request(
            language, composer.layout(request, picture_sizes(request, pictures.multiple)), tower, request.task
        ),
    )
