"""Desk: what a server does, without HTTP. Videos are opened once, questions of all users share the models."""

import asyncio
import json
import logging
import math
import re
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from gridprobe._util import printable, watching
from gridprobe.answer import Answer
from gridprobe.ask import Kept, Overview, Session, sure
from gridprobe.concurrency import Batcher
from gridprobe.errors import GridProbeError
from gridprobe.evaluation.planning import TYPICAL, Models, offers
from gridprobe.importance import Grid
from gridprobe.limits import LIMITS, learn_from
from gridprobe.models import Model, Posterior
from gridprobe.options import Options, Plan
from gridprobe.options import settings as all_settings
from gridprobe.question import Question
from gridprobe.record import selection_dict
from gridprobe.report.format import share_words, sure_words
from gridprobe.report.view import AnswerView, levels_of
from gridprobe.video import FrameSize, VideoInfo, VideoLimits
from gridprobe_serve.jobs import ApiError, Job, JobMessage, Jobs, Journal, not_found
from gridprobe_serve.limits import ServerLimits
from gridprobe_serve.sessions import Sessions, VideoSession
from gridprobe_serve.sources import Fetcher, Remote, Source, Sources
from gridprobe_serve.store import AllowedFolder, AllowedRoots, MediaStore

__all__ = [
    "ALL",
    "SELECTORS",
    "SETTABLE",
    "Answers",
    "Json",
    "VideoQuestion",
    "VideoService",
    "as_event",
    "job_dict",
    "log_line",
    "messages",
    "plan_of",
    "refused",
    "result_of",
    "scrubbed",
    "until_over",
    "view_of",
]

# What routes reply with: JSON that is always valid, errors in OpenAI's form, jobs, and streams of events.

HEARTBEAT_SECONDS = 10.0
LAST = ("answer", "error", "cancelled")
LOG = logging.getLogger("gridprobe_serve")


class Json(JSONResponse):
    """JSON in ASCII, so that no text of a client can fail to be encoded."""

    def render(self, content: Any) -> bytes:
        """The body."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


def refused(refusal: ApiError) -> Response:
    """An error body of OpenAI's form."""
    return Json({"error": refusal.to_dict()}, refusal.status, refusal.headers)


def job_dict(job: Job, jobs: Jobs) -> dict[str, Any]:
    """A job as plain values."""
    return {
        "id": job.id,
        "state": job.state,
        "position": jobs.position(job),
        "progress": job.progress and job.progress._asdict(),
        "session": job.session,
        "result": job.result,
        "error": job.error and job.error.to_dict(),
        "created": job.created,
        "started": job.started,
        "ended": job.ended,
    }


async def until_over(job: Job, jobs: Jobs, request: Request) -> Mapping[str, Any]:
    """The result of a job. It is cancelled if the client goes away; its error is raised."""
    over = _noticed(job)
    waits = [asyncio.ensure_future(each) for each in (over.wait(), _gone(request))]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()
        if not job.over:
            jobs.cancel(job)
    return result_of(job)


def result_of(job: Job) -> Mapping[str, Any]:
    """The result of a job that is over, or its error."""
    if job.error is not None:
        raise copy(job.error)  # the job's own gets no traceback, which would keep the request
    if job.result is None:
        raise ApiError("the job was cancelled", status=499, code="cancelled")
    return job.result


async def messages(job: Job, after: int = 0) -> AsyncIterator[JobMessage | None]:
    """What happened in a job, and what happens, until it ends; None now and then while nothing does."""
    changed = asyncio.Event()
    end = job.subscribe(_setter(changed))
    try:
        while True:
            changed.clear()
            for message in job.after(after):
                after = message.number
                yield message
                if message.name in LAST:
                    return
            if any(each.name in LAST for each in job.after(0)) and not job.after(after):
                return
            try:
                await asyncio.wait_for(changed.wait(), HEARTBEAT_SECONDS)
            except asyncio.TimeoutError:
                yield None
    finally:
        end()


def as_event(message: JobMessage | None) -> str:
    """A message as a named server-sent event; None is a comment, which keeps the connection open."""
    if message is None:
        return ": waiting\n\n"
    data = json.dumps(message.data, allow_nan=False)
    return f"id: {message.number}\nevent: {message.name}\ndata: {data}\n\n"


def log_line(text: str) -> str:
    """A text that cannot forge lines of a log."""
    return printable(text)[:500]


def _noticed(job: Job) -> asyncio.Event:
    """An event that is set when a job is over."""
    over = asyncio.Event()
    job.when_over(_setter(over))
    return over


def _setter(event: asyncio.Event) -> Any:
    """What sets an event of this loop from any thread."""
    loop = asyncio.get_running_loop()

    def set_it() -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(event.set)

    return set_it


