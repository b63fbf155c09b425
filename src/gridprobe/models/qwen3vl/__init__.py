"""The local engine for Qwen3-VL checkpoints, through transformers.

request -> layout (prompt.py: tokens, time markers, positions) + patches (pixels.py) -> engine.py -> Posterior

Importing this package loads no torch; `loading` and `engine` do.
"""

import json
import re
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from gridprobe.errors import ModelError
from gridprobe.models.base import Capabilities, Cost, CostModel, Model, Request
from gridprobe.models.local.checkpoint import unreadable
from gridprobe.models.qwen3vl.pricing import (
    QWEN3_VL,
    ModelDims,
    cache_bytes,
    dims_of,
    parameters,
    price_roughly,
    token_bytes,
)

# What a Qwen3-VL model costs, from its config and tokenizer, or from its name, without loading its weights.

KNOWN = tuple(f"Qwen/Qwen3-VL-{size}-Instruct" for size in QWEN3_VL)
"""Models whose cost is known by name alone."""
BYTES = 2
"""Bytes of a weight or an activation in bfloat16, the default on a GPU."""
CAUTION = 2
"""As in the engine, a pass is assumed to need this many times its activations."""
UNTIED = ("8B",)
"""Sizes with separate matrices for input and output tokens."""


def cost_model(name: str, folder: Path | None) -> CostModel | None:
    """The cost model of a checkpoint folder or, without one, of a released model; None if neither is known."""
    if folder is None:
        size = re.search(r"qwen3-vl-(\d+b)\b", name.lower())
        if size is None or size[1].upper() not in QWEN3_VL:
            return None
        dims, tied = QWEN3_VL[size[1].upper()], size[1].upper() not in UNTIED
        return _cost_model(name, dims, price=None, weights=parameters(dims, tied=tied) * BYTES)
    dims = _read_dims(folder)
    weights = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    return _cost_model(name, dims, price=_counted(folder, dims), weights=weights)


def _cost_model(name: str, dims: ModelDims, *, price: Callable[[Request], Cost] | None, weights: int) -> CostModel:
    capabilities = Capabilities(
        kv_reuse=True,
        masks_frames=True,
        attention_map=True,
        close_ups=True,
        generates=True,
        frame_multiple=dims.vision.frame_multiple,
        weight_bytes=weights,
        pass_bytes=CAUTION * token_bytes(dims, BYTES) + cache_bytes(dims, BYTES),
    )
    return CostModel(name, capabilities, price or partial(price_roughly, dims), exact=price is not None)


def _read_dims(folder: Path) -> ModelDims:
    try:
        text = (folder / "config.json").read_text(encoding="utf-8")
        dims = dims_of(json.loads(text, object_hook=lambda values: SimpleNamespace(**values)))
        for name, value in _widths(dims):
            if type(value) is not int or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, got {value!r:.80}")
        return dims
    except (OSError, ValueError, AttributeError, TypeError, ArithmeticError, RecursionError) as error:
        raise ModelError(f"{folder}/config.json is not that of a Qwen3-VL model: {error}") from error


def _widths(dims: ModelDims) -> list[tuple[str, Any]]:
    own = [(name, value) for name, value in asdict(dims).items() if name != "vision"]
    return [*own, *asdict(dims.vision).items()]


def _counted(folder: Path, dims: ModelDims) -> Callable[[Request], Cost] | None:
    """Prices by the tokens that the engine would count; None without its packages or a tokenizer."""
    try:
        from transformers import AutoTokenizer

        from gridprobe.models.local.layout import PreparedRequest, with_texts
        from gridprobe.models.qwen3vl.prompt import Layouts, SpecialTokens, encoder, price_prompt, price_text_of
    except ModuleNotFoundError:
        return None
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except unreadable():
        return None
    special, patch, merge = SpecialTokens.of(tokenizer), dims.vision.patch, dims.vision.merge
    layouts = Layouts(encoder(tokenizer), special, patch=patch, merge=merge)

    def price(request: Request) -> Cost:
        job = PreparedRequest(0, request, layouts.of(request))
        return with_texts(price_prompt(dims, job), request.task, partial(price_text_of, dims, job))

    return price


def load(name: str, folder: Path, **options: Any) -> Model:
    """Load a checkpoint; see `gridprobe.models.qwen3vl.engine.load`."""
    from gridprobe.models.qwen3vl.engine import load_engine as load_checkpoint

    return load_checkpoint(name, folder, **options)
