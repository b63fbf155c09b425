"""What requests cost, counted on the model itself. See `gridprobe.models.base` for the conventions.

The language model's operations are a·N + b·N² for N tokens. They are counted for two lengths on a copy of its modules
with tensors that have a shape but no content. b counts all pairs of tokens; a prefill needs half of them, N(N+1)/2.
Where a layer looks only at a window of tokens, all earlier ones are counted nevertheless. The vision tower is counted
on one picture of each size.
"""

import copy
import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import accelerate
import numpy as np
import torch
import transformers
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from gridprobe.errors import ModelError
from gridprobe.models.base import Cost
from gridprobe.models.local.layout import PreparedRequest
from gridprobe.models.transformers.attention import watched_layers
from gridprobe.models.transformers.prompt import Pictures, Size

# Vision features of pictures, each computed once, and the form in which a model takes them back.


class Tower:
    """A model's vision tower and projector."""

    def __init__(self, model: Any, pictures: Pictures, *, device: torch.device, dtype: torch.dtype) -> None:
        self._model = model
        self._joined = pictures.joined
        self._device, self._dtype = device, dtype
        self._names = accepted(model.model.get_image_features)
        self._kind: Any = None
        self._listed = False
        self._rank = 2

    def encode(self, pictures: Sequence[Mapping[str, Tensor]]) -> list[Tensor]:
        """Features of pictures of one size: for each, levels × tokens × width.

        Level 0 goes into the sequence; further levels, if any, are added to the first layers' states.
        """
        inputs = {name: value for name, value in self._joined(pictures).items() if name in self._names}
        inputs = {n: v.to(self._device, self._dtype if v.is_floating_point() else None) for n, v in inputs.items()}
        output = self._model.model.get_image_features(**inputs, return_dict=True)
        pooled = output.pooler_output
        self._kind, self._listed = type(output), not isinstance(pooled, Tensor)
        self._rank = 2 if self._listed else pooled.ndim
        levels = torch.stack([_flat(level) for level in (pooled, *(getattr(output, "deepstack_features", None) or ()))])
        return [each.clone() for each in levels.chunk(len(pictures), dim=1)]

    def outputs(self, features: Sequence[Tensor]) -> Any:
        """Features of some pictures as the tower would return them."""
        levels = range(1, len(features[0]))
        deep = [self._form([each[level] for each in features]) for level in levels]
        extra = {"deepstack_features": deep} if deep else {}
        return self._kind(pooler_output=self._form([each[0] for each in features]), **extra)

    def _form(self, parts: list[Tensor]) -> Any:
        if self._listed:
            return parts
        return torch.stack(parts) if self._rank == 3 else torch.cat(parts)


def _flat(level: Any) -> Tensor:
    """Tokens × width of all pictures."""
    whole = level if isinstance(level, Tensor) else torch.cat([part.flatten(0, -2) for part in level])
    return whole.flatten(0, -2)


def accepted(function: Any) -> frozenset[str]:
    """The names of a function's arguments."""
    return frozenset(inspect.signature(function).parameters)


def hollow_tower(config: Any, pictures: Pictures) -> Tower:
    """The vision tower with zeros for weights; memory that is only read as zeros takes no room."""
    with accelerate.init_empty_weights(include_buffers=False):
        model = transformers.AutoModelForImageTextToText.from_config(
            copy.deepcopy(config), attn_implementation="sdpa", trust_remote_code=False
        )
    language = {id(weight) for weight in model.get_decoder().parameters()}
    for module in model.modules():
        for name, weight in module.named_parameters(recurse=False):
            if id(weight) not in language:
                zeros = torch.nn.Parameter(torch.zeros(weight.shape), requires_grad=False)
                setattr(module, name, zeros)
    return Tower(model.eval(), pictures, device=torch.device("cpu"), dtype=torch.float32)


LENGTHS = (128, 256)
"""Multiples of the chunks in which linear attention is computed."""


@dataclass(frozen=True)
class LanguagePrice:
    """The language model's operations as a function of the number of tokens."""

    linear: float
    pairs: float
    """For each pair of tokens."""
    head: float
    """The vocabulary projection at one position."""
    published: tuple[float, float]
    """By the published convention: for each token, and for each pair of tokens."""
    watched: float = 0.0
    """For each pair of a token that is watched and one it may look at: the scores of all layers that count."""

    def layers(self, tokens: int, *, known: int = 0) -> float:
        """The layers by the honest convention, in whole operations; the first `known` tokens were read before."""
        pairs = tokens * (tokens + 1) - known * (known + 1)
        return float(round(self.linear * (tokens - known) + self.pairs * pairs / 2))

    def by_paper(self, tokens: int) -> float:
        """By the published convention."""
        return self.published[0] * tokens + self.published[1] * float(tokens) ** 2


def price(language: LanguagePrice, job: PreparedRequest, pictures: Callable[[Sequence[Size]], float]) -> Cost:
    """What a request costs by itself; `pictures` prices the vision tower.

    One with `visible_frames` finds the KV cache of all frames there, and close-ups that of the overview.
    """
    layout, rest, known = job.layout, job.rest, len(job.columns)
    if job.request.close_ups:
        return _price_close_ups(language, job, pictures)
    watched = language.watched * rest * (known + rest) if job.request.attention else 0.0
    if job.request.visible_frames is not None:
        flops = language.layers(known + rest, known=known) + language.head + watched
        paper = language.by_paper(known + rest) - language.by_paper(known)
        return Cost(calls=1, tokens=rest, flops=flops, flops_paper=paper, flops_computed=flops)
    flops = language.layers(len(layout)) + language.head + pictures(layout.sizes) + watched
    return Cost(
        calls=1,
        tokens=len(layout),
        visual_tokens=int(layout.visual.sum()),
        flops=flops,
        flops_paper=language.by_paper(len(layout)),
        flops_computed=flops,
    )


