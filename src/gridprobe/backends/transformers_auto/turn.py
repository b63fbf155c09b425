"""Turn: the checkpoint's chat turn, learned once from its template. A request as tokens.

The template is rendered with stand-ins for text and pictures, and what it writes around them is kept: the opening, what
stands for a picture, and the end. Requests are put together from these parts, so that times stay before their frames
even where a template writes all pictures first. The whole is tokenized at once, as the model's processor would do it.

A user's text is data: a word joiner is put into whatever the tokenizer would read as one of its own tokens.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from gridprobe.backends.base import ScoreRequest
from gridprobe.backends.transformers_auto.pictures import Pictures, Size
from gridprobe.errors import ModelError, UsageError

__all__ = ["Composer", "Layout", "Turn", "learn", "time_text"]

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


@dataclass(frozen=True, eq=False)
class Layout:
    """One sequence."""

    ids: npt.NDArray[np.int64]
    visual: int
    """How many of them are visual."""
    sizes: tuple[Size, ...]
    """Width and height of the picture of every unit, in the order shown."""

    def __len__(self) -> int:
        return len(self.ids)


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
        self._visual = int(tokenizer.convert_tokens_to_ids(token))
        self._time = time
        own = ((int(number), added) for number, added in tokenizer.added_tokens_decoder.items())
        self._own = {number: str(added) for number, added in own if added.special or str(added) in (marker, token)}
        known = sorted({*self._own.values(), marker}, key=len, reverse=True)
        self._reserved = re.compile("|".join(map(re.escape, known)))
        self._data = lru_cache(maxsize=16_384)(self._as_data)

    def layout(self, request: ScoreRequest, sizes: Sequence[Size]) -> Layout:
        """The request as tokens; `sizes` are those of its units' pictures."""
        frames, shown = self._frames(request, sizes)
        prompt = self._turn.joint + self._data(request.prompt)
        first = request.prompt_order == "frames_first"
        body = frames + prompt if first else f"{prompt}\n{frames}"
        led = bool(sizes) and first and frames.startswith(shown[0].text)
        opening = self._turn.before_picture if led else self._turn.before_text
        text = opening + body + self._turn.after
        bos = self._tokenizer.bos_token
        again = not (bos and text.startswith(bos))
        ids = self._tokenizer(text, add_special_tokens=again)["input_ids"]
        return Layout(self._expanded(ids, shown), sum(each.tokens for each in shown), tuple(sizes))

    def _frames(self, request: ScoreRequest, sizes: Sequence[Size]) -> tuple[str, list["_Shown"]]:
        """The pictures with the texts and times before them."""
        parts: list[str] = []
        shown: list[_Shown] = []
        *texts, ending = (f"{self._data(text)}\n" if text else "" for text in request.texts)
        for place, (unit, size, text) in enumerate(zip(request.units, sizes, texts, strict=True)):
            held = self._pictures.placeholder(size)
            expanded = self._pictures.number(place) + held.text
            written = self._turn.picture.replace(self._pictures.marker, expanded)
            shown.append(_Shown(written, held.runs))
            parts += [text, self._time(request.times_of(unit)), written]
        return "".join((*parts, ending)), shown

    def _expanded(self, ids: Sequence[int], shown: Sequence["_Shown"]) -> npt.NDArray[np.int64]:
        """The ids with every visual token repeated as often as its run is long."""
        found = np.asarray(ids, dtype=np.int64)
        runs = [run for each in shown for run in each.runs]
        places = np.flatnonzero(found == self._visual)
        if len(places) != len(runs):
            raise ModelError("text was read as a visual placeholder; this tokenizer cannot be used safely")
        repeats = np.ones(len(found), dtype=np.int64)
        repeats[places] = runs
        return np.repeat(found, repeats)

    def _as_data(self, text: str) -> str:
        """A user's text with no token of the tokenizer's own in it."""
        safe = self._reserved.sub(lambda match: match[0][0] + JOINER + match[0][1:], text)
        ids = self._tokenizer(safe, add_special_tokens=False)["input_ids"]
        found = next((self._own[token] for token in ids if token in self._own), None)
        if found is not None:
            raise UsageError(f"the text contains {found!r}, which this model's tokenizer reads as a command; reword it")
        return safe


@dataclass(frozen=True)
class _Shown:
    """A picture in the text."""

    text: str
    runs: tuple[int, ...]

    @property
    def tokens(self) -> int:
        return sum(self.runs)
