"""Settings: the options of a question as names and plain values, and four presets. `gridprobe.options` makes them real.

`paper` reproduces the published method, its flaws included: frames fused in pairs, shrunk by the engine from native
size to a squashed 224×224, with the times of the first seconds of a 24 fps clip. `authors` is `paper` with what their
code does differently from their text: its ties, its budget, probes shrunk from frames of full size.

`default` is ours: an overview of all frames, small; where that is not sure, the frames that the question looks at,
large among all others; single frames, decoded straight to the probes' size, aspect kept, true times. `gridworld` is
`default` with small frames of 64 pixels, since frames of gridworld are small themselves and 224 pixels would save
nothing, and with the encoder of the package. Every field can be changed on top of any of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from json import loads
from math import isqrt
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from gridprobe.early_exit import EarlyExit, check_threshold, find
from gridprobe.errors import UsageError
from gridprobe.importance import Budget, Fixed, Grid, Ties
from gridprobe.limits import LimitedEncoder, LimitedModel, UsageLimits, UsageTracker
from gridprobe.models import LazyModel, Model
from gridprobe.models.base import Packing, PromptOrder, Timestamps, View
from gridprobe.models.prompting import check_rotations
from gridprobe.models.wrappers import check_chunk, chunked
from gridprobe.open_ended import OpenRule, OpenWay
from gridprobe.registry import BUDGETS, ENCODERS, SELECTORS, suggestion
from gridprobe.selectors import GridProbe, Parts, Selector
from gridprobe.selectors.base import PROBE, PROBE_SIDE
from gridprobe.selectors.encoders import LazyEncoder
from gridprobe.video import NATIVE, FramePool, FrameSize, SampleSpec, Video, VideoLimits, open_cache
from gridprobe.video.sampling import check_stream

__all__ = ["PRESETS", "Options", "Plan", "make_plan", "parse_changes"]


@dataclass(frozen=True)
class Options:
    """How frames are sampled, shown, probed, chosen and answered from."""

    preset: str = "default"
    k: int = 12
    frames: int | Literal["auto"] = "auto"
    budget: str = "noise"
    """The rule behind frames="auto": a name of `gridprobe.registry.BUDGETS`, such as "shape:0.25"."""
    effort: Literal["quick", "auto", "full", "focus"] | None = None
    """How far a question is taken. "quick" answers from the overview: all frames at the size of the probes, in one
    pass. "auto" does so if the overview is sure, and otherwise makes the map and answers from the focused pass. "full"
    always goes on to the focused pass. "focus" takes no overview, as published. None is "auto" for the selector
    gridprobe and "focus" for all others."""
    sure: float | Literal["calibrated"] = "calibrated"
    """With effort=auto: the confidence at which the overview's answer is taken. "calibrated" is what `gridprobe
    calibrate` found for these models and settings, or a cautious default."""
    refine: bool = False
    """Where the overview is not sure: sample the stretches that the question looks at again, more densely."""
    probes: Literal["fresh", "attention"] = "attention"
    """How the map is made: from rows and columns of frames by themselves, as published; or from the attention of the
    question in the overview."""
    encoder: str | None = None
    """What compares frames with the question, for selectors that do: a name of `gridprobe.registry.ENCODERS`, such as
    "siglip:google/siglip2-so400m-patch14-384". None is the one of the selector's paper."""
    rotations: int = 1
    """In how many orders the options are shown, in the overview and in the focused pass; 1 is off."""
    sampling: Literal["middle", "linspace"] = "middle"
    precision: Literal["exact", "keyframe", "auto"] = "auto"
    """Whether a keyframe near a sampled moment may stand for it; see `gridprobe.video.sample`."""
    decode_in: Literal["child", "process"] = "child"
    """Where videos are decoded: in a child process, so that a decoder that crashes or hangs is an error of one line, or
    in this one. It changes no frame."""
    stream: int | None = None
    """The number of the video stream in the file, counted from 0 over all streams; None is the default one."""
    packing: Packing = "single"
    timestamps: Timestamps = "true"
    prompt_order: PromptOrder = "frames_first"
    """What the model reads first; see `Request.prompt_order`."""
    probe_pixels: FrameSize = PROBE
    native_pixels: FrameSize = NATIVE
    decoded: Literal["probe", "native", "source"] = "probe"
    """The size the K² frames are decoded at. "probe" takes them straight to `probe_pixels`, and the kept ones once more
    at `native_pixels`. "native" decodes all of them at `native_pixels` and leaves shrinking to the engine; 144 frames
    then take 300 MB. "source" decodes them at the video's own size, as the authors' code does; 144 frames of 1080p then
    take 900 MB."""
    probe_view: Literal["frames", "collage"] = "frames"
    """What a probe with probes=fresh shows: its frames one by one, or all as one picture of 2048×2048, as the paper's
    appendix A says."""
    context: Literal["none", "small"] | None = None
    """What is shown beside the kept frames: nothing, as published, or all other frames at the size of the probes. None
    is "small" after an overview, and "none" without one, in a collage or in order of importance."""
    sheet: int | Literal["auto"] = "auto"
    """How many small frames stand side by side in a contact sheet, n × n of them in one picture, with their times in
    the text. "auto" is 1, but for models that spend the same number of tokens on every picture."""
    ties: Ties = "spread"
    order: Literal["time", "importance"] = "time"
    collage: bool = False
    open_way: OpenWay = "drafts"
    """How open questions are answered: `drafts` lets the model write candidates and, where that leaves it unsure,
    choose among them; `text` takes the one greedy text. See `gridprobe.open_ended`."""
    window: int | None = None
    """The most frames that are shown to a model in one pass; more are shown in windows, see
    `gridprobe.models.wrappers`. None is as many as the model can read."""
    template: str | None = None
    """Name of a prompt template; None leaves the question's own."""
    seed: int = 0
    limits: VideoLimits = field(default_factory=VideoLimits)
    """How large, long and slow a video may be before it is refused."""
    usage_limits: UsageLimits = field(default_factory=UsageLimits)
    """What a question may take; see `gridprobe.limits`."""

    def __post_init__(self) -> None:
        Grid(self.k)
        if self.encoder is not None:
            ENCODERS.find(self.encoder)
        check_rotations(self.rotations)
        check_chunk(self.window)
        check_stream(self.stream)
        if self.sure != "calibrated":
            check_threshold(self.sure)
        _ = self.rule, self.small_view
        hints = get_type_hints(type(self))
        for each in fields(self):
            allowed, value = get_args(hints[each.name]), getattr(self, each.name)
            if get_origin(hints[each.name]) is Literal and value not in allowed:
                raise UsageError(f"{each.name} must be one of {', '.join(allowed)}, got {value!r}")
            if each.name in BY_SELECTOR and value is not None and value not in (names := get_args(allowed[0])):
                raise UsageError(f"{each.name} must be one of {', '.join(names)}, got {value!r}")

    @property
    def rule(self) -> Budget:
        """How many frames are kept: a fixed number, or what the rule behind "auto" says."""
        if self.frames != "auto":
            return Fixed(self.frames)
        make, argument = BUDGETS.resolve(self.budget)
        found: Budget = make(argument)
        return found

    @property
    def sample(self) -> SampleSpec:
        """How a video is sampled."""
        return SampleSpec(
            self.k**2,
            self.sampling,
            self.precision,
            self.limits,
            decode_in=self.decode_in,
            stream=self.stream,
        )

    @property
    def native_view(self) -> View:
        """How the kept frames are shown."""
        return View(self.native_pixels, self.packing, self.timestamps)

    @property
    def small_view(self) -> View:
        """How frames are shown in probes, in the overview and as context."""
        return View(self.probe_pixels, self.packing, self.timestamps, 0 if self.sheet == "auto" else self.sheet)

    @property
    def probe_decoded(self) -> FrameSize | None:
        """The size the K² frames are decoded at, where that is not the size of the probes."""
        sizes = {"probe": None, "native": self.native_pixels, "source": FrameSize()}
        if self.decoded == "probe" and self.probe_view == "collage":
            return self.native_pixels
        return sizes[self.decoded]

    def changed(self, **changes: Any) -> "Options":
        """The same settings with some fields replaced; an unknown name is an error that suggests the right one."""
        known = [each.name for each in fields(self) if each.name != "preset"]
        for name in changes:
            if name not in known:
                raise UsageError(f"unknown setting {name!r}; {suggestion(name, known)}")
        return replace(self, **{name: _value(name, value) for name, value in changes.items()})

    @classmethod
    def from_preset(cls, preset: str, **changes: Any) -> "Options":
        """A preset by name, with changes on top."""
        if preset not in PRESETS:
            raise UsageError(f"unknown preset {preset!r}; {suggestion(preset, PRESETS)}")
        return PRESETS[preset].changed(**changes)


BY_SELECTOR = ("effort", "context")
"""Settings that may be None: what suits the selector."""
CHECKED_THERE = ("k", "frames", "sure", "window", "stream", *BY_SELECTOR)
"""Options whose own types refuse wrong values, in better words."""


def _value(name: str, value: Any) -> Any:
    """A value of the field's own kind: sizes and limits may come as JSON objects."""
    kind = get_type_hints(Options)[name]
    if kind in (FrameSize, VideoLimits, UsageLimits) and isinstance(value, Mapping):
        try:
            return kind(**value)
        except TypeError:
            known = ", ".join(each.name for each in fields(kind))
            raise UsageError(f"the setting {name!r} has the fields {known}, got {', '.join(map(str, value))}") from None
    if name not in CHECKED_THERE and get_origin(kind) is not Literal and not _fits(value, kind):
        raise UsageError(f"{value!r} is no value for the setting {name!r}; see gridprobe.options.Options")
    return value


def _fits(value: Any, kind: Any) -> bool:
    if get_origin(kind) is None:
        return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    choices = get_args(kind)
    return any(_fits(value, choice) if isinstance(choice, type) or get_origin(choice) else value == choice
               for choice in choices)  # fmt: skip


def parse_changes(texts: Sequence[str]) -> dict[str, Any]:
    """Settings from texts such as "budget=shape:0.3", "ties=earliest" or 'limits={"seconds": 300}'."""
    changes: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"--set takes name=value, got {text!r}")
        try:
            changes[name] = loads(value)
        except ValueError:
            changes[name] = value
    return changes


QWEN_VIDEO = replace(NATIVE, twice=True, min_pixels=131_072, total_pixels=117_964_800)
"""How qwen_vl_utils sizes a list of frames: 128 to 768 tokens of 32×32 pixels each, and 115,200 together."""
PAPER = Options(
    preset="paper",
    sampling="linspace",
    precision="exact",
    packing="pairs",
    timestamps="paper",
    probe_pixels=FrameSize(square=PROBE_SIDE),
    native_pixels=QWEN_VIDEO,
    decoded="native",
    effort="focus",
    probes="fresh",
    budget="shape",
    context="none",
    ties="earliest",
    template="paper",
)

PRESETS = {
    "default": Options(),
    "paper": PAPER,
    "authors": replace(PAPER, preset="authors", budget="authors", ties="argsort", decoded="source"),
    "gridworld": Options(preset="gridworld", probe_pixels=FrameSize(max_side=64), encoder="embedded"),
}


# Setup: everything that decides an answer but the video and the question, as values.
#
#     setup = make_setup(model="embedded", settings=Settings.from_preset("gridworld", frames=8))    # names are checked
#     setup = setup.loaded()                                                                       # and now loaded
#
# `make_plan` is where names become values; what stands behind it takes a Setup. Answers and run folders store
# `setup.describe()`, so they cannot claim anything else than what was done.

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
    effort: Literal["quick", "auto", "full", "focus"] = "focus"
    """How far a question is taken after the overview; see `Options.effort`."""
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
    order: Literal["time", "importance"] = "time"
    collage: bool = False
    template: str | None = None
    """Name of a prompt template; None leaves the question's own."""
    prompt_order: PromptOrder = "frames_first"
    open_way: OpenWay = "drafts"
    """How open questions are answered; see `gridprobe.open_ended`."""
    window: int | None = None
    """The most frames that a model reads at once, where that is less than it can."""
    usage_limits: UsageLimits = field(default_factory=UsageLimits)
    """What a question may take."""

    def __post_init__(self) -> None:
        if (self.overview is None) != (self.effort == "focus"):
            raise UsageError(f"effort={self.effort} and overview={self.overview} do not fit each other")
        if self.refine and self.overview is None:
            raise UsageError("refine looks again where an overview is not sure; effort=focus takes none")
        if self.overview is not None and "paper" in (self.overview.timestamps, self.view.timestamps):
            raise UsageError('an overview shows true times; use effort=focus with timestamps="paper"')
        untimed = self.collage or self.order != "time" or self.view.timestamps == "paper"
        if untimed and self.selector.extra_frames(1, 2):
            raise UsageError(
                f"the selector {self.selector.name!r} shows frames of several sizes, merged by their true times; "
                'leave out collage, order=importance and timestamps="paper"'
            )
        if self.context is None:
            return
        if self.collage or self.order != "time":
            raise UsageError("context=small shows all frames in time order; leave out collage and order=importance")
        if "paper" in (self.context.timestamps, self.view.timestamps):
            raise UsageError('context=small merges frames by their true times; timestamps="paper" hides them')

    @property
    def open_rule(self) -> OpenRule:
        """How open questions are answered."""
        return OpenRule(self.open_way, self.rotations, self.exit)

    def loaded(self, **options: Any) -> "Plan":
        """The same with its models and its encoder loaded; what is loaded already stays.

        `options` are passed on to the loaders of models, and the device to that of the encoder.
        """
        model, answerer = self.model, self.answerer
        if isinstance(model, LazyModel) and (self._asks_model or answerer == model):
            model = model.load(**options)
        if isinstance(answerer, LazyModel):
            answerer = model if answerer == self.model else answerer.load(**options)
        first = chunked(model, self.window)
        loaded = self.using(first, first if answerer is model else chunked(answerer, self.window))
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

    def open(self, video: str | Path) -> Video:
        """Open a video as it is to be sampled, with the user's frame cache; decodes its first frame."""
        if self.sampling is None:
            raise UsageError("this setup is for frames that the caller brings; make one with a sampling")
        spec = self.sampling
        return Video(video, cache=open_cache(int(spec.limits.cache)), **vars(spec))

    @property
    def shown(self) -> View:
        """How the kept frames are shown."""
        return (self.selector.view or self.view).suiting(self.answerer)

    def size_of(self, view: View, frames: int) -> FrameSize:
        """The size so many frames are decoded at, to be shown to the answering model under a view."""
        return view.size_for(frames, self.answerer.capabilities.frame_multiple)

    def smaller(self, kept: FramePool, share: float) -> View:
        """How frames are shown at a share of the side of the kept ones."""
        side = max(1, round(share * max(kept.width, kept.height)))
        return replace(self.shown, pixels=FrameSize(max_side=side), sheet=1)

    def pool_size(self, cells: int) -> FrameSize:
        """The size a pool of so many frames is decoded at: what the selector, the overview or the answer needs."""
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
            "order": self.order,
            "collage": self.collage,
            "template": self.template,
            "prompt_order": self.prompt_order,
            "open_way": self.open_way,
            **({} if self.window is None else {"window": self.window}),
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


def make_plan(
    *,
    model: str | Model,
    answer_model: str | Model | None = None,
    selector: str | Selector = "gridprobe",
    settings: Options,
) -> Plan:
    """Check names and turn them into values. Models are not loaded: `Plan.loaded` does that."""
    asked = LazyModel(model) if isinstance(model, str) else model
    answerer = LazyModel(answer_model) if isinstance(answer_model, str) else answer_model or asked
    chosen = _selector(selector, asked, settings)
    effort = settings.effort or ("auto" if isinstance(chosen, GridProbe) else "focus")
    alone = effort == "focus" or settings.collage or settings.order != "time"
    context = settings.context or ("none" if alone else "small")
    made = Plan(
        model=asked,
        answerer=answerer,
        selector=chosen,
        view=settings.native_view,
        context=settings.small_view if context == "small" else None,
        overview=None if effort == "focus" else settings.small_view,
        effort=effort,
        exit=None if settings.sure == "calibrated" else EarlyExit(settings.sure, "given"),
        refine=settings.refine,
        rotations=settings.rotations,
        sampling=settings.sample,
        preset=settings.preset,
        order=settings.order,
        collage=settings.collage,
        template=settings.template,
        prompt_order=settings.prompt_order,
        open_way=settings.open_way,
        window=settings.window,
        usage_limits=settings.usage_limits,
    )
    return made.using(asked, answerer)


def _selector(selector: str | Selector, model: Model, settings: Options) -> Selector:
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
        budget=settings.rule,
        small_view=settings.small_view,
        probes=settings.probes,
        decoded=settings.probe_decoded,
        collage=settings.probe_view == "collage",
        ties=settings.ties,
        prompt_order=settings.prompt_order,
        seed=settings.seed,
        sampling=settings.sampling,
        encoder=LazyEncoder(settings.encoder or "", cache=settings.limits.cache > 0),
    )
    made: Selector = make(argument, parts)
    return made
