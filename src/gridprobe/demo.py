"""What `gridprobe demo` shows without a model: a real video with planted evidence, and a scripted observer.

The observer is no vision-language model. It is a few lines that read colours out of the decoded pixels it is given and
are sure exactly when these pixels show the answer, so that the machinery around it (decoding, probing, map, budget,
focused pass) can be watched at work on any machine.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gridprobe.backends import ScoreRequest
from gridprobe.question import Question
from gridprobe.video.write import write_video

__all__ = ["DemoVideo", "observe", "questions"]

SQUARES = {"red": (230, 30, 30), "green": (30, 200, 60), "blue": (40, 70, 240), "yellow": (240, 220, 30)}
SKIES = {"morning": (120, 170, 200), "noon": (170, 180, 150), "dusk": (120, 90, 130)}
BANDS = {"dark": 25, "light": 235}
WIDTH, HEIGHT, FPS = 960, 540, 2
TOLERANCE = 45
"""How far H.264 and scaling may move a colour before the observer no longer recognises it."""


@dataclass(frozen=True)
class DemoVideo:
    """A sky that changes, a band along the bottom nearly all the time, and one coloured square for a moment."""

    seconds: int = 600
    square: str = "blue"
    band: str = "light"

    @property
    def event(self) -> tuple[float, float]:
        """When the square is on screen: 2 % of the video."""
        return 0.70 * self.seconds, 0.72 * self.seconds

    def sky(self, time: float) -> str:
        """Noon lasts longest."""
        share = time / self.seconds
        return "morning" if share < 0.3 else "noon" if share < 0.75 else "dusk"

    def frames(self) -> Iterator[npt.NDArray[np.uint8]]:
        """Every frame of the video, drawn."""
        shade = np.linspace(-12, 12, HEIGHT).astype(np.int16)[:, None, None]
        for number in range(self.seconds * FPS):
            time = number / FPS
            picture = np.array(SKIES[self.sky(time)], np.int16) + np.repeat(shade, WIDTH, axis=1)
            left = int(120 + 540 * (0.5 + 0.5 * np.sin(time / 7)))
            picture[60:120, left : left + 180] = 200  # a passing cloud, so that no two frames are alike
            if not 0.40 <= time / self.seconds < 0.44:
                picture[450:] = BANDS[self.band]
            if self.event[0] <= time < self.event[1]:
                picture[180:390, 375:585] = SQUARES[self.square]
            yield picture.clip(0, 255).astype(np.uint8)

    def write(self, path: Path) -> None:
        """Encode the video as H.264."""
        write_video(path, self.frames(), fps=FPS, size=(WIDTH, HEIGHT), count=self.seconds * FPS)


def questions(video: DemoVideo) -> list[Question]:
    """One question for each regime of the paper: a brief event, something nearly always visible, and the whole."""
    square = list(SQUARES)
    return [
        Question(
            "Which colour is the square that shows up for a moment?", square, answer="ABCD"[square.index(video.square)]
        ),
        Question("How bright is the band along the bottom?", list(BANDS), answer="AB"[list(BANDS).index(video.band)]),
        Question("Which sky is on screen longest?", list(SKIES), answer="B"),
    ]


def observe(request: ScoreRequest) -> dict[str, float]:
    """The scripted observer: how strongly do these pixels speak for each option?"""
    pixels = request.frames.pixels
    height, width = pixels.shape[1:3]
    if "square" in request.prompt:
        centre = pixels[:, height * 5 // 12 : height * 8 // 12, width * 9 // 20 : width * 11 // 20]
        seen = [_share(centre, colour) for colour in SQUARES.values()]
        return _posterior(request.labels, [20.0 * (share > 0) for share in seen])
    if "band" in request.prompt:
        bottom = pixels[:, height * 11 // 12 :]
        return _posterior(request.labels, [5.0 * _share(bottom, (level,) * 3) for level in BANDS.values()])
    top = pixels[:, : height // 12]
    return _posterior(request.labels, [3.0 * _share(top, colour) for colour in SKIES.values()])


def _share(region: npt.NDArray[np.uint8], colour: tuple[int, ...]) -> float:
    """The share of frames whose region has this mean colour."""
    means = region.astype(np.float64).mean(axis=(1, 2))
    return float((np.abs(means - np.array(colour)).max(axis=1) < TOLERANCE).mean())


def _posterior(labels: tuple[str, ...], evidence: list[float]) -> dict[str, float]:
    return {label: float(np.exp(strength)) for label, strength in zip(labels, evidence, strict=True)}