def _price_close_ups(
    language: LanguagePrice, job: PreparedRequest, pictures: Callable[[Sequence[Size]], float]
) -> Cost:
    """What is new behind an overview, and what reading that too would have taken in addition."""
    layout, known = job.layout, job.layout.prefix
    new = pictures(layout.sizes[layout.prefix_units :])
    flops = language.layers(len(layout), known=known) + language.head + new
    return Cost(
        calls=1,
        tokens=job.rest,
        visual_tokens=int(layout.visual[known:].sum()),
        flops=flops,
        flops_paper=language.by_paper(len(layout)) - language.by_paper(known),
        flops_computed=flops,
        flops_reused=language.layers(len(layout)) + language.head + pictures(layout.sizes) - flops,
    )


def price_text(language: LanguagePrice, tokens: int, *, known: int) -> Cost:
    """What a text of this many tokens costs after `known` ones that were read."""
    end = known + tokens - 1
    flops = language.layers(end, known=known) + (tokens - 1) * language.head
    paper = language.by_paper(end) - language.by_paper(known)
    return Cost(tokens=tokens, flops=flops, flops_paper=paper, flops_computed=flops)


def text_config(config: Any) -> Any:
    """The configuration of the language model."""
    return config.get_text_config(decoder=True)


def language_price(config: Any) -> LanguagePrice:
    """Count the operations of a model without weights."""
    with torch.device("meta"):
        shell = transformers.AutoModelForImageTextToText.from_config(
            copy.deepcopy(config), attn_implementation="eager", trust_remote_code=False
        ).eval()
    if hasattr(shell, "set_experts_implementation"):
        shell.set_experts_implementation("batched_mm")  # torch's counter has no formula for grouped_mm
    short, long = LENGTHS
    few, many = (_decoder_flops(shell.get_decoder(), tokens) for tokens in LENGTHS)
    pairs = (many / long - few / short) / (long - short)
    head, text = shell.get_output_embeddings().weight, text_config(config)
    layers = _layer_configs(text)
    watched = 2.0 * text.num_attention_heads * sum(_head_dim(layers[place]) for place in watched_layers(text))
    return LanguagePrice(few / short - pairs * short, pairs, 2.0 * head.numel(), _published(text), watched)


@torch.inference_mode()
def _decoder_flops(decoder: Any, tokens: int) -> float:
    """Within this mode transformers does not look into masks, which have no content here."""
    with FakeTensorMode(allow_non_fake_inputs=True), FlopCounterMode(display=False) as counter:
        ids = torch.zeros((1, tokens), dtype=torch.long, device="meta")
        decoder(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False)
    return float(counter.get_total_flops())


def _published(text: Any) -> tuple[float, float]:
    """N·L·(2(d² + 2·d·d_kv) + 4·N·d + 2d² + 6·d·f) + 2·N·d·V with d_kv = d·kv_heads/heads; experts count if active."""
    d, layers = text.hidden_size, text.num_hidden_layers
    d_kv = d * sum(map(_kv_heads, _layer_configs(text))) / layers / text.num_attention_heads
    experts = getattr(text, "num_experts_per_tok", None)
    f = experts * text.moe_intermediate_size if experts else text.intermediate_size
    token = layers * (2 * (d * d + 2 * d * d_kv) + 2 * d * d + 6 * d * f) + 2 * d * text.vocab_size
    return float(token), 4.0 * d * layers


class PicturePrice:
    """The vision tower's operations, counted on one picture of each size."""

    def __init__(self, tower: Tower, pictures: Pictures) -> None:
        self._tower = tower
        self._pictures = pictures
        self._counted = lru_cache(maxsize=256)(self._count)

    def __call__(self, sizes: Sequence[Size]) -> float:
        """For pictures of these sizes."""
        return sum(number * self._counted(size) for size, number in Counter(sizes).items())

    @torch.inference_mode()
    def _count(self, size: Size) -> float:
        inputs = self._pictures.inputs(np.zeros((size[1], size[0], 3), dtype=np.uint8))
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
            self._tower.encode([inputs])
        flops = float(counter.get_total_flops())
        if not flops > 0:
            raise ModelError("torch counted no operations in the vision tower, so its cost is not known")
        return flops


def token_bytes(config: Any, value_bytes: int) -> int:
    """Bytes of one token's activations at the widest place of a layer."""
    text = text_config(config)
    attention = max((text.num_attention_heads + 2 * _kv_heads(each)) * _head_dim(each) for each in _layer_configs(text))
    return int((6 * text.hidden_size + 3 * text.intermediate_size + 3 * attention) * value_bytes)


def cache_bytes(config: Any, value_bytes: int) -> int:
    """Bytes of one token's keys and values."""
    layers = _layer_configs(text_config(config))
    return int(2 * sum(_kv_heads(each) * _head_dim(each) for each in layers) * value_bytes)


def _layer_configs(text: Any) -> list[Any]:
    """What each layer of a language model is made by; Gemma 4's layers that see all frames have wider heads."""
    return list(text.per_layer_config) if getattr(text, "is_heterogeneous", False) else [text] * text.num_hidden_layers


def _kv_heads(text: Any) -> int:
    return int(getattr(text, "num_key_value_heads", None) or text.num_attention_heads)


def _head_dim(text: Any) -> int:
    return int(getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads)
