"""Answer: what the model answered, from which frames, at what cost; as an object, as JSON and as a picture."""

import base64
import html
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from gridprobe.early_exit import EarlyExit
from gridprobe.importance import runs
from gridprobe.models import Posterior
from gridprobe.models.base import Basis, Cost
from gridprobe.open_ended import Kind, exact_match, kind_of
from gridprobe.question import Question, describes
from gridprobe.record import Record
from gridprobe.selectors import Selection
from gridprobe.video import FramePool


@dataclass(frozen=True)
class AnswerCost:
    """What overview, probing and focused pass cost, and what all frames would have cost."""

    probe: Cost = field(default_factory=Cost)
    focus: Cost = field(default_factory=Cost)
    baseline: Cost = field(default_factory=Cost)
    """One pass of the answering model over the whole pool at full size."""
    overview: Cost = field(default_factory=Cost)

    def __add__(self, other: "AnswerCost") -> "AnswerCost":
        return AnswerCost(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    @cached_property
    def total(self) -> Cost:
        """All stages together."""
        return self.overview + self.probe + self.focus

    @property
    def priced(self) -> bool:
        """Whether the floating-point operations of all passes are known; a server may not say what model it runs."""
        return not self.total.unpriced and not self.baseline.unpriced

    @property
    def tflops(self) -> float:
        """All passes, by the honest convention."""
        return self.total.tflops

    @property
    def tflops_paper(self) -> float:
        """All passes, by the published convention."""
        return self.total.tflops_paper

    @property
    def tflops_computed(self) -> float:
        """What was computed, by the honest convention: less than `tflops` if results were reused."""
        return self.total.tflops_computed


@dataclass(frozen=True)
class Seconds:
    """Wall-clock time of the stages; loading a model is not counted."""

    decode: float = 0.0
    probe: float = 0.0
    focus: float = 0.0
    overview: float = 0.0

    def __add__(self, other: "Seconds") -> "Seconds":
        return Seconds(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    @property
    def total(self) -> float:
        """All stages."""
        return self.decode + self.overview + self.probe + self.focus


@dataclass(frozen=True)
class Trace:
    """How an answer was reached."""

    by: Literal["overview", "all", "focus", "refined"] = "focus"
    """The pass it was read from: of all frames, small; of all at full size, where that takes less than two passes; the
    focused one; or one over stretches sampled again."""
    overview: Posterior | None = None
    """What the overview believed, if there was one."""
    focus: Posterior | None = None
    """What the focused pass believed, if there was one."""
    exit: EarlyExit | None = None
    """When the overview would have been sure, if that was asked."""
    stretches: tuple[tuple[float, float], ...] = ()
    """What was sampled again, in seconds."""
    native: bool = True
    """Whether the kept frames were shown at full size."""
    degraded: tuple[str, ...] = ()
    """What the limits cut, in sentences that are also among the answer's warnings."""

    @property
    def sure(self) -> bool:
        """Whether the overview was sure."""
        if self.overview is None or self.exit is None or self.windows > 1:
            return False
        return self.overview.confidence >= self.exit.threshold

    @property
    def windows(self) -> int:
        """In how many windows the overview showed the frames."""
        return 1 if self.overview is None else self.overview.windows

    @property
    def contradicted(self) -> bool:
        """Whether the focused pass answered otherwise than a sure overview."""
        if not self.sure or self.overview is None or self.focus is None:
            return False
        one, other = self.overview, self.focus
        same = one.choice == other.choice if one.basis == "letters" else exact_match(one.choice, other.choice)
        return not same


@dataclass(frozen=True, eq=False)
class Answer:
    """The answer to one question about one video."""

    question: Question
    posterior: Posterior
    selection: Selection
    cost: AnswerCost
    seconds: Seconds
    pool: FramePool
    """The frames to choose from, at the size the selector looked at."""
    frames: FramePool
    """The kept frames, at the size and in the order the answer was read from."""
    models: tuple[tuple[str, ...], str]
    """Identities of the models the selector asked, and of the answering model."""
    settings: Mapping[str, Any]
    """Everything that decided the answer, from `Plan.describe`."""
    warnings: tuple[str, ...] = ()
    reached: Trace = field(default_factory=Trace)

    def __repr__(self) -> str:
        kept = f"{self.selection.kept} of {self.selection.pool} frames"
        label = "" if self.question.open else f"{self.choice}: "
        return f"Answer({label}{self.text!r}, confidence={self.confidence:.3f}, from {kept})"

    def _repr_html_(self) -> str:
        """What a notebook shows: the answer as one picture."""
        from gridprobe.report.picture import draw_answer, jpeg

        picture = base64.b64encode(jpeg(draw_answer(self), quality=85)).decode()
        words = html.escape(repr(self))
        return f'<img alt="{words}" src="data:image/jpeg;base64,{picture}" style="width: 100%; max-width: 800px">'

    @property
    def choice(self) -> str:
        """The label, such as "B"; for a question without options, the text."""
        return self.posterior.choice

    @property
    def text(self) -> str:
        """The text of the chosen option, or the model's own."""
        return self.choice if self.question.open else self.question.option(self.choice)

    @property
    def confidence(self) -> float:
        """The probability of the chosen option among the question's own; for a text see `basis`."""
        return self.posterior.confidence

    @property
    def candidates(self) -> dict[str, float]:
        """The probability of each label; without options, of each text that was considered, likeliest first.

        Probabilities of texts sum to at most 1; the rest is anything else that the model could write.
        """
        pairs = zip(self.posterior.labels, self.posterior.shares, strict=True)
        return dict(sorted(pairs, key=lambda pair: -pair[1]) if self.question.open else pairs)

    @property
    def basis(self) -> Basis:
        """What the probabilities are."""
        return self.posterior.basis

    @property
    def kind(self) -> Kind | None:
        """What kind of text it is; "not said" if the video does not show what is asked. None for an option."""
        if not self.question.open:
            return None
        return "description" if describes(self.question.text) else kind_of(self.text)

    @property
    def shown_native(self) -> int:
        """How many frames the answer was read from at full size; 0 for an answer from an overview."""
        shown = self.selection.pool if self.reached.by == "all" else self.selection.kept
        return shown if self.reached.native else 0

    @property
    def right(self) -> bool | None:
        """Whether it is the question's known answer; None if that is not known. Texts must say the same."""
        truth = self.question.answer
        if truth is None:
            return None
        return exact_match(self.text, truth) if self.question.open else self.choice == truth

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain values, by src/gridprobe/schemas/answer.json."""
        return Record.of(self).to_dict()

    @property
    def evidence(self) -> tuple[tuple[float, float], ...]:
        """The stretches of the video around kept frames, in seconds; none where no single place decides."""
        if self.selection.kept == self.selection.pool:
            return ()
        times = self.pool.times
        return tuple((times[run[0]], times[run[-1]]) for run in runs(times, self.selection.indices))

    def save_map(self, path: str | Path) -> None:
        """Write the answer as one picture, a PNG or JPEG file as the ending of its name says."""
        from gridprobe.report.picture import save_map

        save_map([self], Path(path))

    def save_report(self, path: str | Path) -> None:
        """Write one self-contained HTML page about the answer."""
        from gridprobe.report.answer_page import save_report

        save_report([self], Path(path))
