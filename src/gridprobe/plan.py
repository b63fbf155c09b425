"""A plan: everything that decides an answer but the video and the question, as values.

    plan = Options.from_preset("gridworld", frames=8).resolve(model="embedded")    # names are checked
    plan = plan.loaded()                                                           # and now loaded

`Options.resolve` is where names become values; what stands behind it takes a Plan. Answers and run folders store
`plan.describe()`, so they cannot claim anything else than what was done.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from math import isqrt
from pathlib import Path
from typing import Any, Literal, cast

from gridprobe._util import announce
from gridprobe.early_exit import EarlyExit, calibration_folder, find
from gridprobe.errors import UsageError
from gridprobe.importance import NoiseAware, spread
from gridprobe.limits import LimitedEncoder, LimitedModel, UsageLimits, UsageTracker
from gridprobe.models import CostModel, LazyModel, Model
from gridprobe.models.base import FrameGroup, PromptOrder, Request, View, choose
from gridprobe.models.profile import Profile, find_profile, read_profile, write_profile
from gridprobe.models.wrappers import chunked
from gridprobe.open_ended import OpenRule
from gridprobe.question import Question
from gridprobe.registry import PROFILERS
from gridprobe.selectors import ExtraFrames, GridProbe, Selection, Selector
from gridprobe.selectors.base import Probes
from gridprobe.selectors.gridprobe import collage_request, overview_request
from gridprobe.video import FramePool, FrameSize, SampleSpec, Video, open_cache

Effort = Literal["quick", "auto", "full", "focus"]
Show = Literal["time", "importance", "collage"]
FramesAt = Callable[[Sequence[int], FrameSize], FramePool]
"""The frames at some places of a pool, at a size."""

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
    behind: bool = False
    """Whether the kept frames are shown behind the overview, instead of with the others among them."""
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
    profile: str | Profile = "off"
    """What was measured on the model; before loading "auto", "off" or a file."""
    chosen: frozenset[str] = frozenset()
    """The settings that a profile leaves alone."""

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
        return self.view.timestamps != "paper" and self.show != "importance" and self.view.packing == "single"

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
        loaded = replace(loaded, selector=loaded.selector.loaded(device=device))._profiled()
        needs_exit = self.exit is None and self.effort in ("auto", "full")
        return replace(loaded, exit=loaded._found_exit()) if needs_exit else loaded

    def _profiled(self) -> "Plan":
        """The same with what was measured on the model."""
        if self.overview is None or isinstance(self.profile, Profile) or self.profile == "off":
            return self
        model = self.model.identity
        if self.profile == "auto":
            profile = find_profile(model) or self.model.capabilities.profile or self._measured()
        else:
            profile = read_profile(Path(self.profile), model=model)
        return self if profile is None else self.suiting(profile)

    def _measured(self) -> Profile | None:
        """What can be measured at once: the map of a model in this process; it is kept for the next time."""
        able = self.model.capabilities
        if not able.attention_map or able.weight_bytes is None or calibration_folder() is None:
            return None
        profile: Profile | None = None
        for entry in PROFILERS.values():
            profile = profile or entry.load()(self.model)
        if profile is not None:
            write_profile(profile)
            announce("profile", profile)
        return profile

    def suiting(self, profile: Profile) -> "Plan":
        """The same with the settings of a profile, where nobody chose them."""
        plan, chosen = replace(self, profile=profile), self.chosen
        if profile.small and "small" not in chosen:
            plan = plan._shrunk(FrameSize(max_side=profile.small))
        if profile.k and "k" not in chosen and plan.sampling is not None:
            cells = min(plan.sampling.num_frames, profile.k**2)
            plan = replace(plan, sampling=replace(plan.sampling, num_frames=cells))
        if profile.context and "context" not in chosen:
            plan = replace(plan, behind=profile.context == "overview")
        if not isinstance(plan.selector, GridProbe):
            return plan
        if profile.probes == "none" and not chosen & {"probes", "effort"}:
            return plan._all_frames()
        probes = plan.selector.probes
        if profile.probes not in (None, "none") and "probes" not in chosen:
            probes = cast(Probes, profile.probes)
        budget = plan.selector.budget
        if isinstance(budget, NoiseAware) and profile.large and "frames" not in chosen:
            budget = NoiseAware(profile.large)
        return replace(plan, selector=replace(plan.selector, heads=profile.heads, probes=probes, budget=budget))

    def _shrunk(self, size: FrameSize) -> "Plan":
        """The same with small frames of another size."""
        overview, context, selector = self.overview, self.context, self.selector
        if isinstance(selector, GridProbe):
            selector = replace(selector, small_view=replace(selector.small_view, pixels=size))
        overview = overview and replace(overview, pixels=size)
        return replace(self, overview=overview, context=context and replace(context, pixels=size), selector=selector)

    @property
    def doubts(self) -> tuple[str, ...]:
        """What the profile says against the map."""
        profile = self.profile
        if not isinstance(profile, Profile) or not isinstance(self.selector, GridProbe):
            return ()
        if self.effort == "all" and profile.probes == "none":
            return ("all frames are shown at full size, as no map of this model finds needles",)
        if self.selector.probes == profile.probes and 2 * profile.found < profile.needles:
            return (f"the map may not show where: it found {profile.found} of {profile.needles} needles",)
        return ()

    def _found_exit(self) -> EarlyExit:
        """When the overview is sure: by a calibration, else by the profile, else cautiously."""
        calibrated = find(self.calibrated_for)
        profiled = self.profile.exit if isinstance(self.profile, Profile) else None
        if calibrated.source == "calibrated" or profiled is None:
            return calibrated
        return EarlyExit(profiled, "profile")

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
            return self._all_frames()
        left = 1 - look - one
        rooms = (min(1.0, max(0.0, room) / max(most - one, 1e-9)) for room in (left, left - map_share))
        without_map, with_map = (1 + int(room * (count - 1)) for room in rooms)  # cost grows at least linearly
        fewest, _ = self.selector.bounds(count)
        return replace(self, most_kept=max(with_map, min(fewest, without_map)))

    def _all_frames(self) -> "Plan":
        """The same with one pass, over all frames at full size."""
        selector = self.selector
        if isinstance(selector, GridProbe):
            selector = replace(selector, small_view=self.view)
        plan = replace(self, effort="all", overview=self.view, selector=selector)
        return plan.using(self.answerer, self.answerer)

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
            every = tuple(range(selection.pool)) if self.close_ups else tuple(sorted(rest))
            shown.append((every, self.overview if self.close_ups and self.overview else self.context))
        return tuple(FrameGroup(frames_at(at, self.size_of(view, len(at))), view) for at, view in shown)

    def focus_request(
        self, kept: FramePool, question: Question, others: Sequence[FrameGroup] = (), *, keep_kv: bool = False
    ) -> Request:
        """The one request the answer is read from: the kept frames, and others among them."""
        if self.show == "collage":
            return replace(collage_request(kept, question), keep_kv=keep_kv)
        groups = [FrameGroup(kept, self.shown), *others]
        close_ups = self.close_ups and len(others) > 0
        return Request.about(question, groups, prompt_order=self.prompt_order, keep_kv=keep_kv, close_ups=close_ups)

    @property
    def close_ups(self) -> bool:
        """Whether the focused pass goes on from the overview's KV cache."""
        able = self.answerer.capabilities.close_ups and self.answerer.identity == self.model.identity
        return self.behind and able and self.overview is not None and self.prompt_order == "frames_first"

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
            **({"close_ups": True} if self.close_ups else {}),
            **({"profile": str(self.profile)} if isinstance(self.profile, Profile) else {}),
            **({"usage_limits": self.usage_limits.describe()} if self.usage_limits else {}),
        }


def _weights(model: Model) -> float:
    """Gigabytes of a model's weights, if it says so."""
    return model.capabilities.memory(0)


def _sampling(spec: SampleSpec | None) -> dict[str, Any] | None:
    if spec is None:
        return None
    left_out = {"decode_in", *(name for name in ("stream", "window") if getattr(spec, name) is None)}
    described = {name: value for name, value in asdict(spec).items() if name not in left_out}
    cells, segments = described.pop("num_frames"), described.pop("segments")  # a record has its own names for them
    return {"k": isqrt(cells), "cells": cells, **described, "stretches": [list(each) for each in segments]}
