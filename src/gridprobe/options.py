"""Options: every setting of a question once, and four presets; a Plan is what they resolve to.

`paper` reproduces the published method, its flaws included: frames fused in pairs, shrunk by the engine from full size
to a squashed 224×224, with the times of the first seconds of a 24 fps clip. `authors` is `paper` with what their code
does differently from their text: its budget with its ties, and probes shrunk from frames of the video's own size.

`default` is ours: an overview of all frames, small; where that is not sure, the frames that the question looks at,
large among all others; single frames, decoded straight to the probes' size, aspect kept, true times. `gridworld` is
`default` with small frames of 64 pixels, since frames of gridworld are small themselves and 224 pixels would save
nothing, and with the encoder of the package. Every setting can be changed on top of any of them.

The options of the command line, the fields of HTTP requests, the arguments of agents and `gridprobe list settings` are
made from the fields of `Options`: a new setting is one field here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from functools import cache
from json import loads
from math import isqrt
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from gridprobe.early_exit import EarlyExit, find
from gridprobe.errors import UsageError
from gridprobe.importance import MAX_K, Budget, Fixed, Ties, spread
from gridprobe.limits import LIMITS, LimitedEncoder, LimitedModel, UsageLimits, UsageTracker
from gridprobe.models import CostModel, LazyModel, Model, ModelLike, as_model
from gridprobe.models.base import FrameGroup, Packing, PromptOrder, Request, Timestamps, View, choose
from gridprobe.models.wrappers import chunked
from gridprobe.open_ended import OpenRule
from gridprobe.question import MAX_OPTIONS, Question
from gridprobe.registry import BUDGETS, SELECTORS, suggestion
from gridprobe.selectors import ExtraFrames, GridProbe, Parts, Selection, Selector
from gridprobe.selectors.base import PROBE, PROBE_SIDE, LazyEncoder, Probes
from gridprobe.selectors.gridprobe import collage_request, overview_request
from gridprobe.video import NATIVE, FramePool, FrameSize, SampleSpec, Video, VideoLimits, open_cache

DECODE_IN: Literal["child", "process"] = "child"
"""Videos are decoded in a child process, so that a decoder that crashes or hangs is an error of one line."""
Effort = Literal["quick", "auto", "full", "focus"]
Show = Literal["time", "importance", "collage"]
FramesAt = Callable[[Sequence[int], FrameSize], FramePool]
"""The frames at some places of a pool, at a size."""


def setting(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    flag: bool = False,
    metavar: str | None = None,
    request: bool = False,
) -> Any:
    """A field of `Options`: bounds, help, whether it is a flag, and whether requests over HTTP may change it."""
    described = {"help": help, "low": low, "high": high, "flag": flag, "metavar": metavar, "request": request}
    if callable(default):
        return field(default_factory=default, metadata=described)
    return field(default=default, metadata=described)


@dataclass(frozen=True)
class Options:
    """How frames are sampled, shown, probed, chosen and answered from."""

    preset: str = "default"
    """Where the values come from; it decides what frames="auto" and an encoder without a name mean."""
    k: int = setting(12, "sample K² frames", low=1, high=MAX_K, flag=True, metavar="K", request=True)
    frames: int | str = setting(
        "auto",
        "how many frames to keep: a number, or a rule such as noise or shape:0.25; auto is the preset's rule",
        low=1,
        high=MAX_K**2,
        flag=True,
        metavar="N|RULE",
        request=True,
    )
    effort: Effort | None = setting(
        None,
        "how far to go: quick is the overview; auto, if it is sure; full, the kept frames; focus, no overview",
        flag=True,
        request=True,
    )
    """The overview shows all frames, small, in one pass. Where it is not sure, "auto" makes the map and answers from
    the focused pass; "full" always goes on to it. "focus" is as published. None is "auto" for the selector gridprobe
    and "focus" for all others."""
    exit_confidence: float | Literal["calibrated"] = setting(
        "calibrated",
        "confidence at which effort=auto takes the overview's answer",
        low=0,
        high=1,
        flag=True,
        metavar="P",
        request=True,
    )
    """By default what `gridprobe calibrate` found for these models and settings, or else a cautious number."""
    refine: bool = setting(False, "where the overview is not sure, sample promising stretches again", request=True)
    probes: Probes = setting(
        "attention",
        "what the map is made from; when asks in which part it is shown, fresh about rows and columns, as published",
        request=True,
    )
    rotations: int = setting(
        1, "in how many orders the options are shown; 1 is off", low=1, high=MAX_OPTIONS, request=True
    )
    precision: Literal["exact", "keyframe", "auto"] = setting(
        "auto", "whether a keyframe near a sampled moment may stand for it"
    )
    stream: int | None = setting(
        None,
        "number of the video stream, for files with several; by default the default one",
        low=0,
        high=999,
        request=True,
    )
    packing: Packing = setting("single", "frames one by one, or fused in pairs as published")
    prompt_order: PromptOrder = setting("frames_first", "what the model reads first")
    small: FrameSize = setting(PROBE, "size of the small frames: in probes, in the overview and as context")
    full: FrameSize = setting(NATIVE, "size of the kept frames")
    probe_input: Literal["small", "shrunk", "source", "collage"] = setting(
        "small", "what a fresh probe is made of: small frames, full ones that the engine shrinks, or one picture"
    )
    """With "small" all K² frames are decoded at `small`, and the kept ones once more at `full`. "shrunk" decodes all at
    `full` and leaves shrinking to the engine; 144 frames then take 300 MB. "source" decodes them at the video's own
    size, as the authors' code does; 144 frames of 1080p then take 900 MB. "collage" shows the frames of a probe as one
    picture of 2048×2048, as the paper's appendix A says."""
    context: Literal["none", "small"] | None = setting(
        None,
        "what is shown in addition to the kept frames: nothing, or all others, small",
        request=True,
    )
    """None is "small" after an overview, and "none" without one, in a collage or in order of importance."""
    sheet: int | Literal["auto"] = setting("auto", "how many small frames stand next to each other in a picture", low=1)
    """n × n frames are one contact sheet, with their times in the text. "auto" is 1, but for models that spend the same
    number of tokens on every picture."""
    show: Show = setting("time", "the kept frames in order of time or importance, or as one picture", request=True)
    chunk: int | None = setting(None, "the most frames in one pass; by default as many as the model can read", low=1)
    """More frames are shown in several passes; see `gridprobe.models.wrappers`."""
    template: str | None = setting(None, "prompt template; by default the question's own")
    limits: VideoLimits = setting(VideoLimits, "how large, long and slow a video may be")
    usage_limits: UsageLimits = setting(UsageLimits, "what a question may take")

    def __post_init__(self) -> None:
        for each in settings():
            each.check(getattr(self, each.name))
        _ = self.rule, self.small_view

    @property
    def rule(self) -> Budget:
        """How many frames are kept."""
        if isinstance(self.frames, int):
            return Fixed(self.frames)
        return _rule(AUTO[self.preset] if self.frames == "auto" else self.frames)

    @property
    def ties(self) -> Ties:
        """Which of equally important frames are kept: an even sample of them, unless the preset is a published one."""
        published: dict[str, Ties] = {"paper": "earliest", "authors": "argsort"}
        return published.get(self.preset, "spread")

    @property
    def sampling(self) -> Literal["middle", "linspace"]:
        """The middle of each of K² equal parts; the published presets sample from the first frame to the last."""
        return "linspace" if self.preset in PUBLISHED else "middle"

    @property
    def timestamps(self) -> Timestamps:
        """The true times of frames; the published presets show those of a 24 fps clip."""
        return "paper" if self.preset in PUBLISHED else "true"

    @property
    def sample(self) -> SampleSpec:
        """How a video is sampled."""
        return SampleSpec(
            self.k**2, self.sampling, self.precision, self.limits, decode_in=DECODE_IN, stream=self.stream
        )

    @property
    def full_view(self) -> View:
        """How the kept frames are shown."""
        return View(self.full, self.packing, self.timestamps)

    @property
    def small_view(self) -> View:
        """How frames are shown in probes, in the overview and as context."""
        return View(self.small, self.packing, self.timestamps, 0 if self.sheet == "auto" else self.sheet)

    @property
    def probe_size(self) -> FrameSize | None:
        """The size the K² frames are decoded at, where that is not the size of the probes."""
        return {"small": None, "shrunk": self.full, "collage": self.full, "source": FrameSize()}[self.probe_input]

    def changed(self, **changes: Any) -> "Options":
        """The same with some settings replaced; an unknown name is an error that suggests the right one.

        A limit of `UsageLimits`, such as `max_seconds`, is a name as well.
        """
        names = {each.name: each for each in settings()}
        usage = {name: changes.pop(name) for name in LIMITS if name in changes}
        for name in changes:
            if name not in names:
                raise UsageError(f"unknown setting {name!r}; {suggestion(name, [*names, *LIMITS])}")
        values = {name: names[name].value(value, getattr(self, name)) for name, value in changes.items()}
        if usage:
            values["usage_limits"] = replace(values.get("usage_limits", self.usage_limits), **usage)
        return replace(self, **values)

    @classmethod
    def from_preset(cls, preset: str, **changes: Any) -> "Options":
        """A preset by name, with changes on top."""
        if preset not in PRESETS:
            raise UsageError(f"unknown preset {preset!r}; {suggestion(preset, PRESETS)}")
        return PRESETS[preset].changed(**changes)

    def resolve(
        self,
        *,
        model: ModelLike,
        answer_model: ModelLike | None = None,
        selector: str | Selector = "gridprobe",
    ) -> "Plan":
        """Check names and turn them into values. Models are not loaded: `Plan.loaded` does that."""
        probing = as_model(model)
        answering = probing if answer_model is None else as_model(answer_model)
        chosen = _selector(selector, probing, self)
        effort = self.effort or ("auto" if isinstance(chosen, GridProbe) else "focus")
        context = self.context or ("none" if effort == "focus" or self.show != "time" else "small")
        plan = Plan(
            model=probing,
            answerer=answering,
            selector=chosen,
            view=self.full_view,
            context=self.small_view if context == "small" else None,
            overview=None if effort == "focus" else self.small_view,
            effort=effort,
            exit=None if self.exit_confidence == "calibrated" else EarlyExit(self.exit_confidence, "given"),
            refine=self.refine,
            rotations=self.rotations,
            sampling=self.sample,
            preset=self.preset,
            show=self.show,
            template=self.template,
            prompt_order=self.prompt_order,
            chunk=self.chunk,
            usage_limits=self.usage_limits,
        )
        return plan.using(probing, answering)


