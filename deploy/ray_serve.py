"""The HTTP server of `gridprobe serve` on Ray Serve: replicas that autoscale, and each video stays with its replica.

    GRIDPROBE_KEY=… serve run --app-dir deploy ray_serve:build model=Qwen/Qwen3-VL-2B-Instruct videos=/srv/videos gpus=1

Arguments are the options of `gridprobe serve` (allow_urls=true, allow_host=…), and those of `Size`. An ingress checks
each request and passes it to the replica that has the video open. If the replica dies, the ingress asks another one.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import ray_affinity
from ray import cloudpickle, serve
from ray.exceptions import NodeDiedError, ObjectLostError, RayActorError, WorkerCrashedError
from ray.serve.exceptions import ReplicaUnavailableError
from ray_affinity import affinity_of, mark_of, owned_by
from ray_router import ByVideo
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from gridprobe.errors import UsageError
from gridprobe_serve.app import make_app
from gridprobe_serve.command import serve as command
from gridprobe_serve.command import server_limits_of, service_of
from gridprobe_serve.errors import LOG, ApiError, Json, error_response, mark_ids, new_id
from gridprobe_serve.middleware import UPLOADS, AccessRules, SecurityMiddleware
from gridprobe_serve.running import rules_for
from gridprobe_serve.store import AllowedFolders

__all__ = ["Ingress", "Relay", "Size", "Worker", "application", "build", "summed"]

DIED = (RayActorError, WorkerCrashedError, NodeDiedError, ObjectLostError, ReplicaUnavailableError)
"""Errors of a replica that is gone; errors of our own code are others, and are not tried again."""
TRIES = 6
FIRST_PAUSE = 0.1
"""Seconds before the second try; each further pause is twice as long."""
PART = 1 << 20
"""Bytes of an upload that are passed on at a time."""
MOST_HELD = 4 << 20
"""Bytes of a response that are held back until it is complete, so that it can be asked for again."""
PASSED_ON = ("http_version", "method", "scheme", "path", "raw_path", "query_string", "headers", "client")

for module in (sys.modules[__name__], ray_affinity):  # other machines of the cluster need not have these files
    cloudpickle.register_pickle_by_value(module)


class Worker:
    """A replica: models, open videos and jobs; the application of `gridprobe serve`, without a socket."""

    def __init__(self, given: dict[str, Any], make_service: Callable[[dict[str, Any]], Any] = service_of) -> None:
        self.mark = mark_of(serve.get_replica_context().replica_id.unique_id)
        mark_ids(self.mark)
        self._service, names = make_service(given)
        self._app = make_app(self._service, _rules(given), names=names)
        self._bodies: dict[str, asyncio.Queue[Message]] = {}
        self._running: set[asyncio.Task[None]] = set()

    async def answer(self, scope: dict[str, Any], body: bytes | None, token: str) -> AsyncIterator[Message]:
        """The messages of a response, after one that has our mark; without a body, `feed` gets it in parts."""
        whole = {"type": "http", "asgi": {"version": "3.0"}, "root_path": "", **scope}
        parts: asyncio.Queue[Message] = asyncio.Queue(1)
        replies: asyncio.Queue[Message | None] = asyncio.Queue(8)
        gone = asyncio.Event()
        self._bodies[token] = parts
        if body is not None:
            parts.put_nowait({"type": "http.request", "body": body, "more_body": False})

        async def reply(message: Message | None) -> None:
            if not gone.is_set():
                await replies.put(message)

        task = asyncio.create_task(self._run(whole, partial(_receive, parts, gone), reply))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            yield {"type": "mark", "mark": self.mark}
            while (message := await replies.get()) is not None:
                yield message
        finally:  # at the end, or because the client has gone away
            gone.set()
            del self._bodies[token]
            _empty(parts)
            _empty(replies)

    async def _run(self, scope: Scope, receive: Receive, reply: Any) -> None:
        try:
            await self._app(scope, receive, reply)
        finally:
            await reply(None)

    async def feed(self, token: str, part: bytes, more: bool) -> bool:
        """Append to the body of a request; False if its response is complete already."""
        if token not in self._bodies:
            return False
        await self._bodies[token].put({"type": "http.request", "body": part, "more_body": more})
        return True

    async def metrics(self) -> str:
        """The page /metrics of this replica."""
        app: Any = self._app.app
        return str(app.state.metrics.text())

    async def sessions(self) -> list[dict[str, Any]]:
        """The open videos of this replica."""
        return [each.to_dict() for each in self._service.sessions.all()]

    def __del__(self) -> None:
        """Ray Serve calls it when the replica's last response is complete."""
        if hasattr(self, "_service"):
            self._service.close()


