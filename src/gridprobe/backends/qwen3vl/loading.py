"""Qwen3-VL checkpoints: from a folder on disk to an engine."""

import json
from pathlib import Path
from typing import Any

from gridprobe.backends.local.letters import MIN_MASS
from gridprobe.backends.local.reading import Options, opened
from gridprobe.backends.qwen3vl.engine import Qwen3VL
from gridprobe.backends.qwen3vl.pixels import PatchSpec

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
            found = json.loads((folder / file).read_text(encoding="utf-8"))
            values |= found.get("video_processor", found)
    vision = config.vision_config
    return PatchSpec(
        patch=vision.patch_size,
        merge=vision.spatial_merge_size,
        temporal=vision.temporal_patch_size,
        mean=tuple(values.get("image_mean", (0.5, 0.5, 0.5))),
        std=tuple(values.get("image_std", (0.5, 0.5, 0.5))),
    )
