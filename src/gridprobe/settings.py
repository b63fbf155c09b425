"""Settings: the options of a question as names and plain values, and four presets. `gridprobe.setup` makes them real.

`paper` reproduces the published method, its flaws included: frames fused in pairs, shrunk by the engine from native
size to a squashed 224×224, with the times of the first seconds of a 24 fps clip. `authors` is `paper` with what their
code does differently from their text: its ties, its budget, probes shrunk from frames of full size.

`default` is ours: an overview of all frames, small; where that is not sure, the frames that the question looks at,
large among all others; single frames, decoded straight to the probes' size, aspect kept, true times. `gridworld` is
`default` with small frames of 64 pixels, since frames of gridworld are small themselves and 224 pixels would save
nothing, and with the encoder of the package. Every field can be changed on top of any of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from json import loads
from typing import Any, Literal, get_args, get_origin, get_type_hints

from gridprobe.backends.base import Packing, PromptOrder, Timestamps, View
from gridprobe.backends.windows import check_window
from gridprobe.budget import Budget, Fixed, Ties
from gridprobe.calibration import check_threshold
from gridprobe.drafting import OpenWay
from gridprobe.errors import UsageError
from gridprobe.grid import Grid
from gridprobe.limits import UsageLimits
from gridprobe.registry import BUDGETS, ENCODERS, suggestion
from gridprobe.rotations import check_rotations
from gridprobe.selectors.base import PROBE, PROBE_SIDE
from gridprobe.video import NATIVE, FrameSize, SampleSpec, VideoLimits
from gridprobe.video.sampling import check_stream

__all__ = ["PRESETS", "Settings", "parse_changes"]


@dataclass(frozen=True)
class Settings:
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
    """What the model reads first; see `ScoreRequest.prompt_order`."""
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
    choose among them; `text` takes the one greedy text. See `gridprobe.drafting`."""
    window: int | None = None
    """The most frames that are shown to a model in one pass; more are shown in windows, see
    `gridprobe.backends.windows`. None is as many as the model can read."""
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
        check_window(self.window)
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

    def changed(self, **changes: Any) -> "Settings":
        """The same settings with some fields replaced; an unknown name is an error that suggests the right one."""
        known = [each.name for each in fields(self) if each.name != "preset"]
        for name in changes:
            if name not in known:
                raise UsageError(f"unknown setting {name!r}; {suggestion(name, known)}")
        return replace(self, **{name: _value(name, value) for name, value in changes.items()})

    @classmethod
    def from_preset(cls, preset: str, **changes: Any) -> "Settings":
        """A preset by name, with changes on top."""
        if preset not in PRESETS:
            raise UsageError(f"unknown preset {preset!r}; {suggestion(preset, PRESETS)}")
        return PRESETS[preset].changed(**changes)


BY_SELECTOR = ("effort", "context")
"""Settings that may be None: what suits the selector."""
CHECKED_THERE = ("k", "frames", "sure", "window", "stream", *BY_SELECTOR)
"""Settings whose own types refuse wrong values, in better words."""


def _value(name: str, value: Any) -> Any:
    """A value of the field's own kind: sizes and limits may come as JSON objects."""
    kind = get_type_hints(Settings)[name]
    if kind in (FrameSize, VideoLimits, UsageLimits) and isinstance(value, Mapping):
        try:
            return kind(**value)
        except TypeError:
            known = ", ".join(each.name for each in fields(kind))
            raise UsageError(f"the setting {name!r} has the fields {known}, got {', '.join(map(str, value))}") from None
    if name not in CHECKED_THERE and get_origin(kind) is not Literal and not _fits(value, kind):
        raise UsageError(f"{value!r} is no value for the setting {name!r}; see gridprobe.settings.Settings")
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
PAPER = Settings(
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
    "default": Settings(),
    "paper": PAPER,
    "authors": replace(PAPER, preset="authors", budget="authors", ties="argsort", decoded="source"),
    "gridworld": Settings(preset="gridworld", probe_pixels=FrameSize(max_side=64), encoder="embedded"),
}