class Ingress:
    """Checks requests, and passes each to the replica that it belongs to."""

    def __init__(self, workers: Any, given: dict[str, Any]) -> None:
        self._workers = workers
        self._given = given
        self._folder = AllowedFolders.at(given["videos"]) if given["videos"] else None

    def __serve_build_asgi_app__(self) -> SecurityMiddleware:
        """The application; Ray Serve calls it."""
        return SecurityMiddleware(self._serve, _rules(self._given), server_limits_of(self._given))

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        path, method = scope["path"], scope["method"]
        try:
            if path == "/health":
                await Json({"status": "ok"})(scope, receive, send)
            elif (method, path) == ("GET", "/metrics"):
                page = summed(await self._all("metrics"))
                await PlainTextResponse(page, media_type="text/plain; version=0.0.4")(scope, receive, send)
            elif (method, path) == ("GET", "/v1/gridprobe/sessions"):
                lists = await self._all("sessions")
                opened = sorted((one for each in lists for one in each), key=lambda one: one["used"])
                await Json({"sessions": opened})(scope, receive, send)
            elif (method, path.rstrip("/")) == ("POST", UPLOADS):
                await self._upload(scope, receive, send)
            else:
                await self._forward(scope, receive, send)
        except ApiError as refusal:
            await error_response(refusal)(scope, receive, send)
        except HTTPException as error:  # of the guard, while a body was read
            broken = ApiError(str(error.detail), status=error.status_code, code="bad_body")
            await error_response(broken)(scope, receive, send)

    async def _all(self, method: str) -> list[Any]:
        """What all replicas reply; one that dies in the meantime has nothing to say."""
        found = await self._workers.broadcast(method).results_async(return_exceptions=True)
        return [each for each in found if not isinstance(each, Exception)]

    async def _forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request; if its replica dies, to another one. Questions can be asked twice."""
        body = await _whole(receive)
        affinity = await run_in_threadpool(affinity_of, scope["path"], body, self._folder)
        relay = Relay(send)
        for tried in range(TRIES):
            try:
                async for message in self._asked(scope, body, affinity, new_id()):
                    await relay.add(message)
                return
            except DIED as error:
                LOG.warning("request %s: its replica died (%s)", scope["state"]["id"], type(error).__name__)
                if relay.committed:
                    raise  # part of the response was sent: end the connection, so that the client knows
            await asyncio.sleep(FIRST_PAUSE * 2**tried)
        raise _unavailable("the replicas that should answer have died; try again")

    def _asked(self, scope: Scope, body: bytes | None, affinity: str | None, token: str) -> Any:
        handle = self._workers.options(stream=True, session_id=affinity or token)
        return handle.answer.remote(_passed_on(scope), body, token)

    async def _upload(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a file in parts; it is not kept here, so it cannot be sent to another replica."""
        token = new_id()
        try:
            replies = aiter(self._asked(scope, None, None, token))
            owner = self._workers.options(session_id=owned_by((await anext(replies))["mark"]))
            more = True
            while more:
                part, more = await _part(receive)
                more = await owner.feed.remote(token, part, more) and more
            relay = Relay(send)
            async for message in replies:
                await relay.add(message)
        except DIED:
            raise _unavailable("the replica that received the file died; send it again") from None


class Relay:
    """Sends the messages of a response, as late as is good for asking again."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._held: list[Message] = []
        self._size = 0
        self._started = self._streams = False
        self.committed = False
        """Whether the client has got something that another replica's response may contradict."""

    async def add(self, message: Message) -> None:
        """A message of the response; the start of another response begins anew."""
        if message["type"] == "http.response.start":
            self._begin(message)
        elif message["type"] == "http.response.body":
            await self._add_body(message)

    def _begin(self, message: Message) -> None:
        headers = {name.lower(): value for name, value in message["headers"]}
        streams = headers.get(b"content-type", b"").startswith(b"text/event-stream")
        if self._started and not (streams and self._streams):
            raise RuntimeError("the second response is of another kind than the first, which has begun")
        self._held, self._size, self._streams = [] if self._started else [message], 0, streams

    async def _add_body(self, message: Message) -> None:
        body = message.get("body", b"")
        self._held.append(message)
        self._size += len(body)
        over = not message.get("more_body", False)
        if not (self._streams or over or self._size > MOST_HELD):
            return
        self._started = True
        self.committed |= not (self._streams and (not body or body.startswith(b":")))  # comments mean nothing
        held, self._held = self._held, []
        for each in held:
            await self._send(each)


@dataclass(frozen=True)
class Size:
    """How many replicas there are, and what each needs."""

    min_replicas: int = 1
    max_replicas: int = 4
    ingresses: int = 2
    cpus: float = 1.0
    gpus: float = 0.0


def build(arguments: Mapping[str, Any]) -> Any:
    """The application for `serve run` and `serve deploy`; they give the arguments."""
    own = vars(Size())
    size = Size(**{name: type(own[name])(value) for name, value in arguments.items() if name in own})
    return application(options({name: value for name, value in arguments.items() if name not in own}), size)