def _rule(name: str) -> Budget:
    if name.partition(":")[0] not in BUDGETS:
        rules = ", ".join(BUDGETS)
        raise UsageError(
            f"frames must be auto, a whole number of at least 1 or a rule ({rules}), got {name!r}; "
            f"{suggestion(name, BUDGETS)}"
        )
    make, argument = BUDGETS.resolve(name)
    rule: Budget = make(argument)
    return rule


@dataclass(frozen=True)
class Setting:
    """A field of `Options`, for whoever makes flags, schemas or tables of them."""

    name: str
    kind: Any
    """Its type."""
    default: Any
    help: str
    low: float | None
    high: float | None
    flag: bool
    metavar: str | None
    request: bool

    @property
    def kinds(self) -> tuple[Any, ...]:
        """The members of its type, if that is a union."""
        return get_args(self.kind) if get_origin(self.kind) in (Union, UnionType) else (self.kind,)

    @property
    def choices(self) -> tuple[str, ...]:
        """The words it may be; none if it may be something else as well."""
        kinds = [kind for kind in self.kinds if kind is not NoneType]
        return get_args(kinds[0]) if len(kinds) == 1 and get_origin(kinds[0]) is Literal else ()

    @property
    def words(self) -> str:
        """What it may be, for example "auto or a whole number of at least 1"."""
        if self.name == "frames":
            return f"auto, a whole number of at least 1 or a rule ({', '.join(BUDGETS)})"
        return " or ".join(self._words(kind) for kind in self.kinds if kind is not NoneType)

    def _words(self, kind: Any) -> str:
        if get_origin(kind) is Literal:
            names = get_args(kind)
            return names[0] if len(names) == 1 else f"one of {', '.join(names)}"
        if kind in (int, float):
            number = "a whole number" if kind is int else "a number"
            if self.high is not None:
                return f"{number} from {self.low:g} to {self.high:g}"
            return number if self.low is None else f"{number} of at least {self.low:g}"
        if is_dataclass(kind):
            return f"an object with {', '.join(each.name for each in fields(kind))}"
        return {bool: "true or false", str: "a name"}[kind]

    def check(self, value: Any) -> None:
        """Raise UsageError unless it may be this."""
        if not any(self._fits(value, kind) for kind in self.kinds):
            raise UsageError(f"{self.name} must be {self.words}, got {value!r}")

    def _fits(self, value: Any, kind: Any) -> bool:
        if get_origin(kind) is Literal:
            return isinstance(value, str) and value in get_args(kind)
        if kind not in (int, float):
            return isinstance(value, kind)
        if isinstance(value, bool) or not isinstance(value, int if kind is int else (int, float)):
            return False
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)

    def value(self, value: Any, before: Any) -> Any:
        """A value of its type: sizes may come as JSON objects, limits as objects with what differs from `before`."""
        if not isinstance(value, Mapping) or not is_dataclass(self.kind):
            return value
        try:
            return self.kind(**value) if self.kind is FrameSize else replace(before, **value)
        except TypeError:
            raise UsageError(f"{self.name} must be {self.words}, got {', '.join(map(str, value))}") from None


