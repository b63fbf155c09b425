"""What every rendering of an answer shows: the terminal, the picture and the pages all read an `AnswerView`."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

from gridprobe.answer import Answer
from gridprobe.early_exit import EarlyExit
from gridprobe.importance import runs, spread, top
from gridprobe.models import Posterior
from gridprobe.models.base import Basis, Cost, letter_doubt
from gridprobe.open_ended import exact_match
from gridprobe.report.format import (
    FLOOR,
    MAP_WORDS,
    amount,
    clock,
    levels,
    model_words,
    percent,
    score_words,
    share_words,
    sure_words,
)
from gridprobe.selectors.base import FLAT
from gridprobe.video import Pending
from gridprobe.video.frames import Pixels

MAIN = (0.5, 0.8)
"""A span with a frame of at least this level of importance is a main one; the second limit counts if the first
leaves more than MOST_SPANS."""
CONTRADICTS = "contradicts the overview"
"""What the warning of `gridprobe.ask.warnings_of` says of a focused pass that answers otherwise."""
MOST_SPANS = 4
"""If still more spans matter, no moment stands out. At most this many stretches are listed."""
DIMMEST, DIM = 0.3, 0.65
"""Brightness of a frame that was not kept, from the least to the most important one."""
PLAIN_DIM = 0.45
"""The same without a map."""
SHORT = 60.0
"""Videos of fewer seconds get times with tenths."""
LEAST_MARGIN = 1.0
"""Seconds of a clip before and after a kept frame, at least."""
READING = "Time runs left to right, row by row."
FOLDED = 0.0005
"""Options below this probability share one line."""
NAMED = 60
"""The texts of folded options are listed up to this many characters."""
ELSE, DOES_NOT_SAY = "(anything else)", "The video does not say"
BASIS_WORDS: dict[Basis, str] = {
    "letters": "how likely the model chooses it among the candidates it wrote",
    "written": "how likely the model writes it, in any wording that was drafted",
    "drafts": "the share of drafts that say it",
    "tokens": "the mean probability of its tokens",
}


class KeptSpan(NamedTuple):
    """Kept frames that are neighbours."""

    start: float
    end: float
    indices: tuple[int, ...]
    """Their positions in the pool."""
    tenths: bool = False
    """Whether its times are written with tenths of a second."""

    @property
    def words(self) -> str:
        """For example "2:40–2:44", or "2:40" for a single frame."""
        first, last = (clock(time, tenths=self.tenths) for time in (self.start, self.end))
        return first if first == last else f"{first}–{last}"


class Option(NamedTuple):
    """A possible answer."""

    label: str
    text: str
    share: float
    chosen: bool
    right: bool
    """Whether it is known to be the right answer."""


@dataclass(frozen=True)
class Stage:
    """One line of an answer's bill."""

    name: str
    cost: Cost
    share: float | None
    """Of the compute for all frames at full size, by the honest convention, or of the tokens if that is not known."""
    seconds: float