def options(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The options of `gridprobe serve`, read as on its command line."""
    if wrong := sorted({"host", "port", "key", "key_file"} & set(arguments)):
        raise UsageError(f"{wrong[0]} is not for Ray: set GRIDPROBE_KEY on all machines, and see serve start --help")
    flags = {each.name for each in command.params if getattr(each, "is_flag", False)}
    line: list[str] = []
    for name, value in arguments.items():
        flag = f"--{name.replace('_', '-')}"
        if name not in flags:
            line += [word for each in (value if isinstance(value, list) else [value]) for word in (flag, str(each))]
        elif str(value).lower() == "true":
            line.append(flag)
    with command.make_context("gridprobe serve", line) as context:
        return {name: value for name, value in context.params.items() if name not in ("key", "key_file")}


def application(given: dict[str, Any], size: Size, make_service: Callable[[dict[str, Any]], Any] = service_of) -> Any:
    """The two deployments.

    Args:
        given: options of `gridprobe serve`.
        size: how many replicas.
        make_service: loads the models in each replica.
    """
    limits = server_limits_of(given)
    both = {"health_check_period_s": 5, "graceful_shutdown_timeout_s": limits.grace + 10}
    workers = serve.deployment(
        name="Worker",
        ray_actor_options={"num_cpus": size.cpus, "num_gpus": size.gpus},
        # The queue of the application is the one that says 429; there must be room for it, and for pictures.
        max_ongoing_requests=2 * (limits.queue + limits.concurrency) + 64,
        autoscaling_config={
            "min_replicas": size.min_replicas,
            "max_replicas": size.max_replicas,
            "target_ongoing_requests": limits.concurrency,
        },
        request_router_config={"request_router_class": ByVideo},
        **both,
    )(Worker)
    ingress = serve.deployment(
        name="Ingress",
        num_replicas=size.ingresses,
        ray_actor_options={"num_cpus": 0},
        max_ongoing_requests=1024,
        **both,
    )(serve.ingress()(Ingress))
    return ingress.bind(workers.bind(given, make_service), given)


def summed(pages: list[str]) -> str:
    """One page of metrics with the sums of all."""
    found: dict[str, float | None] = {}
    for line in (line for page in pages for line in page.splitlines()):
        name, _, value = line.rpartition(" ")
        if line.startswith("#"):
            found[line] = None
        else:
            found[name] = (found.get(name) or 0) + float(value)
    return "".join(f"{name}\n" if value is None else f"{name} {value:.15g}\n" for name, value in found.items())


def _rules(given: Mapping[str, Any]) -> AccessRules:
    """Who may ask; the key is that of the machine's environment, so that it is in no record of Ray."""
    key, file = (os.environ.get(name) or None for name in ("GRIDPROBE_KEY", "GRIDPROBE_KEY_FILE"))
    return rules_for("0.0.0.0", key, given["allow_host"], key_file=file and Path(file))


def _unavailable(text: str) -> ApiError:
    return ApiError(text, status=503, code="unavailable", Retry_After="5")


def _passed_on(scope: Scope) -> dict[str, Any]:
    found = {name: scope[name] for name in PASSED_ON if name in scope}
    kept = [(name, value) for name, value in scope["headers"] if name.lower() != b"x-request-id"]
    return {**found, "headers": [*kept, (b"x-request-id", scope["state"]["id"].encode())]}


async def _whole(receive: Receive) -> bytes:
    parts, more = [], True
    while more:
        part, more = await _part(receive)
        parts.append(part)
    return b"".join(parts)


async def _part(receive: Receive) -> tuple[bytes, bool]:
    """The next bytes of a body, and whether there are more."""
    parts, size, more = [], 0, True
    while more and size < PART:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ApiError("the client has gone away", status=499, code="cancelled")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        more = message.get("more_body", False)
    return b"".join(parts), more


async def _receive(parts: "asyncio.Queue[Message]", gone: asyncio.Event) -> Message:
    """The next part of the body, or that the client has gone away."""
    waits = [asyncio.ensure_future(each) for each in (parts.get(), gone.wait())]
    try:
        done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        return waits[0].result() if waits[0] in done else {"type": "http.disconnect"}  # type: ignore[return-value]
    finally:
        for each in waits:
            each.cancel()


def _empty(queue: "asyncio.Queue[Any]") -> None:
    """Let those who wait for room go on."""
    while not queue.empty():
        queue.get_nowait()


async def _live(receive: Receive, send: Send) -> None:
    """Nothing is to be done at the start and at the end."""
    while (message := await receive())["type"] == "lifespan.startup":
        await send({"type": "lifespan.startup.complete"})
    await send({"type": message["type"] + ".complete"})
