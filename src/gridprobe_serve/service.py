"""VideoService: what a server does, without HTTP. Videos are opened once; questions of all users share the models."""

import asyncio
import io
import json
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Lock, RLock
from typing import Any, TypeVar

from PIL import Image
from starlette.concurrency import run_in_threadpool

from gridprobe._util import watching
from gridprobe.answer import Answer
from gridprobe.ask import Kept, Overview, Session, sure
from gridprobe.concurrency import Batcher
from gridprobe.errors import GridProbeError
from gridprobe.importance import Grid
from gridprobe.limits import LIMITS, learn_from
from gridprobe.models import Model, Posterior, Request
from gridprobe.models.base import SamplingParams, generate
from gridprobe.options import Options
from gridprobe.options import settings as all_settings
from gridprobe.plan import Plan
from gridprobe.question import Question
from gridprobe.record import selection_dict
from gridprobe.report.format import share_words, sure_words
from gridprobe.report.view import AnswerView, levels_of
from gridprobe.video import FrameSize, SampleSpec, Video, VideoLimits, Window
from gridprobe_eval.planning import TYPICAL, Models, offers
from gridprobe_serve.errors import ApiError, new_id, not_found, scrubbed
from gridprobe_serve.jobs import Job, Jobs, Journal
from gridprobe_serve.limits import ServerLimits
from gridprobe_serve.sources import Fetcher, MediaSource, Sources
from gridprobe_serve.store import AllowedFolders, MediaStore

HELP = (
    "I answer questions about videos. Attach a video or name one that this server has, ask about it, "
    "and I say what it shows and when."
)
"""What is said in a chat without a video by a model that does not chat."""

# Video sessions: a video is opened and decoded once and asked many times; bounded by bytes, number and age.

MOST_SAMPLINGS = 3
"""Samplings of one video that are kept open."""


