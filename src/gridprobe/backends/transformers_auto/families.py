"""What is particular about each model family; its `model_type` in config.json is the key."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["FAMILY", "Family"]


@dataclass(frozen=True)
class Family:
    """How the pictures of a family are prepared."""

    options: Mapping[str, Any] = field(default_factory=dict)
    """For the image processor: one picture, not tiles of it; at the size it has, where the family takes any size."""
    processor: str = ""
    """A processor class to use instead of the checkpoint's, because that one needs packages for video."""
    in_company: bool = False
    """The image processor makes tiles of a picture that is alone, so it is shown two and the second is dropped."""
    reuse: bool = True
    """Whether the model takes vision features that were computed before."""


AS_IT_IS = {"do_resize": False}

FAMILY: dict[str, Family] = {
    "internvl": Family({"crop_to_patches": False}),
    "llava_onevision": Family(in_company=True),
    "smolvlm": Family({"do_image_splitting": False}, processor="Idefics3Processor"),
    "qwen3_vl": Family(AS_IT_IS),
}
"""Families that are known to work. Qwen3-VL is here for comparison; `gridprobe.backends.qwen3vl` runs it."""