@dataclass(frozen=True, eq=False)
class AnswerView:
    """An answer as it is shown: what it says, where that is in the video, which frames were kept, and what it cost."""

    answer: Answer

    # What it says.

    @property
    def text(self) -> str:
        """The answer as a headline: its text, or that the video does not say."""
        return DOES_NOT_SAY if self.answer.kind == "not said" else self.answer.text

    @property
    def labelled_text(self) -> str:
        """The answer in a table, with its letter if it has one."""
        return self.text if self.answer.question.open else f"{self.answer.choice}. {self.answer.text}"

    @property
    def sure(self) -> str:
        """The probability of the answer."""
        return sure_words(self.answer.confidence)

    @property
    def doubt(self) -> str:
        """What speaks against the answer, in a sentence that stands next to it; empty for nothing."""
        return doubt_words(self.answer.warnings, self._letter_mass)

    @property
    def warnings(self) -> list[str]:
        """The other warnings."""
        doubts = doubts_of(self.answer.warnings, self._letter_mass)
        return [warning for warning in self.answer.warnings if warning not in doubts]

    @property
    def _letter_mass(self) -> float | None:
        return self.answer.posterior.mass if self.answer.basis == "letters" else None

    @property
    def verdict(self) -> str:
        """Whether the answer is right, and what is; empty if that is not known."""
        question, right = self.answer.question, self.answer.right
        if right is None:
            return ""
        truth = question.answer or ""
        return "right" if right else f"wrong: it is {truth if question.open else question.option(truth)}"

    @property
    def video_name(self) -> str:
        """The name of the video file; empty if the frames did not come from a file."""
        return Path(self.answer.pool.info.path).name if self.answer.pool.info else ""

    @property
    def model(self) -> str:
        """The model; if one selects and another answers, both."""
        return model_words(*self.answer.models)

    # Options.

    @cached_property
    def options(self) -> list[Option]:
        """The chosen option, then the others, most likely first; for an answer in words, what else could be written."""
        question, posterior = self.answer.question, self.answer.posterior
        options = []
        for label, share in zip(posterior.labels, posterior.shares, strict=True):
            chosen = label == self.answer.choice
            if question.open:
                right = question.answer is not None and exact_match(label, question.answer)
                options.append(Option("", label, share, chosen, right))
            else:
                options.append(Option(label, question.option(label), share, chosen, label == question.answer))
        rest = 1.0 - sum(option.share for option in options)
        if question.open and posterior.basis != "tokens" and rest >= FOLDED:
            options.append(Option("", ELSE, rest, chosen=False, right=False))
        return sorted(options, key=lambda option: (not option.chosen, option.text == ELSE, -option.share))

    @property
    def folded_options(self) -> list[Option]:
        """The unlikely options that share one line; none if it would be a single one."""
        unlikely = [each for each in self.options if each.share < FOLDED and not each.chosen and not each.right]
        return unlikely if len(unlikely) > 1 else []

    @property
    def shown_options(self) -> list[Option]:
        """The options to show one by one; the right answer is always among them."""
        folded = self.folded_options
        return [option for option in self.options if option not in folded]

    @property
    def folded_words(self) -> str:
        """For example "7 others below 0.05% each: purple, green, …"; empty for none."""
        folded = self.folded_options
        if not folded:
            return ""
        texts = ", ".join(option.text for option in folded)
        short = texts if len(texts) <= NAMED else texts[: NAMED - 1].rstrip(", ") + "…"
        return f"{len(folded)} others below {percent(FOLDED, 2)} each: {short}"

    @property
    def options_title(self) -> str:
        """The heading of the options."""
        return f"Candidates: {self.basis}" if self.answer.question.open else "Options"

    @property
    def basis(self) -> str:
        """What the percentages of an answer in words are; empty for options."""
        return BASIS_WORDS[self.answer.posterior.basis] if self.answer.question.open else ""

    # Where it is.

    @property
    def length(self) -> float:
        """The end of the timeline, in seconds."""
        info, last = self.answer.pool.info, self.answer.pool.times[-1]
        return max(last, info.duration or 0.0 if info else 0.0) or 1.0

    @property
    def is_short(self) -> bool:
        """Whether the video is so short that whole seconds do not tell its frames apart."""
        return self.length < SHORT

    @cached_property
    def kept(self) -> tuple[int, ...]:
        """Positions of the frames that the selection points at: none of an overview without a map, and none of all."""
        selection = self.answer.selection
        if selection.kept == selection.pool or (self._is_overview and selection.evidence is None):
            return ()
        return selection.indices

    @property
    def _is_overview(self) -> bool:
        return self.answer.reached.by == "overview"

    @property
    def kept_words(self) -> str:
        """For example "9 of 144 frames"."""
        selection = self.answer.selection
        return f"{selection.kept} of {selection.pool} frame{'' if selection.pool == 1 else 's'}"

    @property
    def mark(self) -> str:
        """What a mark on a frame says: it was kept; or, after an overview, the answer is there, or it matters most."""
        if not self._is_overview:
            return "kept"
        evidence = self.answer.selection.evidence
        return "seen here" if evidence is not None and evidence.kind == "evidence" else "most important"

    @property
    def frames_title(self) -> str:
        """A heading for the frames of the selection, which an answer from the overview did not need."""
        return f"{self.mark.capitalize()}: {self.kept_words}"

    @cached_property
    def levels(self) -> list[float] | None:
        """Importance of every frame from 0 to 1; None without scores."""
        return levels_of(self.answer.selection.scores)

    @cached_property
    def spans(self) -> list[KeptSpan]:
        """The kept frames as spans of neighbours, in time order."""
        times = self.answer.pool.times
        spans = [KeptSpan(times[run[0]], times[run[-1]], run) for run in runs(times, self.kept)]
        same = len({span.words for span in spans}) < len(spans)
        return [span._replace(tenths=True) for span in spans] if same or self.is_short else spans

    @cached_property
    def main_spans(self) -> list[KeptSpan]:
        """The spans with important frames; empty if no moment stands out."""
        levels = self.levels
        if levels is None or self._is_flat:
            return []
        highest = {span: max(levels[i] for i in span.indices) for span in self.spans}
        main = ([span for span in self.spans if highest[span] >= limit] for limit in MAIN)
        return next((some for some in main if len(some) <= MOST_SPANS), [])

    @property
    def moments(self) -> list[KeptSpan]:
        """The main spans, or all if no moment stands out."""
        return self.main_spans or self.spans

    @cached_property
    def main_frames(self) -> set[int]:
        """Positions of the frames of the main spans."""
        return {index for span in self.main_spans for index in span.indices}

    @property
    def _is_flat(self) -> bool:
        scores = self.answer.selection.scores or (0.0,)
        return FLAT in self.answer.selection.notes or max(scores) - min(scores) <= FLOOR * max(map(abs, scores))

    @property
    def every_frame(self) -> str:
        """For example "all 144 frames"."""
        count = self.answer.selection.pool
        return f"all {count} frames" if count > 1 else "the only frame"

    @property
    def where(self) -> str:
        """For example "seen at 2:40–2:44, in 2 of 144 frames"."""
        selection, main = self.answer.selection, self.main_spans
        at = "at" if main == self.spans else "mainly at"
        moments = _listed([span.words for span in main])
        if main and self._is_overview and self.mark == "seen here":
            return f"seen {at} {moments}, in {self.kept_words}"
        if self._is_overview or selection.kept == selection.pool:
            read = f"read from {self.every_frame}"
        else:
            read = f"read from {self.kept_words}"
        if main:
            return f"{read}, {'mainly at' if self._is_overview else at} {moments}"
        return f"{read}; no moment stands out" if selection.scores is not None else f"{read}{self._range}"

    @property
    def _range(self) -> str:
        """From where to where frames were kept, for selectors that do not say which matter."""
        if not self.kept:
            return ""
        times = self.answer.pool.times
        first, last = (clock(times[index], tenths=self.is_short) for index in (self.kept[0], self.kept[-1]))
        return f", between {first} and {last}" if len(self.kept) > 1 else f", at {first}"

    @property
    def subtitles(self) -> str:
        """For example "with the subtitles of talk.en.vtt, 214 lines"; empty without any."""
        used = self.answer.settings.get("subtitles")
        if not used:
            return ""
        shown = "" if used["shown"] == used["lines"] else f"{used['shown']} of "
        return f"with the subtitles of {used['source']}, {shown}{used['lines']} line{'s' * (used['lines'] != 1)}"

    @property
    def sentence(self) -> str:
        """For example "cyan: seen at 2:40–2:44, in 2 of 144 frames"."""
        return f"{self.text}: {self.where}"

    # Frames.

    @cached_property
    def pixels(self) -> dict[int, Pixels]:
        """Position in the pool -> pixels, for every frame that was decoded to give the answer; none is decoded for it.

        A kept frame is shown as the answering model saw it. Other frames have the size the selector looked at; a
        selector that looks at no pixels leaves them undecoded, and they are missing here.
        """
        kept, pool, selection = self.answer.frames, self.answer.pool, self.answer.selection
        decoded = not isinstance(pool.data, Pending) or pool.data.decoded
        pixels = dict(enumerate(pool.pixels)) if decoded else {}
        place = {time: row for row, time in enumerate(kept.times)}  # kept frames may be in order of importance
        for index, time in zip(selection.indices, selection.timestamps, strict=True):
            pixels[index] = kept.pixels[place[time]]
        return pixels

    @property
    def aspect(self) -> float:
        """Width of a frame as a multiple of its height."""
        return self.answer.frames.width / self.answer.frames.height

    @cached_property
    def brightness(self) -> list[float]:
        """How bright each frame is drawn, from 0 to 1: kept frames wholly, others by their importance."""
        pool, levels = self.answer.selection.pool, self.levels
        if not self.kept:
            return [1.0] * pool
        dimmed = [PLAIN_DIM] * pool if levels is None else [DIMMEST + (DIM - DIMMEST) * level for level in levels]
        kept = set(self.kept)
        return [1.0 if i in kept else share for i, share in enumerate(dimmed)]

    def large_frames(self, most: int) -> tuple[int, ...]:
        """The kept frames to show large, in time order: of more than `most` the most important, or an even sample."""
        kept = self.kept or (() if self._is_overview else self.answer.selection.indices)
        if len(kept) <= most:
            return kept
        levels = self.levels
        chosen = spread(len(kept), most) if levels is None else top(np.array([levels[i] for i in kept]), most)
        return tuple(kept[place] for place in chosen)

    def large_words(self, most: int) -> str:
        """Which of the kept frames are shown large; empty if all are."""
        shown, kept = len(self.large_frames(most)), self.answer.selection.kept
        if shown in (0, kept):
            return ""
        return f"{shown} of {kept} frames, " + ("evenly spaced" if self.levels is None else "the most important")

    @property
    def sheet_words(self) -> str:
        """How a contact sheet is read, and what brightness and frames mean on it."""
        if not self.kept:
            return f"{READING} No frame was preferred."
        others = "dark: not kept" if self.answer.selection.scores is None else "the darker, the less important"
        return f"{READING} Framed: {self.mark}; {others}."

    @property
    def clip_stretches(self) -> list[tuple[float, float]]:
        """The moments, each with half the distance of two frames before and after; joined, in time order."""
        usual = median([b - a for a, b in pairwise(self.answer.pool.times)] or [0.0])
        margin, stretches = max(LEAST_MARGIN, usual / 2), list[tuple[float, float]]()
        for span in self.moments:
            start, end = max(0.0, span.start - margin), min(self.length, span.end + margin)
            if stretches and start <= stretches[-1][1]:
                start, end = stretches.pop()[0], max(end, start)
            stretches.append((start, end))
        return stretches

    # How it was answered.

    @property
    def reached(self) -> str:
        """One sentence: which frames the answer was read from, and how sure the overview was."""
        reached = self.answer.reached
        if reached.by == "overview":
            return f"Answered from the overview of {self.every_frame}; it was {_sureness(self.answer)}."
        if reached.by == "refined":
            source = "their overview" if reached.focus is None else self._focused
            where = f"segments sampled again, since the overview was not sure: {_stretches(self.answer)}"
            return f"Answered from {where}; read from {source}."
        if reached.by == "all":
            less = "less than an overview and a closer look would"
            return f"Answered from all {self.answer.selection.pool} frames at full size in one pass, which took {less}."
        overview = f"; the overview was {_sureness(self.answer)}" if reached.overview else ""
        return f"Answered from {self._focused}{overview}."

    @property
    def _focused(self) -> str:
        """The frames that the focused pass showed."""
        selection, settings = self.answer.selection, self.answer.settings
        kept = self.every_frame if selection.kept == selection.pool else self.kept_words
        if settings.get("show") == "collage":
            return f"{kept} in one picture"
        extra = [f"{len(each.indices)} at {percent(each.share, 0)} of its side" for each in selection.extra_frames]
        frames = f"{selection.kept} frame{'' if selection.kept == 1 else 's'} at full size"
        if settings.get("context") and selection.kept < selection.pool:
            if settings.get("close_ups"):
                return f"{frames} behind the overview"
            extra.append("all others small")
        if extra:
            return f"{frames} among {' and '.join(extra)}"
        own = settings.get("selector", {}).get("view")
        small = own is not None and settings["view"]["pixels"] == own["pixels"]
        return f"{kept}, small" if small else f"{kept} at full size"

    @property
    def stages(self) -> list[str]:
        """What each stage preferred, for example "overview: green 43.0%"; empty for an answer with one stage."""
        passes = {"overview": self.answer.reached.overview, "focus": self.answer.reached.focus}
        stages = [f"{name}: {self._preferred(each)}" for name, each in passes.items() if each is not None]
        return stages if len(stages) > 1 else []

    def _preferred(self, posterior: Posterior) -> str:
        question = self.answer.question
        text = posterior.choice if question.open else question.option(posterior.choice)
        return f"{text} {sure_words(posterior.confidence)}"

    # What it cost.

    @cached_property
    def bill(self) -> list[Stage]:
        """The stages that were run, then their total; decoding needs no compute and is not among them."""
        cost, seconds, reached = self.answer.cost, self.answer.seconds, self.answer.reached
        lines = {
            "overview": (cost.overview, seconds.overview, reached.overview is not None or bool(cost.overview.calls)),
            "probes": (
                cost.probe,
                seconds.probe,
                self.answer.selection.evidence is not None or bool(cost.probe.calls),
            ),
            "focus": (cost.focus, seconds.focus, reached.focus is not None or bool(cost.focus.calls)),
            "total": (cost.total, seconds.total, True),
        }
        whole = _size(cost.baseline, priced=cost.priced)
        return [
            Stage(name, spent, _size(spent, priced=cost.priced) / whole if whole > 0 else None, time)
            for name, (spent, time, shown) in lines.items()
            if shown
        ]

    @property
    def compute(self) -> str:
        """For example "17% of the compute of showing all 144 frames at full size"; empty if nothing is known."""
        share = self.bill[-1].share
        if not share:
            return ""
        what = "compute" if self.answer.cost.priced else "tokens"
        return f"{share_words(share)} of the {what} of showing {self.every_frame} at full size"

    @property
    def details(self) -> dict[str, str]:
        """The mathematics of the map, compute by both conventions, tokens and models, by name."""
        cost, evidence = self.answer.cost, self.answer.selection.evidence
        names = dict.fromkeys((*self.answer.models[0], self.answer.models[1]))
        details = {"selector": self.answer.selection.selector}
        if evidence is not None:
            low, high = (score_words(value, 3) for value in (evidence.scores.min(), evidence.scores.max()))
            shape = evidence.shape
            details["map"] = f"{MAP_WORDS[evidence.kind]}; from {low} to {high}"
            details["shape"] = (
                f"σ {shape.sigma:.2f}, skew {shape.skew:.2f}, excess kurtosis {shape.excess_kurtosis:.2f}"
            )
            details["rows"] = " ".join(f"{value:.2f}" for value in evidence.row_confidence)
            details["columns"] = " ".join(f"{value:.2f}" for value in evidence.column_confidence)
        details["compute"] = _compute(cost.tflops, cost.baseline.tflops)
        details["published"] = f"{_compute(cost.tflops_paper, cost.baseline.tflops_paper)}, by the published convention"
        if not cost.priced:
            details |= {"compute": "TFLOPs unknown, as the server's model is not known", "published": ""}
        details |= {"tokens": _tokens(cost.total), "model": " and ".join(names), "confidence": self.basis}
        return {name: value for name, value in details.items() if value}


