"""gridprobe as tools for agents (Model Context Protocol): list_videos, ask_video, look_over and frames_at."""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from inspect import Parameter, signature
from typing import Annotated, Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Image
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from gridprobe import __version__
from gridprobe.ask import Session
from gridprobe.errors import GridProbeError
from gridprobe.question import Question
from gridprobe.report.format import clock
from gridprobe_serve.errors import as_api_error
from gridprobe_serve.jobs import Job
from gridprobe_serve.middleware import AccessRules, SecurityMiddleware
from gridprobe_serve.schemas import FIELDS, make_question
from gridprobe_serve.service import VideoQuestion, VideoService, jpeg
from gridprobe_serve.store import ListedVideo

INSTRUCTIONS = (
    "Questions about long videos of this machine. list_videos names them; ask_video answers a question and says where "
    "in the video the answer is; look_over says what happens in each part; frames_at shows frames. Further questions "
    "about the same video are much faster than the first one."
)
DESCRIBE = "Describe what happens in the video."
PART_K = 4
ADVICE = (
    ("see GET /v1/gridprobe/videos", "list_videos names those that are"),
    ("; upload the video", "; list_videos names the videos that can be asked about"),
    (" (--allow-urls)", ""),
    ("delete uploads, or try again later", "try again later"),
)
"""What errors advise clients over HTTP, and what an agent can do."""
MOST_PARTS, MOST_FRAMES = 12, 16

Video = Annotated[str, Field(description="path of a video file under an allowed folder, or its name in it")]
Options = Annotated[list[str] | None, Field(description="2 to 26 possible answers; leave out for an answer in words")]
Parts = Annotated[int, Field(ge=1, le=MOST_PARTS, description="how many parts of equal length to describe")]
Times = Annotated[list[float], Field(min_length=1, max_length=MOST_FRAMES, description="seconds from the start")]


SETTINGS = [
    Parameter(
        name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, Field(description=field.description)]
    )
    for name, (kind, field) in FIELDS.items()
]
"""What a request may set of `gridprobe.options.Options`, and its limits, as arguments of a tool."""


class Possible(BaseModel):
    """Something that the answer could be."""

    text: str
    probability: float


class Answered(BaseModel):
    """The answer to a question about a video."""

    answer: str
    label: str | None
    confidence: float
    sentence: str
    """Where it was seen, in words."""
    evidence: list[tuple[float, float]]
    """Intervals of the video, in seconds, that the answer was read from."""
    candidates: list[Possible]
    reached_by: str
    share_of_compute: float | None
    """What was computed, as a share of showing everything."""
    warnings: list[str]


class Part(BaseModel):
    """What happens in a part of a video."""

    start: float
    end: float
    text: str


class LookedOver(BaseModel):
    """What is in a video."""

    name: str
    duration: float | None
    width: int
    height: int
    parts: list[Part]