class VideoSession:
    """A video that is open."""

    def __init__(self, source: MediaSource, now: float) -> None:
        self.id = new_id()
        self.source = source
        self.created = self.used = now
        self.questions = 0
        self.users = 0
        """Jobs that use it now."""
        self._lock = Lock()
        self._samplings: OrderedDict[SampleSpec, Video] = OrderedDict()

    @property
    def bytes(self) -> int:
        """Bytes of decoded frames in memory."""
        return sum(each.memory_used for each in list(self._samplings.values()))

    @property
    def latest(self) -> Video | None:
        """The sampling that was used last."""
        return next(reversed(self._samplings.values()), None) if self._samplings else None

    def sampled(self, plan: Plan) -> Video:
        """The video, sampled as a plan says; threads that want the same wait for one of them to open it."""
        assert plan.sampling is not None
        with self._lock:
            if plan.sampling not in self._samplings:
                video = plan.open(self.source.path)
                if self.source.fingerprint not in (None, video.info.fingerprint):
                    raise ApiError("the file changed while it was opened; try again", status=409, code="changed")
                self._samplings[plan.sampling] = video
            self._samplings.move_to_end(plan.sampling)
            while len(self._samplings) > MOST_SAMPLINGS:
                self._samplings.popitem(last=False)
            return self._samplings[plan.sampling]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, without the path."""
        video = self.latest
        return {
            "id": self.id,
            "name": self.source.name,
            "video": video.info.to_dict() | {"path": self.source.name} if video else None,
            "bytes": self.bytes,
            "questions": self.questions,
            "created": self.created,
            "used": self.used,
        }


class Sessions:
    """All open videos, by content."""

    def __init__(self, sources: Sources, limits: ServerLimits, clock: Callable[[], float] = time.time) -> None:
        self._sources = sources
        self._limits = limits
        self._clock = clock
        self._lock = RLock()
        self._open: OrderedDict[str, VideoSession] = OrderedDict()
        sources.of_session = lambda id: self.get(id).source

    def __len__(self) -> int:
        return len(self._open)

    @property
    def bytes(self) -> int:
        """Bytes of decoded frames in memory."""
        return sum(each.bytes for each in list(self._open.values()))

    @contextmanager
    def using(self, source: MediaSource) -> Iterator[VideoSession]:
        """The session of a video; it is not closed within the block."""
        with self._lock:
            if source.key not in self._open:
                self._open[source.key] = VideoSession(self._sources.held(source), self._clock())
            session = self._open[source.key]
            session.users += 1
            self._open.move_to_end(source.key)
        try:
            yield session
        finally:
            with self._lock:
                session.users -= 1
                session.used = self._clock()
                if session.latest is None and not session.users:  # it could not be opened
                    self._close(session)
            self.trim()

    def get(self, id: str) -> VideoSession:
        """The session with this id."""
        with self._lock:
            session = next((each for each in self._open.values() if each.id == id), None)
        if session is None:
            raise not_found("session")
        return session

    def all(self) -> list[VideoSession]:
        """Those that are open, least recently used first."""
        self.trim()
        with self._lock:
            return list(self._open.values())

    def close(self, id: str) -> None:
        """Close a session; jobs that use it go on."""
        with self._lock:
            self._close(self.get(id))

    def trim(self) -> None:
        """Close sessions that are old, and the least recently used ones where all of them take too much."""
        with self._lock:
            for session in [each for each in self._open.values() if not each.users]:
                old = session.used < self._clock() - self._limits.session_age
                if old or self.bytes > self._limits.session_bytes or len(self._open) > self._limits.sessions:
                    self._close(session)

    def _close(self, session: VideoSession) -> None:
        if self._open.get(session.source.key) is session:
            del self._open[session.source.key]
            self._sources.release(session.source)


T = TypeVar("T")

SETTABLE = {*(each.name for each in all_settings() if each.request), "full", *LIMITS}
"""Options that a request may change, and limits of what it may take."""
SELECTORS = ("gridprobe", "uniform", "random", "all", "all-small")
"""Selectors that a request may name: those that load nothing."""
MOST_PLANS = 32
MOST_LEARNED = 32
"""Questions of a process whose time counts for the models' speed, which is kept on disk."""
MOST_BYTES = 256 << 20
"""Bytes of the frames of all answers that are kept; the latest is kept in any case."""
MOST_ANSWERS = 64
ALL = "all frames"


