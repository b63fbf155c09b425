"""Qwen3-VL checkpoints: from a folder on disk to an engine."""

from pathlib import Path
from typing import Any

from gridprobe.backends.local.checkpoint import first_line
from gridprobe.backends.local.letters import MIN_MASS
from gridprobe.backends.local.reading import Options, opened
from gridprobe.backends.qwen3vl.engine import Qwen3VL
from gridprobe.backends.qwen3vl.pixels import PatchSpec
from gridprobe.errors import ModelError
from gridprobe.files import parse_json

__all__ = ["load"]


def load(
    name: str, folder: Path, *, min_letter_mass: float = MIN_MASS, compile: bool = False, **options: Any
) -> Qwen3VL:
    """Load a checkpoint.

    Args:
        name: what it is called in its identity.
        folder: the checkpoint.
        min_letter_mass: if the option letters get less than this share of the probability, it is an error.
        compile: fuse the model's blocks with torch.compile; pays after about a minute of questions on a GPU.
        **options: `device`, `dtype`, `attn_implementation`, `device_map`, `quantization`; see
            `gridprobe.backends.local.reading.Options`.
    """
    found = opened(name, folder, Options(**options))
    return Qwen3VL(
        found.model,
        found.tokenizer,
        spec=_patch_spec(folder, found.config),
        identity=found.identity,
        min_letter_mass=min_letter_mass,
        compile=compile,
    )


def _patch_spec(folder: Path, config: Any) -> PatchSpec:
    """Mean and deviation come from the checkpoint's own files; transformers' defaults are another model's."""
    values: dict[str, Any] = {}
    for file in ("processor_config.json", "preprocessor_config.json", "video_preprocessor_config.json"):
        if (folder / file).is_file():
            values |= _processor_values(folder / file)
    vision = config.vision_config
    return PatchSpec(
        patch=vision.patch_size,
        merge=vision.spatial_merge_size,
        temporal=vision.temporal_patch_size,
        mean=_colours(values, "image_mean", folder),
        std=_colours(values, "image_std", folder),
    )


def _processor_values(file: Path) -> dict[str, Any]:
    try:
        found = parse_json(file.read_bytes())
        return dict(found.get("video_processor", found))
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ModelError(f"cannot read {file}: {first_line(error)}; download the checkpoint again") from error


def _colours(values: dict[str, Any], name: str, folder: Path) -> tuple[float, ...]:
    found = values.get(name, (0.5, 0.5, 0.5))
    numbers = isinstance(found, list | tuple) and all(type(each) in (int, float) for each in found)
    if not numbers or len(found) != 3 or (name == "image_std" and min(found) <= 0):
        rule = "three positive numbers" if name == "image_std" else "three numbers"
        raise ModelError(f"{name} in the processor's files of {folder} must be {rule}, got {found!r:.80}")
    return tuple(found)