async def _gone(request: Request) -> None:
    """Wait until the client closes the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


# Answers: the latest ones are kept, so that their reports can be drawn when somebody asks for them.

MOST_BYTES = 256 << 20
"""Bytes of the frames of all answers that are kept; the latest is kept in any case."""
MOST = 64


class Answers:
    """The latest answers, by the id of their job."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: OrderedDict[str, Answer] = OrderedDict()

    def keep(self, id: str, answer: Answer) -> None:
        """Keep an answer, and drop the oldest ones if all together take too much."""
        with self._lock:
            self._kept[id] = answer
            while len(self._kept) > 1 and (len(self._kept) > MOST or self._bytes > MOST_BYTES):
                self._kept.popitem(last=False)

    def get(self, id: str) -> Answer:
        """The answer of a job."""
        with self._lock:
            if id not in self._kept:
                raise not_found("answer")
            return self._kept[id]

    @property
    def _bytes(self) -> int:
        """Of different arrays: answers about one video share its frames."""
        arrays = {id(pool.data): pool.data for each in self._kept.values() for pool in (each.pool, each.frames)}
        return sum(getattr(each, "nbytes", 0) for each in arrays.values())


# What a question about an open video would take, before it is asked: the table of `gridprobe plan` for clients.

ALL = "all frames"


def plan_of(
    models: Models, settings: Options, info: VideoInfo, *, selector: str, question: Question | None
) -> list[dict[str, Any]]:
    """Each way to ask as plain values, with its compute as a share of showing all frames."""
    priced = question or TYPICAL
    if priced.open:  # its overview and its focused pass cost nearly the same
        priced = Question(priced.text, TYPICAL.options)
    found = offers(settings, info, models, selector=selector, question=priced)
    whole = next(each.tflops[1] for each in found if each.name == ALL)
    return [each.to_dict() | _shares(each.tflops, whole) for each in found]


def _shares(tflops: tuple[float, float], whole: float) -> dict[str, Any]:
    least, most = (value / whole for value in tflops)
    low, high = share_words(least), share_words(most)
    return {"share": (least, most), "share_words": high if low == high else f"{low.removesuffix('%')}–{high}"}


# What a page shows of an answer, in the words of the reports.


def view_of(answer: Answer) -> dict[str, Any]:
    """Plain values: where the answer is, its options, its frames, and how it was reached."""
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
            {
                "label": each.label,
                "text": each.text,
                "share": each.share,
                "percent": sure_words(each.share),
                "chosen": each.chosen,
            }
            for each in view.shown_options
        ],
        "others": view.folded_words,
    }


SETTABLE = frozenset(
    {
        *(each.name for each in all_settings() if each.request),
        "full",
        *LIMITS,
    }
)
"""Options that a request may change, and limits of what it may take."""
SELECTORS = ("gridprobe", "uniform", "random", "all", "all-small")
"""Selectors that a request may name: those that load nothing."""
MOST_SETUPS = 32
MOST_LEARNED = 32
"""Questions of a process whose time counts for the models' speed, which is kept on disk."""
PATH = re.compile(r"(?:file:|(?<![\w/.:]))/(?:[\w.@+-]+/)+[\w.@+-]*")


