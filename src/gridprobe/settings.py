"""Settings: the options of a question as names and plain values, and three presets. `gridprobe.setup` makes them real.

`paper` reproduces the published method, its flaws included: frames fused in pairs, shrunk by the engine from native
size to a squashed 224×224, with the times of the first seconds of a 24 fps clip. `default` is ours: single frames,
decoded straight to the probes' size, aspect kept, true times, ties spread over time. `gridworld` is `default` with
probes as small as the embedded models can read, since frames of gridworld are small themselves and probes of 224
pixels would save nothing. Every field can be changed on top of any of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from json import loads
from typing import Any, Literal, get_args, get_origin, get_type_hints

from gridprobe.backends.base import Packing, PromptOrder, Timestamps, View
from gridprobe.budget import Budget, Fixed, Ties
from gridprobe.errors import UsageError
from gridprobe.grid import Grid
from gridprobe.registry import BUDGETS, SIGNALS, suggestion
from gridprobe.selectors.gridprobe import PROBE, PROBE_SIDE
from gridprobe.video import NATIVE, FrameSize, Limits, SampleSpec

__all__ = ["PRESETS", "Settings", "parse_changes"]


@dataclass(frozen=True)
class Settings:
    """How frames are sampled, shown, probed, chosen and answered from."""

    preset: str = "default"
    k: int = 12
    frames: int | Literal["auto"] = "auto"
    budget: str = "shape"
    """The rule behind frames="auto": a name of `gridprobe.registry.BUDGETS`, such as "shape:0.25"."""
    signal: str = "peak"
    """What a probe's posterior counts for: a name of `gridprobe.registry.SIGNALS`."""
    sampling: Literal["middle", "linspace"] = "middle"
    precision: Literal["exact", "keyframe", "auto"] = "auto"
    """Whether a keyframe near a sampled moment may stand for it; see `gridprobe.video.sample`."""
    decoder: Literal["pyav", "torchcodec"] = "pyav"
    packing: Packing = "single"
    timestamps: Timestamps = "true"
    prompt_order: PromptOrder = "frames_first"
    """What the model reads first; see `ScoreRequest.prompt_order`."""
    probe_pixels: FrameSize = PROBE
    native_pixels: FrameSize = NATIVE
    decoded: Literal["probe", "native"] = "probe"
    """The size the K² frames are decoded at. "probe" takes them straight to `probe_pixels`, and the kept ones once more
    at `native_pixels`. "native" decodes all of them at `native_pixels` and leaves shrinking to the engine, as the
    published chain does; 144 frames then take 300 MB."""
    context: Literal["none", "small"] = "none"
    """What is shown beside the kept frames: nothing, as published, or all other frames at the size of the probes."""
    ties: Ties = "spread"
    order: Literal["time", "importance"] = "time"
    collage: bool = False
    template: str | None = None
    """Name of a prompt template; None leaves the question's own."""
    seed: int = 0
    limits: Limits = field(default_factory=Limits)
    """How large, long and slow a video may be before it is refused."""

    def __post_init__(self) -> None:
        Grid(self.k)
        SIGNALS.find(self.signal)
        _ = self.rule
        hints = get_type_hints(type(self))
        for each in fields(self):
            allowed, value = get_args(hints[each.name]), getattr(self, each.name)
            if get_origin(hints[each.name]) is Literal and value not in allowed:
                raise UsageError(f"{each.name} must be one of {', '.join(allowed)}, got {value!r}")

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
        return SampleSpec(self.k**2, self.sampling, self.precision, self.decoder, self.limits)

    @property
    def native_view(self) -> View:
        """How the kept frames are shown."""
        return View(self.native_pixels, self.packing, self.timestamps)

    @property
    def probe_view(self) -> View:
        """How the frames of a probe are shown."""
        return View(self.probe_pixels, self.packing, self.timestamps)

    @property
    def probe_decoded(self) -> FrameSize | None:
        """The size the K² frames are decoded at, where that is not the size of the probes."""
        return self.native_pixels if self.decoded == "native" else None

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


CHECKED_THERE = ("k", "frames")
"""Settings whose own types refuse wrong values, in better words."""


def _value(name: str, value: Any) -> Any:
    """A value of the field's own kind: sizes and limits may come as JSON objects."""
    kind = get_type_hints(Settings)[name]
    if kind in (FrameSize, Limits) and isinstance(value, Mapping):
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


PRESETS = {
    "default": Settings(),
    "paper": Settings(
        preset="paper",
        sampling="linspace",
        precision="exact",
        packing="pairs",
        timestamps="paper",
        probe_pixels=FrameSize(square=PROBE_SIDE),
        native_pixels=replace(NATIVE, twice=True),
        decoded="native",
        ties="earliest",
        template="paper",
    ),
    "gridworld": Settings(preset="gridworld", probe_pixels=FrameSize(max_side=96)),
}