@cache
def settings() -> tuple[Setting, ...]:
    """All settings."""
    hints = get_type_hints(Options)
    return tuple(
        Setting(each.name, hints[each.name], each.default_factory() if callable(each.default_factory) else each.default,
                **each.metadata)
        for each in fields(Options)
        if each.metadata
    )  # fmt: skip


def parse_changes(texts: Sequence[str]) -> dict[str, Any]:
    """Settings from texts such as "frames=shape:0.3", "limits.seconds=300" or 'small={"max_side": 96}'."""
    changes: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"--set takes NAME=VALUE, got {text!r}")
        name, dot, part = name.partition(".")
        if dot:
            before = changes.get(name)
            changes[name] = {**(before if isinstance(before, dict) else {}), part: parse_value(value)}
        else:
            changes[name] = parse_value(value)
    return changes


def parse_value(text: str) -> Any:
    """A value as JSON, or the text itself."""
    try:
        return loads(text)
    except ValueError:
        return text


PUBLISHED = ("paper", "authors")
"""The presets whose clips are sampled and timed as published."""
AUTO = {"default": "noise", "paper": "shape", "authors": "authors", "gridworld": "noise"}
"""Preset -> the rule behind frames="auto"."""
ENCODER = {"gridworld": "embedded"}
"""Preset -> the encoder of selectors that are named without one, where it is not that of the selector's paper."""
PRESET_HELP = {
    "default": "single frames, original aspect ratio, true times, ties spread over time",
    "paper": "the published method: fused frame pairs, 224×224, times as in a 24 fps clip",
    "authors": "as paper, and where text and code of the authors differ, as their code",
    "gridworld": "as default, with probes of 64 pixels; for the embedded models",
}
QWEN_VIDEO = replace(NATIVE, twice=True, min_pixels=131_072, total_pixels=117_964_800)
"""How qwen_vl_utils sizes a list of frames: 128 to 768 tokens of 32×32 pixels each, and 115,200 together."""
PAPER = Options(
    preset="paper",
    precision="exact",
    packing="pairs",
    small=FrameSize(square=PROBE_SIDE),
    full=QWEN_VIDEO,
    probe_input="shrunk",
    effort="focus",
    probes="fresh",
    context="none",
    template="paper",
)
PRESETS = {
    "default": Options(),
    "paper": PAPER,
    "authors": replace(PAPER, preset="authors", probe_input="source"),
    "gridworld": Options(preset="gridworld", small=FrameSize(max_side=64)),
}


