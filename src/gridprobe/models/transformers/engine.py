"""Auto: scores requests with any vision-language model of transformers that `families.py` knows.

A frame's vision features are computed once and used by every request that shows it at this size, where the model takes
features; otherwise with each request. Nothing else is kept. Sequences are padded on the left and run in batches.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor

from gridprobe.errors import ModelError, UsageError
from gridprobe.models.base import Capabilities, Cost, CostModel, Request, Unit, require_plain
from gridprobe.models.local.base import BatchResult, LocalModel
from gridprobe.models.local.generate import MIN_MASS, Step
from gridprobe.models.local.kv_cache import CAUTION, Cached
from gridprobe.models.local.layout import Batch, Layout, PreparedRequest, with_texts
from gridprobe.models.local.loading import LoadOptions, opened, read, read_config
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
TYPES = frozenset({"mm_token_type_ids", "token_type_ids"})
"""Names under which models ask which tokens are visual."""


class Auto(LocalModel):
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
        self.capabilities = Capabilities(
            generates=pictures.family.writes,
            frame_pairs=False,
            frame_multiple=pictures.multiple,
            tokens_per_image=pictures.picture_tokens,
            context_tokens=self._context,
            weight_bytes=self._memory.weights,
            pass_bytes=self._memory.pass_bytes,
        )

    def _layout(self, request: Request) -> Layout:
        return self._composer.layout(request, picture_sizes(request, self._pictures.multiple))

    def _prompt_cost(self, job: PreparedRequest) -> Cost:
        return price(self._language, job.layout, self._price_of)

    def _text_cost(self, job: PreparedRequest, tokens: int) -> Cost:
        return price_text(self._language, tokens, known=len(job.layout))

    def _shares(self, job: PreparedRequest, often: int) -> bool:
        return False

    def _scores(self, batch: Batch) -> BatchResult:
        scores = BatchResult()
        logits = self._model(**self._inputs(batch, scores.flops), use_cache=False, logits_to_keep=1).logits[:, -1]
        scores.logits.update({job.place: row for job, row in zip(batch, logits.float(), strict=True)})
        return scores

    def _begin_texts(self, batch: Batch, flops: Counter[int], *, texts: int, steps: int) -> tuple[Tensor, Step]:
        inputs = self._inputs(batch, flops)
        out = self._model(**inputs, use_cache=True, logits_to_keep=1)
        cache, ahead = out.past_key_values, getattr(self._model.model, "rope_deltas", None)

        def forward(ids: Tensor, mask: Tensor, numbers: Tensor, rows: Sequence[int]) -> Tensor:
            more: dict[str, Any] = {"input_ids": ids, "attention_mask": mask}
            more |= dict.fromkeys(TYPES & self._names, torch.zeros_like(ids))
            if ahead is not None:
                more["position_ids"] = (numbers + ahead[list(rows)]).expand(3, -1, -1)
            logits: Tensor = self._model(**more, past_key_values=cache, use_cache=True).logits
            return logits

        cached = Cached(forward, cache, inputs["attention_mask"])
        cached.copies([texts] * len(batch))
        return out.logits[:, -1].float(), cached.step

    def _inputs(self, batch: Batch, flops: Counter[int]) -> dict[str, Any]:
        """What the model takes for a batch; `flops` counts what is computed."""
        for job in batch:
            flops[job.place] += int(self._language(len(job.layout)))
        length = max(len(job.layout) for job in batch)
        ids = torch.full((len(batch), length), self._filler, dtype=torch.long)
        mask = torch.zeros((len(batch), length), dtype=torch.long)
        for row, job in enumerate(batch):
            ids[row, length - len(job.layout) :] = torch.from_numpy(job.layout.ids)
            mask[row, length - len(job.layout) :] = 1
        inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": mask, **self._types(ids, mask)}
        inputs |= self._vision_inputs(batch, flops)
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

    def _vision_inputs(self, batch: Batch, flops: Counter[int]) -> dict[str, Any]:
        """The pictures of a batch: features and what belongs to them, or pixels."""
        shown = [(job, number) for job in batch for number in range(len(job.layout.sizes))]
        if not shown:
            return {}
        if not self._reuses:
            for job in batch:
                flops[job.place] += int(self._price_of(job.layout.sizes))
            return self._pictures.joined([self._pictures.inputs(_picture(job, number)) for job, number in shown])
        features = self._features(shown, flops)
        extras = [self._pictures.placeholder(job.layout.sizes[number]).extras for job, number in shown]
        outputs = self._tower.outputs([features[job.units[number]] for job, number in shown])
        return {**self._pictures.joined(extras), "mm_encoder_outputs": {"image": outputs}}

    def _features(self, shown: Sequence[tuple[PreparedRequest, int]], flops: Counter[int]) -> dict[Hashable, Tensor]:
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
    require_plain(request)
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
    chosen = LoadOptions.of(**options)
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
    config = read_config(name, folder)
    tokenizer = read(name, transformers.AutoTokenizer, folder)
    pictures = read_pictures(name, folder, config=config, tokenizer=tokenizer, family=FAMILY[config.model_type])
    composer = compose(name, tokenizer, pictures)
    language = language_price(config)
    tower = PicturePrice(hollow_tower(config, pictures), pictures)

    def request_price(request: Request) -> Cost:
        layout = composer.layout(request, picture_sizes(request, pictures.multiple))
        text = partial(price_text, language, known=len(layout))
        return with_texts(price(language, layout, tower), request.task, text)

    return CostModel(
        name,
        Capabilities(
            generates=pictures.family.writes,
            frame_pairs=False,
            frame_multiple=pictures.multiple,
            weight_bytes=sum(file.stat().st_size for file in folder.glob("*.safetensors")),
            pass_bytes=CAUTION * token_bytes(config, BYTES) + cache_bytes(config, BYTES),
        ),
        request_price,
    )
