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
    in_a_row: bool = False
    """Pixels of several pictures are joined along their last axis, not their first."""
    one_tile: bool = False
    """Tiles cannot be turned off, only limited to one beside the whole picture."""
    writes: bool = True
    """Whether it writes text; transformers cannot copy the state of linear attention for several texts."""


AS_IT_IS = {"do_resize": False}

FAMILY: dict[str, Family] = {
    "internvl": Family({"crop_to_patches": False}),
    "llava_onevision": Family(in_company=True),
    "llava_next_video": Family(one_tile=True),
    "smolvlm": Family({"do_image_splitting": False}, processor="Idefics3Processor"),
    "idefics3": Family({"do_image_splitting": False}),
    "qwen2_5_vl": Family(AS_IT_IS),
    "qwen3_vl_moe": Family(AS_IT_IS),
    "qwen3_5": Family(AS_IT_IS, writes=False),
    "glm4v": Family(AS_IT_IS),
    "video_llama_3": Family(AS_IT_IS),
    "gemma3": Family({"do_pan_and_scan": False}),
    "gemma4": Family(),
    "minicpmv4_6": Family({"slice_mode": False}, in_a_row=True, writes=False),
    "qwen3_vl": Family(AS_IT_IS),
}
"""Families that are known to work. Qwen3-VL is here for comparison; `gridprobe.backends.qwen3vl` runs it."""
