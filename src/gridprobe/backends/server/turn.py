"""A request as one user message: texts, and a picture after the time of every unit, as our own engine lays them out."""

import base64
import hashlib
import io
import re
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from PIL import Image

from gridprobe.backends.base import ScoreRequest, Unit
from gridprobe.errors import UsageError
from gridprobe.video.frames import Pixels

__all__ = ["Album", "Part", "Picture", "lay_out", "message", "picture_of"]

SPECIAL = re.compile(r"<(?=[|/]?[A-Za-z_]+\|?>)")
"""The beginning of what a server might read as a special token, such as <|im_end|> or <image>."""
ALBUM_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Picture:
    """A PNG file, with a name made from its content."""

    png: bytes
    name: str
    pixels: int
    """Width × height."""


Part = str | Picture


def picture_of(pixels: Pixels, size: tuple[int, int] | None = None) -> Picture:
    """Encode a frame, at another size (width, height) if one is given."""
    image = Image.fromarray(pixels)
    if size is not None and image.size != size:
        image = image.resize(size, Image.Resampling.BICUBIC)
    content = io.BytesIO()
    image.save(content, "PNG", compress_level=3)
    png = content.getvalue()
    return Picture(png, hashlib.sha256(png).hexdigest(), image.width * image.height)


class Album:
    """Encoded frames by their identity; the least recently used are dropped first. Threads may share it."""

    def __init__(self, capacity: int = ALBUM_BYTES) -> None:
        self._capacity, self._bytes = capacity, 0
        self._pictures: OrderedDict[Hashable, Picture] = OrderedDict()
        self._lock = Lock()

    def find(self, key: Hashable, make: Callable[[], Picture]) -> Picture:
        """The picture of that key; made if it is not there."""
        with self._lock:
            found = self._pictures.get(key)
            if found is not None:
                self._pictures.move_to_end(key)
                return found
        made = make()
        with self._lock:
            if key not in self._pictures:
                self._pictures[key] = made
                self._bytes += len(made.png)
            while self._bytes > self._capacity and len(self._pictures) > 1:
                _, dropped = self._pictures.popitem(last=False)
                self._bytes -= len(dropped.png)
        return made


def lay_out(request: ScoreRequest, album: Album, *, multiple: int) -> list[Part]:
    """The parts of the message; texts between two pictures are one part."""
    *texts, ending = (f"{_harmless(text)}\n" if text else "" for text in request.texts)
    frames: list[Part] = []
    for unit, text in zip(request.units, texts, strict=True):
        times = ", ".join(f"{time:.1f}" for time in request.times_of(unit))
        frames += [text + (f"<{times} seconds>" if times else ""), _picture(request, unit, album, multiple)]
    prompt = _harmless(request.prompt)
    if request.prompt_order == "frames_first":
        return _joined([*frames, ending, prompt])
    return _joined([f"{prompt}\n", *frames, ending])


def _picture(request: ScoreRequest, unit: Unit, album: Album, multiple: int) -> Picture:
    group = request.groups[unit.group]
    if group.view.packing != "single":
        raise UsageError("frames cannot be sent to a server in pairs; use packing=single")
    size = group.size(multiple)
    key = (request.frames_of(unit).keys, size, group.view.sheet)
    return album.find(key, lambda: picture_of(group.pictures([unit])[0], size))


def _harmless(text: str) -> str:
    """A user's text without anything that a server could read as a special token: "<|im_end|>" gets a space."""
    return SPECIAL.sub("< ", text)


def _joined(parts: Sequence[Part]) -> list[Part]:
    """Neighbouring texts as one; empty ones are left out."""
    joined: list[Part] = []
    for part in parts:
        last = joined[-1] if joined else None
        if isinstance(part, str) and isinstance(last, str):
            joined[-1] = last + part
        elif part:
            joined.append(part)
    return joined


def message(parts: Sequence[Part], *, names: bool = False, known: Collection[str] = ()) -> list[dict[str, Any]]:
    """The messages of a chat. With `names` the server caches pictures by their name, and `known` ones need no bytes."""
    content = [
        {"type": "text", "text": part} if isinstance(part, str) else _image(part, names=names, known=known)
        for part in parts
    ]
    return [{"role": "user", "content": content}]


def _image(picture: Picture, *, names: bool, known: Collection[str]) -> dict[str, Any]:
    part: dict[str, Any] = {"type": "image_url", "image_url": None}
    if names:
        part["uuid"] = picture.name
    if picture.name not in known:
        part["image_url"] = {"url": f"data:image/png;base64,{base64.b64encode(picture.png).decode()}"}
    return part
