"""Turn: the checkpoint's chat turn, learned once from its template. A request as tokens.

The template is rendered with stand-ins for text and pictures, and what it writes around them is kept: the opening, what
stands for a picture, and the end. Requests are put together from these parts, so that times stay before their frames
even where a template writes all pictures first. The whole is tokenized at once, as the model's processor would do it.

A user's text is data: a word joiner is put into whatever the tokenizer would read as one of its own tokens.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import takewhile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import transformers
from PIL import Image
from torch import Tensor
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING

from gridprobe.errors import ModelError, UsageError
from gridprobe.models.base import Request
from gridprobe.models.local.checkpoint import first_line
from gridprobe.models.local.layout import Layout
from gridprobe.models.local.loading import read
from gridprobe.video.frames import Pixels

# What is particular about each model family; its `model_type` in config.json is the key.


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
    """Tiles cannot be turned off, only limited to one next to the whole picture."""
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
"""Families that are known to work. Qwen3-VL is here for comparison; `gridprobe.models.qwen3vl` runs it."""


# Frames as the pictures of a model family: pixels for its vision tower, placeholders for its text.
#
# transformers' processors need torchvision only for video. So the family's processor class is built without its video
# part, around the image processor that works here: torchvision's, or else the one on top of PIL.

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
        inputs = dict(processor.image_processor([shown], **options))
        if self.family.in_company:
            inputs = {name: value if name == "batch_num_images" else value[:1] for name, value in inputs.items()}
        return inputs

    def _placeholder(self, size: Size) -> Placeholder:
        width, height = size
        blank = torch.zeros((height, width, 3), dtype=torch.uint8).numpy()
        inputs = self._processed(blank)
        divisor = getattr(self.processor, "image_token_divisor", None)  # only MiniCPM-V has one
        text = str(self.processor.replace_image_token(inputs, image_idx=0, image_token_divisor=divisor))
        runs = re.findall(f"(?:{re.escape(self.token)})+", text)
        extras = {n: v for n, v in inputs.items() if isinstance(v, Tensor) and not n.startswith("pixel")}
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


JOINER = "\N{WORD JOINER}"
STAND_INS = ("first stand-in", "second stand-in")
PICTURE = {"type": "image"}


def time_text(seconds: Sequence[float]) -> str:
    """What stands before a frame, or before a contact sheet of several; nothing without times."""
    times = ", ".join(f"{time:.1f}s" for time in seconds)
    if len(seconds) > 1:
        return f"Times from left to right, top to bottom: {times}"
    return f"Time: {times}" if times else ""


@dataclass(frozen=True)
class Turn:
    """What a chat template writes around a user's text and pictures."""

    before_text: str
    """The opening of a turn that begins with text."""
    before_picture: str
    """The opening of a turn that begins with a picture; some templates leave out a blank."""
    picture: str
    """What stands for a picture."""
    joint: str
    """What a template that writes pictures first puts before the text."""
    after: str


def learn(render: Callable[[list[dict[str, str]]], str], marker: str) -> Turn:
    """Read a turn off a template; `render` writes one user turn, `marker` is what it writes for a picture."""
    one, two = ({"type": "text", "text": text} for text in STAND_INS)
    mixed = render([one, PICTURE, two])
    first, second = (mixed.find(text) for text in STAND_INS)
    place = mixed.find(marker)
    if min(first, second, place) < 0:
        raise ModelError(f"the checkpoint's chat template writes no {marker} for a picture, or leaves out text")
    led = render([PICTURE, two])
    if first < place < second:
        picture = mixed[first + len(STAND_INS[0]) : second]
        opening = led[: led.index(STAND_INS[1])].removesuffix(picture)
        return Turn(mixed[:first], opening, picture, "", mixed[second + len(STAND_INS[1]) :])
    alone, pair = (text[: text.index(STAND_INS[1])] for text in (led, render([PICTURE, PICTURE, two])))
    width = len(pair) - len(alone)
    start = alone.index(marker)
    while alone[: start + width] + alone[start:] != pair:  # the marker may have an ornament before it
        start -= 1
        if start < 0:
            raise ModelError("the checkpoint's chat template writes two pictures in another way than one")
    opening, picture, joint = alone[:start], alone[start : start + width], alone[start + width :]
    return Turn(opening, opening, picture, joint, led[led.index(STAND_INS[1]) + len(STAND_INS[1]) :])


