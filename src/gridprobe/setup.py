"""Setup: everything that decides an answer but the video and the question, as values.

    setup = make_setup(model="embedded", settings=Settings.from_preset("gridworld", frames=8))    # names are checked
    setup = setup.loaded()                                                                       # and now loaded

`make_setup` is where names become values; what stands behind it takes a Setup. Answers and run folders store
`setup.describe()`, so they cannot claim anything else than what was done.
"""

from dataclasses import asdict, dataclass, field, is_dataclass, replace
from math import isqrt
from pathlib import Path
from typing import Any, Literal

from gridprobe.backends import Backend, NamedModel, PromptOrder, View
from gridprobe.backends.windows import windowed
from gridprobe.calibration import Exit, find
from gridprobe.drafting import OpenRule, OpenWay
from gridprobe.encoders import NamedEncoder
from gridprobe.errors import UsageError
from gridprobe.limits import LimitedEncoder, LimitedModel, UsageLimits, UsageTracker
from gridprobe.registry import SELECTORS
from gridprobe.selectors import GridProbe, Parts, Selector
from gridprobe.settings import Settings
from gridprobe.video import Footage, FramePool, FrameSize, SampleSpec, open_cache

__all__ = ["Setup", "make_setup"]

LEFT_OUT = ("preset", "effort", "exit", "usage_limits")
"""What a calibrated exit does not depend on."""


@dataclass(frozen=True)
class Setup:
    """How a video is sampled, how frames are chosen and shown, and which models are asked."""

    model: Backend
    """The model that selectors ask."""
    answerer: Backend
    """The model that answers from the kept frames."""
    selector: Selector
    view: View
    """How the kept frames are shown."""
    context: View | None = None
    """How the frames that were not kept are shown, among the kept ones in time order; None leaves them out."""
    overview: View | None = None
    """How all frames are shown to `model` in the overview; None takes none."""
    effort: Literal["quick", "auto", "full", "focus"] = "focus"
    """How far a question is taken after the overview; see `Settings.effort`."""
    exit: Exit | None = None
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
    """How open questions are answered; see `gridprobe.drafting`."""
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

    def loaded(self, **options: Any) -> "Setup":
        """The same with its models and its encoder loaded; what is loaded already stays.

        `options` are passed on to the loaders of models, and the device to that of the encoder.
        """
        model, answerer = self.model, self.answerer
        if isinstance(model, NamedModel) and (self._asks_model or answerer == model):
            model = model.load(**options)
        if isinstance(answerer, NamedModel):
            answerer = model if answerer == self.model else answerer.load(**options)
        first = windowed(model, self.window)
        loaded = self.using(first, first if answerer is model else windowed(answerer, self.window))
        named = dict(self.model.options) if isinstance(self.model, NamedModel) else {}
        device = {**options, **named}.get("device", "auto")
        loaded = replace(loaded, selector=loaded.selector.loaded(device=device))
        needs_exit = self.exit is None and self.effort in ("auto", "full")
        return replace(loaded, exit=find(loaded.calibrated_for)) if needs_exit else loaded

    @property
    def travels(self) -> bool:
        """Whether it can be sent to another process: its models are only named."""
        named = [isinstance(each, NamedModel) for each in (self.model, self.answerer)]
        if any(named) and not all(named):
            raise UsageError("give both models by name, or both loaded")
        return all(named)

    @property
    def _asks_model(self) -> bool:
        return self.overview is not None or self.model.identity in self.selector.models

    def using(self, model: Backend, answerer: Backend) -> "Setup":
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

    def limited(self, tracker: UsageTracker) -> "Setup":
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

    def open(self, video: str | Path) -> Footage:
        """Open a video as it is to be sampled, with the user's frame cache; decodes its first frame."""
        if self.sampling is None:
            raise UsageError("this setup is for frames that the caller brings; make one with a sampling")
        spec = self.sampling
        return Footage(
            video,
            cells=spec.cells,
            sampling=spec.sampling,
            precision=spec.precision,
            limits=spec.limits,
            cache=open_cache(int(spec.limits.cache)),
            stretches=spec.stretches,
            decode_in=spec.decode_in,
            stream=spec.stream,
        )

    @property
    def shown(self) -> View:
        """How the kept frames are shown."""
        return (self.selector.view or self.view).suiting(self.answerer)

    def size_of(self, view: View, frames: int) -> FrameSize:
        """The size so many frames are decoded at, to be shown to the answering model under a view."""
        return view.size_for(frames, self.answerer.multiple)

    def smaller(self, kept: FramePool, share: float) -> View:
        """How frames are shown at a share of the side of the kept ones."""
        side = max(1, round(share * max(kept.width, kept.height)))
        return replace(self.shown, pixels=FrameSize(max_side=side), sheet=1)

    def pool_size(self, cells: int) -> FrameSize:
        """The size a pool of so many frames is decoded at: what the selector, the overview or the answer needs."""
        if self.selector.input_size is not None:
            return self.selector.input_size.shared(cells)
        if self.overview is not None:
            return self.overview.size_for(cells, self.model.multiple)
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


def _weights(model: Backend) -> float:
    """Gigabytes of a model's weights, if it says so."""
    measure = getattr(model, "memory", None)
    return float(measure(0)) if measure is not None else 0.0


def _sampling(spec: SampleSpec | None) -> dict[str, Any] | None:
    if spec is None:
        return None
    left_out = {"decode_in", *(["stream"] if spec.stream is None else [])}  # these change no frame
    described = {name: value for name, value in asdict(spec).items() if name not in left_out}
    return {"k": isqrt(spec.cells), **described, "stretches": [list(stretch) for stretch in spec.stretches]}


def make_setup(
    *,
    model: str | Backend,
    answer_model: str | Backend | None = None,
    selector: str | Selector = "gridprobe",
    settings: Settings,
) -> Setup:
    """Check names and turn them into values. Models are not loaded: `Setup.loaded` does that."""
    asked = NamedModel(model) if isinstance(model, str) else model
    answerer = NamedModel(answer_model) if isinstance(answer_model, str) else answer_model or asked
    chosen = _selector(selector, asked, settings)
    effort = settings.effort or ("auto" if isinstance(chosen, GridProbe) else "focus")
    alone = effort == "focus" or settings.collage or settings.order != "time"
    context = settings.context or ("none" if alone else "small")
    made = Setup(
        model=asked,
        answerer=answerer,
        selector=chosen,
        view=settings.native_view,
        context=settings.small_view if context == "small" else None,
        overview=None if effort == "focus" else settings.small_view,
        effort=effort,
        exit=None if settings.sure == "calibrated" else Exit(settings.sure, "given"),
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


def _selector(selector: str | Selector, model: Backend, settings: Settings) -> Selector:
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
        encoder=NamedEncoder(settings.encoder or "", cache=settings.limits.cache > 0),
    )
    made: Selector = make(argument, parts)
    return made
