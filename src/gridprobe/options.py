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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from json import loads
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from gridprobe.early_exit import EarlyExit
from gridprobe.errors import UsageError
from gridprobe.importance import MAX_K, Budget, Fixed, Ties
from gridprobe.limits import LIMITS, UsageLimits
from gridprobe.models import Model, ModelLike, as_model
from gridprobe.models.base import Packing, PromptOrder, Timestamps, View
from gridprobe.plan import Effort, Plan, Show
from gridprobe.question import MAX_OPTIONS
from gridprobe.registry import BUDGETS, SELECTORS, suggestion
from gridprobe.selectors import GridProbe, Parts, Selector
from gridprobe.selectors.base import PROBE, PROBE_SIDE, LazyEncoder, Probes
from gridprobe.video import NATIVE, FrameSize, SampleSpec, VideoLimits, Window

DECODE_IN: Literal["child", "process"] = "child"
"""Videos are decoded in a child process, so that a decoder that crashes or hangs is an error of one line."""


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
    window: Window | None = setting(
        None, "the part that is sampled, in seconds: [80, 300], or [-30, null] for the last 30", request=True
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
    context: Literal["none", "small", "overview"] | None = setting(
        None,
        "what is shown with the kept frames: nothing, all others, small, among them, or the whole overview before them",
        request=True,
    )
    """None is what the model's profile says, else "small" after an overview, and "none" without one, in a collage or in
    order of importance. "overview" continues the overview's KV cache, where the answering model has one."""
    sheet: int | Literal["auto"] = setting("auto", "how many small frames stand next to each other in a picture", low=1)
    """n × n frames are one contact sheet, with their times in the text. "auto" is 1, but for models that spend the same
    number of tokens on every picture."""
    show: Show = setting("time", "the kept frames in order of time or importance, or as one picture", request=True)
    chunk: int | None = setting(None, "the most frames in one pass; by default as many as the model can read", low=1)
    """More frames are shown in several passes; see `gridprobe.models.wrappers`."""
    profile: str = setting(
        "auto", "what was measured on the model: auto, off or a FILE of gridprobe profile", flag=True, metavar="FILE"
    )
    """It decides the settings that nobody chose: the size of small frames, K, the heads of the map, where close-ups
    stand and when the overview is sure."""
    template: str | None = setting(None, "prompt template; by default the question's own")
    limits: VideoLimits = setting(VideoLimits, "how large, long and slow a video may be")
    usage_limits: UsageLimits = setting(UsageLimits, "what a question may take")
    chosen: frozenset[str] = frozenset()
    """The settings that somebody chose, or the preset; a profile decides others."""

    def __post_init__(self) -> None:
        for each in settings():
            each.check(getattr(self, each.name))
        _ = self.rule, self.small_view, self.sample

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
            self.k**2,
            self.sampling,
            self.precision,
            self.limits,
            decode_in=DECODE_IN,
            stream=self.stream,
            window=self.window,
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
        return replace(self, **values, chosen=self.chosen | set(values))

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
        if context == "overview" and effort == "focus":
            raise UsageError("context=overview shows close-ups behind an overview; effort=focus takes none")
        plan = Plan(
            model=probing,
            answerer=answering,
            selector=chosen,
            view=self.full_view,
            context=None if context == "none" else self.small_view,
            behind=context == "overview",
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
            profile=self.profile,
            chosen=self.chosen,
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
        if kind == Window:
            return "a start and an end in seconds, such as [80, 300] or [-30, null]"
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
        if kind == Window:
            ends = value if isinstance(value, tuple) and len(value) == 2 else ("", "")
            return _is_number(ends[0]) and (ends[1] is None or _is_number(ends[1]))
        if kind not in (int, float):
            return isinstance(value, kind)
        if isinstance(value, bool) or not isinstance(value, int if kind is int else (int, float)):
            return False
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)

    def value(self, value: Any, before: Any) -> Any:
        """A value of its type: sizes may come as JSON objects, limits as objects with what differs from `before`."""
        if Window in self.kinds and isinstance(value, list):
            return tuple(value)
        if not isinstance(value, Mapping) or not is_dataclass(self.kind):
            return value
        try:
            return self.kind(**value) if self.kind is FrameSize else replace(before, **value)
        except TypeError:
            raise UsageError(f"{self.name} must be {self.words}, got {', '.join(map(str, value))}") from None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


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
    "gridworld": Options(preset="gridworld", small=FrameSize(max_side=64), chosen=frozenset({"small"})),
}


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
