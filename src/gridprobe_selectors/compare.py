"""compare(): one question about one video, answered from the frames of several selectors, with the bill of each."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gridprobe._util import report
from gridprobe.answer import Answer
from gridprobe.ask import Session
from gridprobe.errors import UsageError
from gridprobe.importance import Fixed
from gridprobe.models import Model
from gridprobe.options import Options, Plan
from gridprobe.question import Question
from gridprobe.registry import SELECTORS
from gridprobe.video import FramePool, Video

__all__ = ["CONTROLS", "Compared", "compare"]

CONTROLS = ("all-small", "uniform")
"""What any selector has to beat: all frames small in one pass, and as many evenly spaced frames."""


@dataclass(frozen=True, eq=False)
class Compared:
    """One selector's answer."""

    selector: str
    """Its name as it was given, such as "uncertainty:4"."""
    answer: Answer
    control: bool = False
    """Whether it is a control that nobody named."""


def compare(
    video: str | Path | Video | FramePool,
    question: Question,
    *,
    selectors: Sequence[str],
    model: Model,
    answer_model: Model | None = None,
    settings: Options | None = None,
    controls: bool = True,
) -> list[Compared]:
    """Ask the question once for each selector; frames are decoded once, and no answer uses another one's work.

    Args:
        video: as for `gridprobe.ask`.
        question: what to ask.
        selectors: names from `gridprobe list selectors`.
        model: the model that selectors ask, loaded.
        answer_model: the model that answers; the same one without it.
        settings: everything else. A number of frames is for the selectors that take one.
        controls: whether to add the rows `all-small` and `uniform`. Without a number of frames in the settings,
            `uniform` and `random` keep as many as the first selector that decides for itself.
    """
    settings = settings or Options()
    added = [name for name in CONTROLS if controls and name not in selectors]
    names = list(dict.fromkeys([*selectors, *added]))
    if not names:
        raise UsageError("name at least one selector, such as --selectors gridprobe,frag")
    needing = [name for name in names if SELECTORS.find(name)[0].frames == "needed"]
    first = next((name for name in names if SELECTORS.find(name)[0].frames == "optional"), None)
    if needing and first is None and not isinstance(settings.rule, Fixed):
        raise UsageError(f"the selector {needing[0]!r} needs a number of frames, such as frames=8 (--frames 8)")

    def setup(name: str, frames: int | str) -> Plan:
        changed = settings.changed(frames="auto" if SELECTORS.find(name)[0].frames == "none" else frames)
        return changed.resolve(model=model, answer_model=answer_model, selector=name)

    setups = {name: setup(name, 1 if name in needing else settings.frames) for name in names}  # mistakes come first
    footage = setups[names[0]].open(video) if isinstance(video, str | Path) else video
    answers: dict[str, Answer] = {}
    for done, name in enumerate([name for name in names if name not in needing] + needing):
        report("selectors", done, len(names))
        if name in needing:
            frames = (
                answers[first].selection.kept if first and not isinstance(settings.rule, Fixed) else settings.frames
            )
            setups[name] = setup(name, frames)
        answers[name] = Session(footage, setup=setups[name], reuse=False).ask(question, show_map=True)
    report("selectors", len(names), len(names))
    return [Compared(name, answers[name], name in added) for name in names]