def levels_of(scores: Sequence[float] | None) -> list[float] | None:
    """These scores from 0 to 1; None without scores."""
    return None if scores is None else levels([float(score) for score in scores])


def doubts_of(warnings: Sequence[str], letter_mass: float | None) -> list[str]:
    """The warnings of an answer or of its record that put the answer itself in doubt."""
    unlikely = letter_doubt(1.0 if letter_mass is None else letter_mass)
    passes = [f"in the {name} {unlikely}" for name in ("overview", "focused pass")] if unlikely else []
    return [each for each in warnings if CONTRADICTS in each or each in passes]


def doubt_words(warnings: Sequence[str], letter_mass: float | None) -> str:
    """For example "doubtful: the model puts only 2.0% of its probability on the option letters"; empty for none."""
    doubts = doubts_of(warnings, letter_mass)
    return f"doubtful: {'; '.join(doubts)}" if doubts else ""


def total_words(answers: Sequence[Answer]) -> str:
    """For example "3 of 4 right"; empty if no right answer is known."""
    judged = [answer.right for answer in answers if answer.right is not None]
    unknown = len(answers) - len(judged)
    rest = f"; the right answer of {unknown} is not known" if unknown else ""
    return f"{sum(judged)} of {len(judged)} right{rest}" if judged else ""


