"""Checkpoints of other families: from a folder on disk to an engine."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gridprobe.backends.local.letters import MIN_MASS
from gridprobe.backends.local.reading import Options, opened
from gridprobe.backends.transformers_auto.engine import Auto
from gridprobe.backends.transformers_auto.families import FAMILY
from gridprobe.backends.transformers_auto.features import Tower, hollow_tower
from gridprobe.backends.transformers_auto.pictures import Pictures, read_pictures
from gridprobe.backends.transformers_auto.pricing import PicturePrice, language_price
from gridprobe.backends.transformers_auto.turn import Composer, learn, time_text
from gridprobe.errors import ModelError, UsageError

__all__ = ["compose", "load"]


def load(
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
        **options: see `gridprobe.backends.local.reading.Options`.
    """
    if compile:
        raise UsageError("only Qwen3-VL models can be compiled; leave out compile=True")
    chosen = Options(**options)
    found = opened(name, folder, chosen)
    config = found.model.config
    family = FAMILY[config.model_type]
    pictures = read_pictures(name, folder, config=config, tokenizer=found.tokenizer, family=family)
    return Auto(
        found.model,
        found.tokenizer,
        pictures=pictures,
        composer=compose(name, found.tokenizer, pictures, time=time),
        prices=(language_price(config), PicturePrice(_countable_tower(found.model, pictures, chosen), pictures)),
        identity=f"{found.identity}:auto:{pictures.backend}",
        min_letter_mass=min_letter_mass,
    )


def _countable_tower(model: Any, pictures: Pictures, options: Options) -> Tower:
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
        given = {"tokenize": False, "add_generation_prompt": True, "enable_thinking": False}
        return str(tokenizer.apply_chat_template(turn, chat_template=template, **given))

    return Composer(tokenizer, learn(render, pictures.marker), pictures=pictures, time=time)