class Answers:
    """The latest answers, by the id of their job, so that their reports can be drawn when somebody asks for them."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._answers: OrderedDict[str, Answer] = OrderedDict()

    def keep(self, id: str, answer: Answer) -> None:
        """Keep an answer, and drop the oldest ones if all of them take too much memory."""
        with self._lock:
            self._answers[id] = answer
            while len(self._answers) > 1 and (len(self._answers) > MOST_ANSWERS or self._bytes > MOST_BYTES):
                self._answers.popitem(last=False)

    def get(self, id: str) -> Answer:
        """The answer of a job."""
        with self._lock:
            if id not in self._answers:
                raise not_found("answer")
            return self._answers[id]

    @property
    def _bytes(self) -> int:
        """Of different arrays: answers about one video share its frames."""
        arrays = {id(pool.data): pool.data for each in self._answers.values() for pool in (each.pool, each.frames)}
        return sum(getattr(each, "nbytes", 0) for each in arrays.values())


class DecodePool:
    """Threads for requests that decode pictures outside of the queue of jobs: a few at a time, and few that wait."""

    def __init__(self, limits: ServerLimits) -> None:
        self._running = asyncio.Semaphore(limits.decoders)
        self._room = limits.decoders + limits.queue

    async def run(self, work: Callable[[], T]) -> T:
        """What the work returns, once it is its turn; 429 if too many wait."""
        if not self._room:
            message = "too many requests for pictures at once; try again soon"
            raise ApiError(message, status=429, code="busy", Retry_After="5")
        self._room -= 1
        try:
            async with self._running:
                return await run_in_threadpool(work)
        finally:
            self._room += 1


@dataclass(frozen=True)
class VideoQuestion:
    """A question about a video; without a question the video is only opened."""

    video: MediaSource | str
    """Or the address that it is still to be fetched from."""
    question: Question | None
    settings: Mapping[str, Any] = field(default_factory=dict)
    selector: str = "gridprobe"
    show_map: bool = False
    fps: float | None = None
    """Frames a second to sample, in place of a grid."""


class VideoService:
    """The models, the videos and the jobs of one server."""

    def __init__(
        self,
        model: Model,
        answer_model: Model | None = None,
        *,
        settings: Options | None = None,
        limits: ServerLimits | None = None,
        folder: AllowedFolders | None = None,
        fetcher: Fetcher | None = None,
        cost_models: Models | None = None,
        demo: bool = False,
    ) -> None:
        """A service without videos and jobs; the models must be loaded.

        Args:
            model: looks over and selects; answers too, unless there is another for that.
            answer_model: answers from the kept frames.
            settings: what requests start from.
            limits: how much it takes on.
            folder: whose files requests may name.
            fetcher: fetches addresses that requests name; None refuses them.
            cost_models: price questions in advance; None if the models have none.
            demo: whether nobody named a model, so that the embedded one answers.
        """
        self.limits = limits or ServerLimits()
        self.settings = settings or Options()
        self.cost_models = cost_models
        self.demo = demo
        self.batcher = Batcher(most=self.limits.merged)
        self._model = self.batcher.merging(model)
        self._answerer = None if answer_model is None else self.batcher.merging(answer_model)
        self.store = MediaStore(quota=self.limits.quota)
        self.sources = Sources(self.store, self.limits, folder=folder, fetcher=fetcher)
        self.sessions = Sessions(self.sources, self.limits)
        journal = Journal(self.store.folder, self.store.unfinished)
        self.jobs = Jobs(concurrency=self.limits.concurrency, queue=self.limits.queue, journal=journal)
        self.answers = Answers()
        self.decode_pool = DecodePool(self.limits)
        self._plans: OrderedDict[str, Plan] = OrderedDict()
        self._lock = Lock()
        self._learned = 0

    @property
    def models(self) -> tuple[str, ...]:
        """Identities of the models, without paths and addresses."""
        return tuple(scrubbed(each.identity) for each in (self._model, self._answerer) if each)

    @property
    def converses(self) -> bool:
        """Whether the model that answers reads more than questions about videos; the embedded one knows no words."""
        return not (self._answerer or self._model).identity.startswith("embedded")

    @property
    def maps_cheaply(self) -> bool:
        """Whether a map of an overview takes little, so that a chat can say times."""
        return self._model.capabilities.attention_map

    def drain(self) -> None:
        """Refuse new questions and finish the others, as far as the time of grace allows; results can still be read."""
        self.jobs.drain(self.limits.grace)

    def close(self) -> None:
        """Finish the jobs, unless they had their time, and delete the media."""
        self.jobs.close(0.0 if self.jobs.closing else self.limits.grace)
        self.batcher.close()
        self.store.close()

    def submit(self, request: VideoQuestion, user: str) -> Job:
        """Queue a question; its video is released when it ends, or now if it is refused."""
        try:
            job = self.jobs.submit(lambda job: self._work(job, request), user)
        except ApiError:
            self.sources.release(request.video)
            raise
        job.finished.add_done_callback(lambda _: self.sources.release(request.video))
        return job

    def plan_for(self, settings: Mapping[str, Any], selector: str = "gridprobe", *, private: bool) -> Plan:
        """The plan for a request, or a refusal of its settings; of a private video no frame is stored on disk."""
        if unknown := sorted(set(settings) - SETTABLE):
            raise ApiError(f"unknown setting {unknown[0]!r}; known: {', '.join(sorted(SETTABLE))}", param=unknown[0])
        if selector.partition(":")[0] not in SELECTORS:
            raise ApiError(f"unknown selector {selector!r}; known: {', '.join(SELECTORS)}", param="selector")
        k = settings.get("k", self.settings.k)
        if isinstance(k, int) and k > self.limits.max_k:
            raise ApiError(f"k may be at most {self.limits.max_k} on this server, got {k}", param="k")
        key = json.dumps([dict(settings), selector, private], default=repr, sort_keys=True)
        with self._lock:
            if key not in self._plans:
                self._plans[key] = self._make_plan(settings, selector, private=private)
            self._plans.move_to_end(key)
            while len(self._plans) > MOST_PLANS:
                self._plans.popitem(last=False)
            return self._plans[key]

    def _make_plan(self, settings: Mapping[str, Any], selector: str, *, private: bool) -> Plan:
        base = self.settings.limits
        limits = VideoLimits(
            seconds=self.limits.decode_seconds,
            memory=max(1, min(base.memory, self.limits.session_bytes // 4)),
            cache=0 if private else base.cache,
        )
        options = replace(self.settings.changed(**settings), limits=limits)
        return options.resolve(model=self._model, answer_model=self._answerer, selector=selector).loaded()

    def offers(
        self, video: VideoSession, settings: Mapping[str, Any], selector: str, question: Question | None
    ) -> list[dict[str, Any]]:
        """What the ways to ask about an open video would take; empty if the models cannot be priced."""
        info = video.sampled(self.plan_for(settings, selector, private=video.source.private)).info
        if self.cost_models is None:
            return []
        priced = question or TYPICAL
        if priced.open:  # its overview and its focused pass cost nearly the same
            priced = Question(priced.text, TYPICAL.options)
        ways = offers(self.settings.changed(**settings), info, self.cost_models, selector=selector, question=priced)
        whole = next(each.tflops[1] for each in ways if each.name == ALL)
        return [each.to_dict() | _shares(each.tflops, whole) for each in ways]

    def _work(self, job: Job, request: VideoQuestion) -> dict[str, Any]:
        """Open the video, ask, and say what happens on the way."""
        source = request.video if isinstance(request.video, str) else self.sources.held(request.video)
        with self._open_session(source) as video:
            plan = self._plan_of_video(video, request)
            session = Session(video.sampled(plan), setup=plan)
            session.open()
            job.session = video.id
            times = list(session.pool.times)
            about, k = clean(video.to_dict(), video.source), Grid.holding(len(times)).k
            window = session.setup.sampling and session.setup.sampling.window
            sampled = {"k": k, "times": times, "window": window}
            job.add("opened", {"session": video.id, "video": about["video"], **sampled})
            if request.question is None:
                return {**about, **sampled}
            question = request.question
            with watching(lambda _, stage: _report_stage(job, stage, question, plan)):
                answer = session.ask(question, show_map=request.show_map)
            video.questions += 1
            self._learn(answer)
            public = _public(answer, video.source)
            self.answers.keep(job.id, public)
            return {
                "job": job.id,
                "session": video.id,
                "answer": public.to_dict(),
                "sentence": AnswerView(public).sentence,
                "brief": brief_of(AnswerView(public)),
                "times": list(public.pool.times),
                "view": view_of(public),
            }

    def write(self, prompt: str, params: SamplingParams, user: str) -> Job:
        """Queue a text about no video, by the model that answers."""
        return self.jobs.submit(lambda job: self._written(job, prompt, params), user)

    def _written(self, job: Job, prompt: str, params: SamplingParams) -> dict[str, Any]:
        """A text of the model; help if it writes none, or only words of gridworld."""
        model = self._answerer or self._model
        if not (model.capabilities.generates and self.converses):
            return {"job": job.id, "text": HELP, "tokens": 0, "prompt_tokens": 0, "finished": True, "warnings": []}
        ((written,),) = generate(model, [Request(prompt)], params)
        return {
            "job": job.id,
            "text": written.text or HELP,
            "tokens": written.tokens,
            "prompt_tokens": max(0, written.cost.tokens - written.tokens),
            "finished": written.finished,
            "warnings": [scrubbed(note) for note in written.notes],
        }

    def _learn(self, answer: Answer) -> None:
        """Keep how fast the models are, from the first answers that were computed anew and not written."""
        cost = answer.cost.total
        if self.cost_models is None or answer.question.open or 2 * cost.tflops_computed < cost.tflops:
            return
        with self._lock:
            self._learned += 1
            enough = self._learned > MOST_LEARNED
        if not enough:
            learn_from(answer, names=(self.cost_models.model.identity, self.cost_models.answerer.identity))

    def _plan_of_video(self, video: VideoSession, request: VideoQuestion) -> Plan:
        """The plan for a request, with frames a second as a grid."""
        private = video.source.private
        plan = self.plan_for(request.settings, request.selector, private=private)
        if request.fps is None:
            return plan
        start, end = video.sampled(plan).span
        frames = max(1, round(min(request.fps * (end - start), self.limits.max_k**2)))
        k = math.isqrt(frames - 1) + 1
        return self.plan_for({**request.settings, "k": k}, request.selector, private=private)

    @contextmanager
    def _open_session(self, source: MediaSource | str) -> Iterator[VideoSession]:
        """The session of a source that the caller holds, which is fetched if need be and released at the end."""
        with self.sources.at_hand(source) as stored, clean_errors(stored), self.sessions.using(stored) as video:
            yield video

    @contextmanager
    def using(self, id: str) -> Iterator[VideoSession]:
        """An open video, for work in this thread; errors name it as the client did."""
        with self._open_session(self.sources.held(self.sessions.get(id).source)) as video:
            yield video

    def about(self, video: VideoSession) -> dict[str, Any]:
        """A session with the times of the frames that were sampled last."""
        times = list(video.latest.lazy().times) if video.latest else []
        k = Grid.holding(len(times)).k if times else None
        window = video.latest.spec.window if video.latest else None
        return {**clean(video.to_dict(), video.source), "k": k, "times": times, "window": window}

    def frame(self, video: VideoSession, time: float, side: int) -> tuple[Any, float]:
        """The frame on display at a time, and its true time."""
        plan = self.plan_for({}, private=video.source.private)
        with clean_errors(video.source):
            length = (video.latest or video.sampled(plan)).info.duration or 0.0
            start = min(max(0.0, time), max(0.0, length - 0.002))
            assert plan.sampling is not None
            one = replace(plan.sampling, num_frames=1, precision="exact", segments=((start, start + 0.001),))
            pool = replace(plan, sampling=one).open(video.source.path).pool(FrameSize(max_side=side))
            return pool.pixels[0], pool.times[0]

    def indexed(
        self, video: VideoSession, index: int, k: int | None, side: int, *, window: Window | None = None
    ) -> tuple[Any, float]:
        """A frame by its place in a grid; without `k`, in the one that was used last."""
        with clean_errors(video.source):
            sampled, _ = self._sampled(video, k, window)
            count = len(sampled.lazy())
            if not 0 <= index < count:
                raise ApiError(f"the session has frames 0 to {count - 1}, got {index}", status=404, code="not_found")
            pool = sampled.frames([index], FrameSize(max_side=side))
            return pool.pixels[0], pool.times[0]

    def _sampled(self, video: VideoSession, k: int | None, window: Window | None) -> tuple[Video, Plan]:
        """A sampling of a video, and its plan; without `k`, the one that was used last."""
        settings = {"k": k, "window": window}
        named = {name: value for name, value in settings.items() if value is not None}
        plan = self.plan_for(named, private=video.source.private)
        return (None if k else video.latest) or video.sampled(plan), plan

    def pool(
        self, video: VideoSession, k: int | None, *, window: Window | None = None
    ) -> tuple[Any, tuple[float, ...]]:
        """All frames of a sampling, small, and their times; without `k`, of the one that was used last."""
        with clean_errors(video.source):
            sampled, plan = self._sampled(video, k, window)
            pool = sampled.pool(plan.pool_size(sampled.spec.num_frames))
            return pool.pixels, pool.times


def _shares(tflops: tuple[float, float], whole: float) -> dict[str, Any]:
    least, most = (value / whole for value in tflops)
    low, high = share_words(least), share_words(most)
    return {"share": (least, most), "share_words": high if low == high else f"{low.removesuffix('%')}–{high}"}


@contextmanager
def clean_errors(source: MediaSource) -> Iterator[None]:
    """Errors name the video as the client did."""
    try:
        yield
    except ApiError:
        raise
    except GridProbeError as error:
        text, advice, _ = clean(str(error), source).partition("; name another model with --model")
        if advice:  # for the command line, which a client does not have
            text = text.replace(" (see gridprobe demo)", "")
            raise ApiError(f"{text}; whoever runs this server can give it another model", code="demo_model") from error
        raise type(error)(text) from error


def clean(value: Any, source: MediaSource) -> Any:
    """Plain values in which the video has the client's name, and no path of this machine is left."""
    if isinstance(value, str):
        return scrubbed(value.replace(str(source.path), source.name)) if "/" in value else value
    if isinstance(value, Mapping):
        return {key: clean(each, source) for key, each in value.items()}
    return [clean(each, source) for each in value] if isinstance(value, list | tuple) else value