class Composer:
    """Puts requests together as tokens."""

    def __init__(
        self,
        tokenizer: Any,
        turn: Turn,
        *,
        pictures: Pictures,
        time: Callable[[Sequence[float]], str] = time_text,
    ) -> None:
        """Combine a tokenizer and a turn.

        Args:
            tokenizer: the checkpoint's.
            turn: what its chat template writes.
            pictures: what stands for pictures in the text.
            time: what stands before a picture of frames that are shown at these times.
        """
        self._tokenizer = tokenizer
        self._turn = turn
        self._pictures = pictures
        marker, token = pictures.marker, pictures.token
        self._token, self._visual = token, int(tokenizer.convert_tokens_to_ids(token))
        self._time = time
        own = ((int(number), added) for number, added in tokenizer.added_tokens_decoder.items())
        self._own = {number: str(added) for number, added in own if added.special or str(added) in (marker, token)}
        reserved = sorted({*self._own.values(), marker}, key=len, reverse=True)
        self._reserved = re.compile("|".join(map(re.escape, reserved)))
        self._data = lru_cache(maxsize=16_384)(self._as_data)

    def layout(self, request: Request, sizes: Sequence[Size]) -> Layout:
        """The request as tokens; `sizes` are those of its units' pictures."""
        frames, shown = self._frames(request, sizes)
        prompt = self._turn.joint + self._data(request.prompt)
        first = request.prompt_order == "frames_first"
        units = request.prefix_units if first else 0
        body = frames + prompt if first else f"{prompt}\n{frames}"
        led = bool(sizes) and first and frames.startswith(shown[0][0])
        opening = self._turn.before_picture if led else self._turn.before_text
        tokens = np.asarray(self._ids(opening + body + self._turn.after), dtype=np.int64)
        places = np.flatnonzero(tokens == self._visual)
        if len(places) != sum(len(runs) for _, runs in shown):
            raise ModelError("text was read as a visual placeholder; this tokenizer cannot be used safely")
        repeats = np.ones(len(tokens), dtype=np.int64)
        repeats[places] = [run for _, runs in shown for run in runs]
        ids = np.repeat(tokens, repeats)
        owners = np.empty(0, dtype=np.int64)
        if units:
            last = places[np.cumsum([len(runs) for _, runs in shown[:units]]) - 1]
            closed = [
                place + self._closing(tokens[place + 1 :], text)
                for place, (text, _) in zip(last, shown[:units], strict=True)
            ]
            ends = np.cumsum(repeats)[closed]
            owners = np.searchsorted(ends, np.arange(ends[-1]), side="right")
            owners[: len(self._ids(opening))] = -1
        return Layout(ids, ids == self._visual, tuple(sizes), len(owners), units, owners)

    def _ids(self, text: str) -> list[int]:
        bos = self._tokenizer.bos_token
        ids: list[int] = self._tokenizer(text, add_special_tokens=not (bos and text.startswith(bos)))["input_ids"]
        return ids

    def _closing(self, tokens: npt.NDArray[np.int64], picture: str) -> int:
        """How many of the tokens after the last visual one of a picture belong to it, such as <|vision_end|>."""
        tail = self._tokenizer(picture.rpartition(self._token)[2], add_special_tokens=False)["input_ids"]
        same = takewhile(
            lambda pair: pair[0] == pair[1] and pair[0] in self._own, zip(tail, tokens.tolist(), strict=False)
        )
        return sum(1 for _ in same)

    def _frames(self, request: Request, sizes: Sequence[Size]) -> tuple[str, list[tuple[str, tuple[int, ...]]]]:
        """The pictures with the texts and times before them; each picture's text, and how long its runs are."""
        parts: list[str] = []
        shown: list[tuple[str, tuple[int, ...]]] = []
        *texts, ending = (f"{self._data(text)}\n" if text else "" for text in request.texts)
        for place, (unit, size, text) in enumerate(zip(request.units, sizes, texts, strict=True)):
            placeholder = self._pictures.placeholder(size)
            expanded = self._pictures.number(place) + placeholder.text
            written = self._turn.picture.replace(self._pictures.marker, expanded)
            shown.append((written, placeholder.runs))
            parts += [text, self._time(request.times_of(unit)), written]
        return "".join((*parts, ending)), shown

    def _as_data(self, text: str) -> str:
        """A user's text with no token of the tokenizer's own in it."""
        safe = self._reserved.sub(lambda match: match[0][0] + JOINER + match[0][1:], text)
        ids = self._tokenizer(safe, add_special_tokens=False)["input_ids"]
        token = next((self._own[number] for number in ids if number in self._own), None)
        if token is not None:
            raise UsageError(f"the text contains {token!r}, which this model's tokenizer reads as a command; reword it")
        return safe