@dataclass(frozen=True)
class VideoQuestion:
    """A question about a video; without a question the video is only opened."""

    video: Source | Remote
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
        bounds: ServerLimits | None = None,
        folder: AllowedFolder | AllowedRoots | None = None,
        fetcher: Fetcher | None = None,
        gauges: Models | None = None,
    ) -> None:
        """A server's desk; the models must be loaded.

        Args:
            model: looks over and selects; answers too, unless there is another for that.
            answer_model: answers from the kept frames.
            settings: what requests start from.
            bounds: how much it takes on.
            folder: whose files requests may name.
            fetcher: fetches addresses that requests name; None refuses them.
            gauges: price questions in advance; None if the models have none.
        """
        self.bounds = bounds or ServerLimits()
        self.settings = settings or Options()
        self.gauges = gauges
        self.batcher = Batcher(most=self.bounds.merged)
        self._model = self.batcher.merging(model)
        self._answerer = None if answer_model is None else self.batcher.merging(answer_model)
        self.shelf = MediaStore(quota=self.bounds.quota)
        self.sources = Sources(self.shelf, self.bounds, folder=folder, fetcher=fetcher)
        self.sessions = Sessions(self.sources, self.bounds)
        journal = Journal(self.shelf.folder, self.shelf.left)
        self.jobs = Jobs(at_once=self.bounds.together, waiting=self.bounds.queue, journal=journal)
        self.answers = Answers()
        self._setups: OrderedDict[str, Plan] = OrderedDict()
        self._lock = Lock()
        self._learned = 0

    @property
    def models(self) -> tuple[str, ...]:
        """Identities of the models, without paths and addresses."""
        found = [self._model.identity, *([self._answerer.identity] if self._answerer else [])]
        return tuple(scrubbed(each) for each in found)

    def drain(self) -> None:
        """Refuse new questions and finish the others, as far as the time of grace allows; results can still be read."""
        self.jobs.drain(self.bounds.grace)

    def close(self) -> None:
        """Finish the jobs, unless they had their time, and delete the media."""
        self.jobs.close(0.0 if self.jobs.closing else self.bounds.grace)
        self.batcher.close()
        self.shelf.close()

    def check(self, settings: Mapping[str, Any], selector: str) -> None:
        """Refuse settings that cannot be, before anything is queued."""
        self.setup(settings, selector, private=True)

    def submit(self, asked: VideoQuestion, user: str) -> Job:
        """Queue a question; its video is released when it ends, or now if it is refused."""
        try:
            job = self.jobs.submit(lambda job: self._work(job, asked), user)
        except ApiError:
            self.sources.release(asked.video)
            raise
        job.when_over(lambda: self.sources.release(asked.video))
        return job

    def setup(self, settings: Mapping[str, Any], selector: str = "gridprobe", *, private: bool) -> Plan:
        """The setup for a request; of a private video no frame is stored on disk."""
        if unknown := sorted(set(settings) - SETTABLE):
            raise ApiError(f"unknown setting {unknown[0]!r}; known: {', '.join(sorted(SETTABLE))}", param=unknown[0])
        if selector.partition(":")[0] not in SELECTORS:
            raise ApiError(f"unknown selector {selector!r}; known: {', '.join(SELECTORS)}", param="selector")
        k = settings.get("k", self.settings.k)
        if isinstance(k, int) and k > self.bounds.max_k:
            raise ApiError(f"k may be at most {self.bounds.max_k} on this server, got {k}", param="k")
        key = json.dumps([dict(settings), selector, private], default=repr, sort_keys=True)
        with self._lock:
            found = self._setups.get(key)
            if found is None:
                found = self._setups[key] = self._make(settings, selector, private=private)
            self._setups.move_to_end(key)
            while len(self._setups) > MOST_SETUPS:
                self._setups.popitem(last=False)
            return found

    def _make(self, settings: Mapping[str, Any], selector: str, *, private: bool) -> Plan:
        limits = VideoLimits(
            seconds=self.bounds.decode_seconds,
            memory=max(1, min(self.settings.limits.memory, self.bounds.session_bytes // 4)),
            cache=0 if private else self.settings.limits.cache,
        )
        changed = replace(self.settings.changed(**settings), limits=limits)
        made = changed.resolve(model=self._model, answer_model=self._answerer, selector=selector)
        return made.loaded()

    def plan(
        self, video: VideoSession, settings: Mapping[str, Any], selector: str, question: Question | None
    ) -> list[dict[str, Any]]:
        """What the ways to ask about an open video would take; empty if the models cannot be priced."""
        info = video.footage(self.setup(settings, selector, private=video.source.private)).info
        if self.gauges is None:
            return []
        return plan_of(self.gauges, self.settings.changed(**settings), info, selector=selector, question=question)

    def _work(self, job: Job, asked: VideoQuestion) -> dict[str, Any]:
        """Open the video, ask, and say what happens on the way."""
        held = asked.video if isinstance(asked.video, Remote) else self.sources.held(asked.video)
        with self.sources.at_hand(held) as source, self._scrubbing(source), self.sessions.using(source) as video:
            setup = self._sampled(video, asked)
            session = Session(video.footage(setup), setup=setup)
            session.open()
            job.session = video.id
            times = list(session.pool.times)
            about, k = clean(video.to_dict(), source), Grid.holding(len(times)).k
            job.add("opened", {"session": video.id, "video": about["video"], "k": k, "times": times})
            if asked.question is None:
                return {**about, "k": k, "times": times}
            question = asked.question
            with watching(lambda _, found: _tell(job, found, question, setup)):
                answer = session.ask(question, show_map=asked.show_map)
            video.questions += 1
            self._learn(answer)
            public = _public(answer, source)
            self.answers.keep(job.id, public)
            return _result(job, video, public)

    def _learn(self, answer: Answer) -> None:
        """Keep how fast the models are, from the first answers that were computed anew and not written."""
        cost = answer.cost.total
        if self.gauges is None or answer.question.open or 2 * cost.tflops_computed < cost.tflops:
            return
        with self._lock:
            self._learned += 1
            enough = self._learned > MOST_LEARNED
        if not enough:
            learn_from(answer, names=(self.gauges.model.identity, self.gauges.answerer.identity))

    def _sampled(self, video: VideoSession, asked: VideoQuestion) -> Plan:
        setup = self.setup(asked.settings, asked.selector, private=video.source.private)
        if asked.fps is None:
            return setup
        duration = video.footage(setup).info.duration or 1.0
        frames = max(1, round(min(asked.fps * duration, self.bounds.max_k**2)))
        k = math.isqrt(frames - 1) + 1
        return self.setup({**asked.settings, "k": k}, asked.selector, private=video.source.private)

    @contextmanager
    def using(self, id: str) -> Iterator[VideoSession]:
        """An open video, for work in this thread; errors name it as the client did."""
        source = self.sessions.get(id).source
        held = self.sources.at_hand(self.sources.held(source))
        with held, self._scrubbing(source), self.sessions.using(source) as video:
            yield video

    def about(self, video: VideoSession) -> dict[str, Any]:
        """A session with the times of the frames that were sampled last."""
        latest = video.latest
        times = list(latest.lazy().times) if latest else []
        k = Grid.holding(len(times)).k if times else None
        return {**clean(video.to_dict(), video.source), "k": k, "times": times}

    def frame(self, video: VideoSession, time: float, side: int) -> tuple[Any, float]:
        """The frame on display at a time, and its true time."""
        setup = self.setup({}, private=video.source.private)
        with self._scrubbing(video.source):
            length = (video.latest or video.footage(setup)).info.duration or 0.0
            start = min(max(0.0, time), max(0.0, length - 0.002))
            assert setup.sampling is not None
            one = replace(setup.sampling, num_frames=1, precision="exact", segments=((start, start + 0.001),))
            pool = replace(setup, sampling=one).open(video.source.path).pool(FrameSize(max_side=side))
            return pool.pixels[0], pool.times[0]

    def pool(self, video: VideoSession, k: int | None) -> tuple[Any, tuple[float, ...]]:
        """All frames of a sampling, small, and their times; without `k`, of the one that was used last."""
        setup = self.setup({"k": k} if k else {}, private=video.source.private)
        with self._scrubbing(video.source):
            footage = (None if k else video.latest) or video.footage(setup)
            pool = footage.pool(setup.pool_size(footage.spec.num_frames))
            return pool.pixels, pool.times

    def indexed(self, video: VideoSession, index: int, k: int | None, side: int) -> tuple[Any, float]:
        """A frame by its place in a grid; without `k`, in the one that was used last."""
        setup = self.setup({"k": k} if k else {}, private=video.source.private)
        with self._scrubbing(video.source):
            footage = (None if k else video.latest) or video.footage(setup)
            count = len(footage.lazy())
            if not 0 <= index < count:
                raise ApiError(f"the session has frames 0 to {count - 1}, got {index}", status=404, code="not_found")
            pool = footage.frames([index], FrameSize(max_side=side))
            return pool.pixels[0], pool.times[0]

    @contextmanager
    def _scrubbing(self, source: Source) -> Iterator[None]:
        """Errors name the video as the client did."""
        try:
            yield
        except ApiError:
            raise
        except GridProbeError as error:
            raise type(error)(clean(str(error), source)) from error


def scrubbed(text: str) -> str:
    """A text without absolute paths and without addresses of servers."""
    text = re.sub(r"https?://[^\s#'\"]+", "server", text)
    return PATH.sub(lambda match: Path(match[0]).name or "…", text)


def clean(value: Any, source: Source) -> Any:
    """Plain values in which the video has the client's name, and no path of this machine is left."""
    if isinstance(value, str):
        return scrubbed(value.replace(str(source.path), source.name)) if "/" in value else value
    if isinstance(value, Mapping):
        return {key: clean(each, source) for key, each in value.items()}
    return [clean(each, source) for each in value] if isinstance(value, list | tuple) else value


def _result(job: Job, video: VideoSession, answer: Answer) -> dict[str, Any]:
    return {
        "job": job.id,
        "session": video.id,
        "answer": answer.to_dict(),
        "sentence": AnswerView(answer).sentence,
        "times": list(answer.pool.times),
        "view": view_of(answer),
    }


def _public(answer: Answer, source: Source) -> Answer:
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


def _tell(job: Job, found: Any, question: Question, setup: Plan) -> None:
    """Pass on what a stage has found."""
    if isinstance(found, Overview):
        job.add("overview", {"belief": _belief(found.posterior, question), "sure": sure(found.posterior, setup.exit)})
    elif isinstance(found, Kept):
        job.add("map", selection_dict(found.selection) | {"levels": levels_of(found.selection.scores)})


def _belief(posterior: Posterior, question: Question) -> list[dict[str, Any]]:
    return [
        {
            "label": None if question.open else label,
            "text": label if question.open else question.option(label),
            "probability": share,
        }
        for label, share in zip(posterior.labels, posterior.shares, strict=True)
    ]