def make_tools(service: VideoService) -> MCPServer[Any]:
    """A server of the Model Context Protocol with our tools."""
    server: MCPServer[Any] = MCPServer("gridprobe", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING")

    @server.tool()
    async def list_videos() -> list[ListedVideo]:
        """Name the videos that the other tools can be asked about."""
        folder = service.sources.folder
        return await run_in_threadpool(folder.listed) if folder else []

    async def ask_video(
        video: Video, question: str, ctx: Context[Any, Any], options: Options = None, **settings: Any
    ) -> Answered:
        """Answer a question about a video, and say where in the video the answer is."""
        with _agent_errors():
            parsed = make_question(question, options or ())
            source = await run_in_threadpool(service.sources.find, video)
            request = VideoQuestion(source, parsed, {name: each for name, each in settings.items() if each is not None})
            return _answered(await _result(service, service.submit(request, "agent"), ctx))

    own = signature(ask_video)
    arguments = [each for each in own.parameters.values() if each.kind is not Parameter.VAR_KEYWORD]
    ask_video.__signature__ = own.replace(parameters=[*arguments, *SETTINGS])  # type: ignore[attr-defined]
    server.add_tool(ask_video)

    @server.tool()
    async def look_over(video: Video, ctx: Context[Any, Any], parts: Parts = 4) -> LookedOver:
        """Say how long a video is and what happens in each part of it, with times."""
        with _agent_errors():
            source = await run_in_threadpool(service.sources.find, video)
            request = VideoQuestion(source, None)
            opened = await _result(service, service.submit(request, "agent"), ctx)
            job = service.jobs.submit(lambda job: _described(service, opened["id"], parts, job), "agent")
            return LookedOver.model_validate(await _result(service, job, ctx))

    @server.tool(structured_output=False)
    async def frames_at(video: Video, times: Times, ctx: Context[Any, Any], width: int = 512) -> list[Any]:
        """Show the frames of a video at some times, in seconds, and say which times or width were out of bounds."""
        with _agent_errors():
            source = await run_in_threadpool(service.sources.find, video)
            opened = await _result(service, service.submit(VideoQuestion(source, None), "agent"), ctx)
            session = service.sessions.get(opened["id"])
            side = min(max(width, 16), service.limits.max_side)

            def draw(time: float) -> list[Any]:
                pixels, true = service.frame(session, time, side)
                words = f"{clock(true)} ({true:.2f} s)"
                if not 0 <= time <= (duration := opened["video"]["duration"] or time):
                    words += f"; {time:.2f} s is outside of the video, which is {duration:.2f} s long"
                return [words, Image(data=jpeg(pixels, side), format="jpeg")]

            contents = [each for time in times for each in await service.decode_pool.run(partial(draw, time))]
            clamped = f"The frames are at most {side} pixels wide; a width of {width} is not possible."
            return [*([clamped] if side != width else []), *contents]

    return server


def over_http(tools: MCPServer[Any], service: VideoService, rules: AccessRules) -> SecurityMiddleware:
    """The tools as an ASGI application at /mcp; it closes the service at shutdown."""
    security = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    app = tools.streamable_http_app(transport_security=security)
    inner = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[Any]:
        async with inner(app) as state:
            yield state
        await run_in_threadpool(service.close)

    app.router.lifespan_context = lifespan
    return SecurityMiddleware(app, rules, service.limits)


async def _result(service: VideoService, job: Job, ctx: Context[Any, Any]) -> Mapping[str, Any]:
    """The result of a job; its progress goes to the agent, who may cancel it."""
    try:
        async for message in job.stream():
            if message is not None and message.name == "progress":
                stage, done, total = (message.data[name] for name in ("stage", "done", "total"))
                await ctx.report_progress(message.number, None, f"{stage}: {done} of {total}")
    finally:
        if not job.over:
            service.jobs.cancel(job)
    return job.outcome()


@contextmanager
def _agent_errors() -> Iterator[None]:
    """Our errors reach the agent as one sentence, with advice that an agent can follow."""
    try:
        yield
    except GridProbeError as error:
        text = str(as_api_error(error))
        for http, own in ADVICE:
            text = text.replace(http, own)
        raise ToolError(text) from error


def _answered(result: Mapping[str, Any]) -> Answered:
    answer = result["answer"]
    options, cost = answer["options"], answer["cost"]
    priced = not cost["unpriced_calls"] and cost["baseline_tflops"] > 0
    return Answered(
        answer=answer["answer"],
        label=answer["choice"],
        confidence=answer["confidence"],
        sentence=result["sentence"],
        evidence=[(start, end) for start, end in answer["evidence"]],
        candidates=[Possible(text=options.get(name, name), probability=p) for name, p in answer["posterior"].items()],
        reached_by=answer["reached"]["by"],
        share_of_compute=cost["tflops_computed"] / cost["baseline_tflops"] if priced else None,
        warnings=answer["warnings"],
    )


def _described(service: VideoService, id: str, parts: int, job: Job) -> dict[str, Any]:
    """What happens in equal parts of an open video."""
    with service.using(id) as video:
        plan = service.plan_for({"effort": "quick", "k": PART_K}, private=video.source.private)
        info = (video.latest or video.sampled(plan)).info
        length = info.duration or 1.0
        assert plan.sampling is not None
        described = []
        for number in range(parts):
            start, end = length * number / parts, length * (number + 1) / parts
            within = replace(plan, sampling=replace(plan.sampling, segments=((start, end),)))
            answer = Session(within.open(video.source.path), setup=within).ask(Question(DESCRIBE))
            described.append({"start": round(start, 3), "end": round(end, 3), "text": answer.text})
            job.add("progress", {"stage": "parts", "done": number + 1, "total": parts})
    size = {"width": info.width, "height": info.height}
    return {"name": video.source.name, "duration": info.duration, **size, "parts": described}
