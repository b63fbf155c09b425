"""Settings: everything about an answer that is not the video, the question or the model. Three presets.

`paper` reproduces the published method, its flaws included: frames fused in pairs, shrunk by the engine from native
size to a squashed 224×224, and told to the model as the first seconds of a 24 fps clip. `default` is ours: single
frames, decoded straight to the probes' size, aspect kept, true times, ties spread over time. `gridworld` is `default`
with probes as small as the embedded models can read, since frames of gridworld are small themselves and probes of 224
pixels would save nothing. Every field can be changed on top of any of them, and every answer records what was used.
"""

import difflib
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

from gridprobe.backends.base import Packing, PromptOrder, Timestamps
from gridprobe.budget import GAMMA0, Budget, Fixed, ShapeRule, Ties
from gridprobe.errors import UsageError
from gridprobe.grid import Grid
from gridprobe.selectors.gridprobe import PROBE, PROBE_SIDE
from gridprobe.video import NATIVE, FrameSize, Limits

__all__ = ["PRESETS", "Settings"]


@dataclass(frozen=True)
class Settings:
    """How frames are sampled, shown, probed, chosen and answered from."""

    preset: str = "default"
    k: int = 12
    frames: int | Literal["auto"] = "auto"
    gamma0: float = GAMMA0
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
    pool: Literal["probe", "native"] = "probe"
    """The size the K² frames are decoded at. "probe" takes them straight to `probe_pixels`, and the kept ones once more
    at `native_pixels`. "native" decodes all of them at `native_pixels` and leaves shrinking to the engine, as the
    published chain does; 144 frames then take 300 MB."""
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
        _ = self.budget
        hints = get_type_hints(type(self))
        for each in fields(self):
            allowed, value = get_args(hints[each.name]), getattr(self, each.name)
            if get_origin(hints[each.name]) is Literal and value not in allowed:
                raise UsageError(f"{each.name} must be one of {', '.join(allowed)}, got {value!r}")

    @property
    def pool_pixels(self) -> FrameSize:
        """The size of the K² frames."""
        return self.native_pixels if self.pool == "native" else self.probe_pixels

    @property
    def budget(self) -> Budget:
        """The shape rule for "auto", else a fixed number of frames."""
        return ShapeRule(self.gamma0) if self.frames == "auto" else Fixed(self.frames)

    def changed(self, **changes: Any) -> "Settings":
        """The same settings with some fields replaced; an unknown name is an error that suggests the right one."""
        known = [each.name for each in fields(self) if each.name != "preset"]
        for name in changes:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"choose among {', '.join(known)}"
                raise UsageError(f"unknown setting {name!r}; {hint}")
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)

    @classmethod
    def from_preset(cls, preset: str, **changes: Any) -> "Settings":
        """A preset by name, with changes on top."""
        if preset not in PRESETS:
            raise UsageError(f"unknown preset {preset!r}; choose one of {', '.join(PRESETS)}")
        return PRESETS[preset].changed(**changes)


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
        pool="native",
        ties="earliest",
        template="paper",
    ),
    "gridworld": Settings(preset="gridworld", probe_pixels=FrameSize(max_side=96)),
}
