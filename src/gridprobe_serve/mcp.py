"""gridprobe as tools for agents (Model Context Protocol): those to look; with a model ask_video and look_over."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from inspect import Parameter, signature
from typing import Annotated, Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from gridprobe import __version__
from gridprobe.ask import Session
from gridprobe.question import Question
from gridprobe_serve.jobs import Job
from gridprobe_serve.middleware import AccessRules, SecurityMiddleware
from gridprobe_serve.schemas import FIELDS, make_question
from gridprobe_serve.service import VideoQuestion, VideoService
from gridprobe_watch.tools import LOOKING, Video, VideoViewer, add_look_tools, agent_errors

ASKING = (
    " Or let this machine's own model look: ask_video answers a question and says where in the video the answer is; "
    "look_over says what happens in each part. Further questions about the same video are much faster than the first."
)
DESCRIBE = "Describe what happens in the video."
PART_K = 4
MOST_PARTS = 12

Options = Annotated[list[str] | None, Field(description="2 to 26 possible answers; leave out for an answer in words")]
Parts = Annotated[int, Field(ge=1, le=MOST_PARTS, description="how many parts of equal length to describe")]


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


def make_tools(service: VideoService | VideoViewer) -> MCPServer[Any]:
    """A server of the Model Context Protocol with our tools."""
    instructions = LOOKING + (ASKING if isinstance(service, VideoService) else "")
    server: MCPServer[Any] = MCPServer("gridprobe", instructions=instructions, version=__version__, log_level="WARNING")
    add_look_tools(server, service)
    if isinstance(service, VideoService):
        _add_ask_tools(server, service)
    return server


def _add_ask_tools(server: MCPServer[Any], service: VideoService) -> None:
    """Add the tools that ask a model."""

    async def ask_video(
        video: Video, question: str, ctx: Context[Any, Any], options: Options = None, **settings: Any
    ) -> Answered:
        """Answer a question about a video, and say where in the video the answer is."""
        with agent_errors():
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
        with agent_errors():
            source = await run_in_threadpool(service.sources.find, video)
            request = VideoQuestion(source, None)
            opened = await _result(service, service.submit(request, "agent"), ctx)
            job = service.jobs.submit(lambda job: _described(service, opened["id"], parts, job), "agent")
            return LookedOver.model_validate(await _result(service, job, ctx))


def over_http(tools: MCPServer[Any], service: VideoService | VideoViewer, rules: AccessRules) -> SecurityMiddleware:
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