def _public(answer: Answer, source: MediaSource) -> Answer:
    """The answer as clients may see it: without paths of this machine."""
    info = answer.pool.info and replace(answer.pool.info, path=source.name)
    selecting, answering = answer.models
    return replace(
        answer,
        pool=replace(answer.pool, info=info),
        models=(tuple(map(scrubbed, selecting)), scrubbed(answering)),
        settings=clean(answer.settings, source),
        warnings=tuple(clean(answer.warnings, source)),
    )


def _report_stage(job: Job, stage: Any, question: Question, plan: Plan) -> None:
    """Pass on the result of a stage."""
    if isinstance(stage, Overview):
        belief = _belief(stage.posterior, question)
        job.add("overview", {"belief": belief, "sure": sure(stage.posterior, plan.exit)})
    elif isinstance(stage, Kept):
        job.add("map", selection_dict(stage.selection) | {"levels": levels_of(stage.selection.scores)})


def _belief(posterior: Posterior, question: Question) -> list[dict[str, Any]]:
    return [
        {
            "label": None if question.open else label,
            "text": label if question.open else question.option(label),
            "probability": share,
        }
        for label, share in zip(posterior.labels, posterior.shares, strict=True)
    ]


def view_of(answer: Answer) -> dict[str, Any]:
    """What a page shows of an answer, as plain values in the words of the reports."""
    view = AnswerView(answer)
    return {
        "said": view.text,
        "sure": view.sure,
        "where": view.where,
        "compute": view.compute,
        "reached": view.reached,
        "stages": view.stages,
        "moments": [{"start": each.start, "end": each.end, "words": each.words} for each in view.moments],
        "main": [index for each in view.main_spans for index in each.indices],
        "kept": list(view.kept),
        "levels": view.levels,
        "mark": view.mark,
        "sheet": view.sheet_words,
        "stretches": [list(each) for each in answer.reached.stretches],
        "bill": [{"name": each.name, "share": share_words(each.share), "seconds": each.seconds} for each in view.bill],
        "options_title": view.options_title,
        "options": [
            {name: getattr(each, name) for name in ("label", "text", "share", "chosen")}
            | {"percent": sure_words(each.share)}
            for each in view.shown_options
        ],
        "others": view.folded_words,
    }


def brief_of(view: AnswerView) -> dict[str, Any]:
    """An answer as a chat gives it: a sentence such as "Rome (2:40–2:44)", and the stretch that matters most."""
    spans = [] if view.answer.kind == "not said" else view.main_spans
    times, doubt = ", ".join(span.words for span in spans), view.doubt
    main = max(spans, key=lambda span: max((view.levels or ())[i] for i in span.indices), default=None)
    sentence = f"{view.text} ({times})" if times else view.text
    span = {"start": main and main.start, "end": main and main.end}
    return {"sentence": f"{sentence}; {doubt}" if doubt else sentence, **span}


def jpeg(pixels: Any, side: int) -> bytes:
    """A picture, not wider or higher than `side`."""
    image = Image.fromarray(pixels)
    image.thumbnail((side, side))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=82)
    return buffer.getvalue()