# A plan: everything that decides an answer but the video and the question, as values.
#
#     plan = Options.from_preset("gridworld", frames=8).resolve(model="embedded")    # names are checked
#     plan = plan.loaded()                                                           # and now loaded
#
# `resolve` is where names become values; what stands behind it takes a Plan. Answers and run folders store
# `plan.describe()`, so they cannot claim anything else than what was done.

LOOK = 0.5
"""The share of one pass over all frames at full size that the overview may take."""
LEFT_OUT = ("preset", "effort", "exit", "usage_limits")
"""What a calibrated exit does not depend on."""


@dataclass(frozen=True)
class Plan:
    """How a video is sampled, how frames are chosen and shown, and which models are asked."""

    model: Model
    """The model that selectors ask."""
    answerer: Model
    """The model that answers from the kept frames."""
    selector: Selector
    view: View
    """How the kept frames are shown."""
    context: View | None = None
    """How the frames that were not kept are shown, among the kept ones in time order; None leaves them out."""
    overview: View | None = None
    """How all frames are shown to `model` in the overview; None takes none."""
    effort: Effort | Literal["all"] = "focus"
    """How far a question is taken after the overview; see `Options.effort`. With "all" there is one pass, over all
    frames at full size; see `never_dearer`."""
    most_kept: int | None = None
    """The most frames that may be kept, so that a question takes no more than that pass."""
    exit: EarlyExit | None = None
    """When the overview is sure; None looks a calibration up once the models are loaded."""
    refine: bool = False
    """Whether to sample hot stretches again where the overview is not sure."""
    rotations: int = 1
    """In how many orders the options are shown."""
    sampling: SampleSpec | None = None
    """How the video is sampled; None when the caller brings the frames."""
    preset: str = ""
    """The preset it was made from, if any."""
    show: Show = "time"
    """The kept frames in order of time or importance, or as one picture."""
    template: str | None = None
    """Name of a prompt template; None leaves the question's own."""
    prompt_order: PromptOrder = "frames_first"
    chunk: int | None = None
    """The most frames that a model reads at once, where that is less than it can."""
    usage_limits: UsageLimits = field(default_factory=UsageLimits)
    """What a question may take."""

    def __post_init__(self) -> None:
        if (self.overview is None) != (self.effort == "focus"):
            raise UsageError(f"effort={self.effort} and overview={self.overview} do not fit each other")
        if self.refine and self.overview is None:
            raise UsageError("refine looks again where an overview is not sure; effort=focus takes none")
        if self.overview is not None and "paper" in (self.overview.timestamps, self.view.timestamps):
            raise UsageError("an overview shows true times, the published presets do not; use effort=focus with them")
        untimed = self.show != "time" or self.view.timestamps == "paper"
        if untimed and self.selector.extra_frames(1, 2):
            raise UsageError(
                f"the selector {self.selector.name!r} shows frames of several sizes, merged by their true times; "
                "leave out show=importance and show=collage, or take another preset than the published ones"
            )
        if self.context is None:
            return
        if self.show != "time":
            raise UsageError(f"context=small shows all frames in time order; leave out show={self.show}")
        if "paper" in (self.context.timestamps, self.view.timestamps):
            raise UsageError("context=small merges frames by their true times, which the published presets hide")

    @property
    def interleaves(self) -> bool:
        """Whether subtitles stand between the frames; else they are one block of text, as in the published code."""
        return self.preset not in PUBLISHED and self.show != "importance" and self.view.packing == "single"

    @property
    def open_rule(self) -> OpenRule:
        """How open questions are answered."""
        return OpenRule(self.rotations, self.exit)

    def loaded(self, **options: Any) -> "Plan":
        """The same with its models and its encoder loaded; what is loaded already stays.

        `options` are passed on to the loaders of models, and the device to that of the encoder.
        """
        model, answerer = self.model, self.answerer
        if isinstance(model, LazyModel) and (self._asks_model or answerer == model):
            model = model.load(**options)
        if isinstance(answerer, LazyModel):
            answerer = model if answerer == self.model else answerer.load(**options)
        first = chunked(model, self.chunk)
        loaded = self.using(first, first if answerer is model else chunked(answerer, self.chunk))
        named = dict(self.model.options) if isinstance(self.model, LazyModel) else {}
        device = {**options, **named}.get("device", "auto")
        loaded = replace(loaded, selector=loaded.selector.loaded(device=device))
        needs_exit = self.exit is None and self.effort in ("auto", "full")
        return replace(loaded, exit=find(loaded.calibrated_for)) if needs_exit else loaded

    @property
    def travels(self) -> bool:
        """Whether it can be sent to another process: its models are only named."""
        named = [isinstance(each, LazyModel) for each in (self.model, self.answerer)]
        if any(named) and not all(named):
            raise UsageError("give both models by name, or both loaded")
        return all(named)

    @property
    def _asks_model(self) -> bool:
        return self.overview is not None or self.model.identity in self.selector.models

    def using(self, model: Model, answerer: Model) -> "Plan":
        """The same with other models; a selector that was made with a model of its own keeps it."""
        selector = self.selector.with_model(model) if self.model.identity in self.selector.models else self.selector
        overview, context = self.overview, self.context
        return replace(
            self,
            model=model,
            answerer=answerer,
            selector=selector,
            view=self.view.suiting(answerer),
            overview=overview and overview.suiting(model),
            context=context and context.suiting(answerer),
        )

    def limited(self, tracker: UsageTracker) -> "Plan":
        """The same with models, and an encoder, that keep to the limits of a question; itself if none needs that."""
        if not tracker.limits.priced or isinstance(self.model, LimitedModel):
            return self
        model, answerer = self.model, self.answerer
        if answerer is model:
            made = self.using(one := LimitedModel(model, tracker), one)
        else:
            first = LimitedModel(model, tracker, neighbours=_weights(answerer))
            made = self.using(first, LimitedModel(answerer, tracker, neighbours=_weights(model) * self._asks_model))
        encoder = getattr(made.selector, "encoder", None)
        if encoder is None or not is_dataclass(made.selector):
            return made
        return replace(made, selector=replace(made.selector, encoder=LimitedEncoder(encoder, tracker)))

    def never_dearer(self, question: Question, count: int, frames_at: FramesAt) -> "Plan":
        """The same, if a question about that many frames takes no more than one pass over all of them at full size.

        The overview may take half of that, and the focused pass the rest, so it may have to keep fewer frames. Where
        not even one fits, the plan becomes that one pass. The map is paid out of the frames that are kept beyond the
        budget's fewest; where it takes more than those, its price comes on top, for questions that need it. Only
        effort=auto with our own selector, in order of time and without refine, promises this; everything else is
        followed to the letter.
        """
        usual = self.effort == "auto" and self.show == "time" and not self.refine
        if not usual or self.overview is None or not isinstance(self.selector, GridProbe):
            return self
        if question.open:  # is priced like one with options: texts that are written cost the same after any frames
            question = replace(question, options=("yes", "no"), answer=None)
        pool = frames_at(range(count), self.pool_size(count))
        every = FrameGroup(frames_at(range(count), self.size_of(self.view, count)), self.view)
        whole = self.answerer.cost(Request.about(question, [every], prompt_order=self.prompt_order))
        if whole.calls > 1:  # the model cannot read all frames at full size in one pass
            return self
        model = CostModel(self.model.identity, self.model.capabilities, self.model.cost)
        (overview,) = choose(model, [overview_request(pool, question, self.overview)])
        mapping = self.selector.with_model(model).with_overview(overview).select(pool, question).cost
        look, map_share = overview.cost.share_of(whole), mapping.share_of(whole)
        one, most = (
            self.answerer.cost(self.focus_on(self.select_evenly(kept, pool), question, frames_at)).share_of(whole)
            for kept in (1, count)
        )
        if look > LOOK or look + one > 1:
            selector = replace(self.selector, small_view=self.view)
            plan = replace(self, effort="all", overview=self.view, selector=selector)
            return plan.using(self.answerer, self.answerer)
        left = 1 - look - one
        rooms = (min(1.0, max(0.0, room) / max(most - one, 1e-9)) for room in (left, left - map_share))
        without_map, with_map = (1 + int(room * (count - 1)) for room in rooms)  # cost grows at least linearly
        fewest, _ = self.selector.bounds(count)
        return replace(self, most_kept=max(with_map, min(fewest, without_map)))

    def open(self, video: str | Path) -> Video:
        """Open a video as it is to be sampled, with the user's frame cache; decodes its first frame."""
        if self.sampling is None:
            raise UsageError("this plan is for frames that the caller brings; make one with a sampling")
        spec = self.sampling
        return Video(video, cache=open_cache(int(spec.limits.cache)), **vars(spec))

    @property
    def shown(self) -> View:
        """How the kept frames are shown."""
        return (self.selector.view or self.view).suiting(self.answerer)

    def size_of(self, view: View, frames: int) -> FrameSize:
        """The size at which that many frames are decoded, to be shown to the answering model under a view."""
        return view.size_for(frames, self.answerer.capabilities.frame_multiple)

    def smaller(self, kept: FramePool, share: float) -> View:
        """How frames are shown at a share of the side of the kept ones."""
        side = max(1, round(share * max(kept.width, kept.height)))
        return replace(self.shown, pixels=FrameSize(max_side=side), sheet=1)

    def in_order(self, selection: Selection) -> list[int]:
        """The kept positions, in the order they are shown in."""
        order, scores = list(selection.indices), selection.scores
        if self.show == "importance" and scores is not None:
            order.sort(key=lambda i: -scores[i])
        return order

    def others(self, selection: Selection, kept: FramePool, frames_at: FramesAt) -> tuple[FrameGroup, ...]:
        """What is shown next to the kept frames: the selection's own smaller sizes, and all others as context."""
        shown = [(each.indices, self.smaller(kept, each.share)) for each in selection.extra_frames]
        extra = [index for indices, _ in shown for index in indices]
        rest = set(range(selection.pool)).difference(selection.indices, extra)
        if self.context is not None and rest:
            shown.append((tuple(sorted(rest)), self.context))
        return tuple(FrameGroup(frames_at(at, self.size_of(view, len(at))), view) for at, view in shown)

    def focus_request(
        self, kept: FramePool, question: Question, others: Sequence[FrameGroup] = (), *, keep_kv: bool = False
    ) -> Request:
        """The one request the answer is read from: the kept frames, and others among them."""
        if self.show == "collage":
            return replace(collage_request(kept, question), keep_kv=keep_kv)
        groups = [FrameGroup(kept, self.shown), *others]
        return Request.about(question, groups, prompt_order=self.prompt_order, keep_kv=keep_kv)

    def focus_on(self, selection: Selection, question: Question, frames_at: FramesAt) -> Request:
        """The focused pass from a selection, for its price."""
        kept = frames_at(self.in_order(selection), self.size_of(self.shown, selection.kept))
        return self.focus_request(kept, question, self.others(selection, kept, frames_at))

    def select_evenly(self, count: int, pool: FramePool) -> Selection:
        """As many evenly spaced frames as the selector may keep, with its smaller ones: stands for a selection."""
        chosen = Selection.of(self.selector.name, pool, spread(len(pool), count))
        rest = [i for i in range(len(pool)) if i not in chosen.indices]
        extra = []
        for number, share in self.selector.extra_frames(count, len(pool)):
            extra.append(ExtraFrames(tuple(rest[:number]), share))
            rest = rest[number:]
        return replace(chosen, extra_frames=tuple(extra))

    def pool_size(self, cells: int) -> FrameSize:
        """The size for decoding a pool of that many frames: what the selector, the overview or the answer needs."""
        if self.selector.input_size is not None:
            return self.selector.input_size.shared(cells)
        if self.overview is not None:
            return self.overview.size_for(cells, self.model.capabilities.frame_multiple)
        return self.size_of(self.shown, cells)

    @property
    def models(self) -> tuple[str, ...]:
        """Identities of the models that are asked before the focused pass."""
        mine = (self.model.identity,) if self.overview is not None else ()
        return tuple(dict.fromkeys((*mine, *self.selector.models)))

    @property
    def calibrated_for(self) -> dict[str, Any]:
        """What a calibrated exit depends on: everything that decides the answers but the exit itself."""
        described = {name: value for name, value in self.describe().items() if name not in LEFT_OUT}
        sampling = described["sampling"] or {}
        return {**described, "sampling": {name: sampling.get(name) for name in ("k", "sampling", "precision")}}

    def describe(self) -> dict[str, Any]:
        """Plain values, for records. Models are described by their identities, or by their names before loading."""
        return {
            "preset": self.preset,
            "sampling": _sampling(self.sampling),
            "selector": self.selector.describe(),
            "answerer": self.answerer.identity,
            "view": self.shown.describe(),
            "context": None if self.context is None else self.context.describe(),
            "overview": None if self.overview is None else {"model": self.model.identity, **self.overview.describe()},
            "effort": self.effort,
            "exit": self.exit and self.exit.describe(),
            "refine": self.refine,
            "rotations": self.rotations,
            "show": self.show,
            "template": self.template,
            "prompt_order": self.prompt_order,
            **({} if self.chunk is None else {"chunk": self.chunk}),
            **({"usage_limits": self.usage_limits.describe()} if self.usage_limits else {}),
        }


