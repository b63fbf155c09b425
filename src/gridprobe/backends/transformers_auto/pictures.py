"""Frames as the pictures of a model family: pixels for its vision tower, placeholders for its text.

transformers' processors need torchvision only for video. So the family's processor class is built without its video
part, around the image processor that works here: torchvision's, or else the one on top of PIL.
"""

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import transformers
from PIL import Image
from torch import Tensor
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING

from gridprobe.backends.local.checkpoint import first_line
from gridprobe.backends.local.reading import read
from gridprobe.backends.transformers_auto.families import Family
from gridprobe.errors import ModelError
from gridprobe.video.frames import Pixels

__all__ = ["Pictures", "Placeholder", "Size", "read_pictures"]

Size = tuple[int, int]
"""Width and height."""
SMALLER, LARGER = (448, 224), (896, 448)
"""If pictures of these sizes get equally many tokens, the size does not matter."""

NO_VIDEO = SimpleNamespace(slice_mode=False, downsample_mode=None)
"""In place of a processor's parts for video and sound."""


@dataclass(frozen=True, eq=False)
class Placeholder:
    """What stands for a picture of some size in the text."""

    text: str
    """With one visual token for each run of them."""
    runs: tuple[int, ...]
    """The true length of each run."""
    extras: Mapping[str, Tensor]
    """What the language model must know about the picture besides its features, such as its grid of patches."""

    @property
    def tokens(self) -> int:
        """Visual tokens."""
        return sum(self.runs)


class Pictures:
    """The picture side of a checkpoint."""

    def __init__(self, processor: Any, family: Family, *, token: str) -> None:
        """Wrap a processor; `token` is the visual token that the model replaces by features."""
        self.processor = processor
        self.family = family
        self.token = token
        self.placeholder = lru_cache(maxsize=256)(self._placeholder)
        """The placeholder of a picture of some width and height."""

    @property
    def marker(self) -> str:
        """What the chat template writes for a picture."""
        return str(self.processor.image_token)

    @property
    def backend(self) -> str:
        """What prepares the pixels; PIL and torchvision round differently."""
        return "pil" if type(self.processor.image_processor).__name__.endswith("Pil") else "torchvision"

    @cached_property
    def multiple(self) -> int:
        """Sides of pictures are multiples of this."""
        images = self.processor.image_processor
        merge = getattr(images, "merge_size", None)
        return 1 if self.picture_tokens or merge is None else int(images.patch_size * merge)

    @cached_property
    def picture_tokens(self) -> int | None:
        """The number of visual tokens of a picture, or None if it depends on the size; it may depend on the shape."""
        tokens = self.placeholder(SMALLER).tokens
        return tokens if tokens == self.placeholder(LARGER).tokens else None

    def number(self, place: int) -> str:
        """What stands before a picture because it is the first, second and so on; only MiniCPM-V counts them."""
        processor = self.processor
        if not getattr(processor, "default_use_image_id", False):
            return ""
        return f"{processor.image_id_start_token}{place}{processor.image_id_end_token}"

    def joined(self, pictures: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """The inputs of several pictures as those of one call."""
        axes = {"pixel_values": -1} if self.family.in_a_row else {}
        names = pictures[0] if pictures else ()
        return {name: torch.cat([each[name] for each in pictures], dim=axes.get(name, 0)) for name in names}

    def inputs(self, pixels: Pixels) -> dict[str, Tensor]:
        """Height × width × 3 bytes as what the vision tower takes."""
        return {name: value for name, value in self._processed(pixels).items() if isinstance(value, Tensor)}

    def _processed(self, pixels: Pixels) -> dict[str, Any]:
        picture = Image.fromarray(pixels)
        shown = [picture, picture] if self.family.in_company else [picture]
        processor = self.processor
        kinds = processor.valid_processor_kwargs._defaults.get("images_kwargs", {})
        options = {**kinds, **self.family.options, "return_tensors": "pt"}
        found = dict(processor.image_processor([shown], **options))
        if self.family.in_company:
            found = {name: value if name == "batch_num_images" else value[:1] for name, value in found.items()}
        return found

    def _placeholder(self, size: Size) -> Placeholder:
        width, height = size
        blank = torch.zeros((height, width, 3), dtype=torch.uint8).numpy()
        found = self._processed(blank)
        divisor = getattr(self.processor, "image_token_divisor", None)  # only MiniCPM-V has one
        text = str(self.processor.replace_image_token(found, image_idx=0, image_token_divisor=divisor))
        runs = re.findall(f"(?:{re.escape(self.token)})+", text)
        extras = {n: v for n, v in found.items() if isinstance(v, Tensor) and not n.startswith("pixel")}
        collapsed = re.sub(f"(?:{re.escape(self.token)})+", lambda _: self.token, text)
        return Placeholder(collapsed, tuple(len(run) // len(self.token) for run in runs), extras)


def read_pictures(name: str, folder: Path, *, config: Any, tokenizer: Any, family: Family) -> Pictures:
    """The picture side of the checkpoint in a folder."""
    images = read(name, transformers.AutoImageProcessor, folder)
    if family.one_tile:
        # the model reads its own list, so both must have the same
        images.image_grid_pinpoints = config.image_grid_pinpoints = [[config.vision_config.image_size] * 2]
    kind = getattr(transformers, family.processor) if family.processor else PROCESSOR_MAPPING[type(config)]
    try:
        settings, _ = kind.get_processor_dict(str(folder), local_files_only=True)
        parts = dict.fromkeys(kind.get_attributes(), NO_VIDEO) | {"image_processor": images, "tokenizer": tokenizer}
        processor = _without_video(kind)(**{**_settings(kind, settings), **parts})
    except (ImportError, AttributeError, OSError, TypeError, ValueError) as error:
        raise ModelError(f"cannot prepare pictures for {name}: {first_line(error)}") from error
    number = getattr(config, "image_token_id", None) or config.image_token_index
    token = tokenizer.convert_ids_to_tokens(number)
    return Pictures(processor, family, token=token)


def _settings(kind: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What processor_config.json says for this class."""
    return {name: value for name, value in settings.items() if name in inspect.signature(kind.__init__).parameters}


def _without_video(kind: Any) -> Any:
    """The processor class, but its parts may be missing."""

    def check(self: Any, name: str, part: Any) -> Any:
        return None if part is NO_VIDEO else kind.check_argument_for_proper_class(self, name, part)

    return type(kind.__name__, (kind,), {"check_argument_for_proper_class": check})