def _listed(items: Sequence[str]) -> str:
    """For example "2:40, 3:10 and 5:00"."""
    return " and ".join(filter(None, (", ".join(items[:-1]), *items[-1:])))


def _stretches(answer: Answer) -> str:
    texts = [f"{clock(start)}–{clock(end)}" for start, end in answer.reached.stretches]
    rest = f" and {len(texts) - MOST_SPANS} more" if len(texts) > MOST_SPANS else ""
    return ", ".join(texts[:MOST_SPANS]) + rest


def _sureness(answer: Answer) -> str:
    """How sure the overview was, and of what if the answer is not its own."""
    reached = answer.reached
    assert reached.overview is not None
    confidence, exit = reached.overview.confidence, reached.exit
    choice = "" if reached.by == "overview" else reached.overview.choice
    if exit is None:
        return f"{percent(confidence)} sure" + (f" of {choice}" if choice else "")
    confident = f"{choice}, " * bool(choice) + _visible(confidence, exit)
    return f"{'sure' if reached.sure else 'not sure'} ({confident}, the limit is {100 * exit.threshold:g}%)"


def _visible(confidence: float, exit: EarlyExit) -> str:
    """The confidence with enough digits to be visibly on its side of the limit."""
    sure = confidence >= exit.threshold
    texts = (percent(confidence, digits) for digits in range(1, 7))
    return next((text for text in texts if (float(text[:-1]) / 100 >= exit.threshold) == sure), percent(confidence, 7))


def _size(spent: Cost, *, priced: bool) -> float:
    return spent.tflops if priced else spent.tokens


def _compute(spent: float, baseline: float) -> str:
    return f"{amount(spent)} TFLOPs" + (f" instead of {amount(baseline)}" if baseline > 0 else "")


def _tokens(total: Cost) -> str:
    passes = "1 pass" if total.calls == 1 else f"{total.calls} passes"
    cached = f", {total.cached_tokens:,} from the server's cache" if total.cached_tokens else ""
    money = f", for {total.money:.3g} at the given prices" if total.money else ""
    return f"{total.tokens:,}, {total.visual_tokens:,} of them visual{cached}, in {passes}{money}"