def _weights(model: Model) -> float:
    """Gigabytes of a model's weights, if it says so."""
    return model.capabilities.memory(0)


def _sampling(spec: SampleSpec | None) -> dict[str, Any] | None:
    if spec is None:
        return None
    left_out = {"decode_in", *(["stream"] if spec.stream is None else [])}  # these change no frame
    described = {name: value for name, value in asdict(spec).items() if name not in left_out}
    cells, segments = described.pop("num_frames"), described.pop("segments")  # a record has its own names for them
    return {"k": isqrt(cells), "cells": cells, **described, "stretches": [list(each) for each in segments]}


def _selector(selector: str | Selector, model: Model, options: Options) -> Selector:
    if not isinstance(selector, str):
        members = [name for name in vars(Selector) if not name.startswith("_")]
        missing = [name for name in members if not hasattr(selector, name)]
        if missing:
            raise UsageError(
                f"the selector {type(selector).__name__} has no {missing[0]!r}; derive it from gridprobe.Selector"
            )
        return selector
    make, argument = SELECTORS.resolve(selector)
    parts = Parts(
        model=model,
        budget=options.rule,
        small_view=options.small_view,
        probes=options.probes,
        decoded=options.probe_size,
        collage=options.probe_input == "collage",
        ties=options.ties,
        prompt_order=options.prompt_order,
        sampling=options.sampling,
        encoder=LazyEncoder(ENCODER.get(options.preset, ""), cache=options.limits.cache > 0),
    )
    made: Selector = make(argument, parts)
    return made
