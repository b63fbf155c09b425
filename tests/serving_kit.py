"""A server for tests: a scripted model that can be stopped, a folder with a video, and a client without a network."""

import base64
import io
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from PIL import Image

from gridprobe import MockModel
from gridprobe._util import report
from gridprobe.models import Request, Response
from gridprobe.options import Options
from gridprobe_serve.app import make_app
from gridprobe_serve.limits import ServerLimits
from gridprobe_serve.middleware import AccessRules, SecurityMiddleware
from gridprobe_serve.service import VideoService
from gridprobe_serve.store import AllowedFolders
from videos import numbered_video

BASE = "http://localhost:8765"
KEY = "secret-of-the-tests"
CHATS = ("/v1/chat/completions", "/v1/responses", "/v1/messages")


class Gated(MockModel):
    """Answers A; waits at a gate before each call, and counts what comes in each."""

    def __init__(self, *, opened: bool = True) -> None:
        super().__init__(self._believe, text=lambda request: {"a red ball": 0.8, "nothing": 0.2}, name="gated")
        self.gate, self.waiting = threading.Event(), threading.Event()
        self.calls: list[list[str]] = []
        if opened:
            self.gate.set()

    def run(self, requests: Sequence[Request]) -> Sequence[Response]:
        self.calls.append([request.prompt for request in requests])
        self.waiting.set()
        while not self.gate.wait(0.01):
            report("model", 0, len(requests))
        return super().run(requests)

    @staticmethod
    def _believe(request: Request) -> dict[str, float]:
        rest = 0.002 / (len(request.labels) - 1)
        return {label: 0.998 if label == "A" else rest for label in request.labels}


def make_service(folder: Path | None = None, *, model: MockModel | None = None, **limits: Any) -> VideoService:
    allowed = AllowedFolders.at(folder) if folder else None
    return VideoService(
        model or Gated(), settings=Options(k=3), limits=ServerLimits(**{"grace": 60.0, **limits}), folder=allowed
    )


@contextmanager
def running_service(folder: Path | None = None, *, model: Gated | None = None, **limits: Any) -> Iterator[VideoService]:
    service = make_service(folder, model=model, **limits)
    try:
        yield service
    finally:
        if model is not None:
            model.gate.set()
        service.close()


def client_of(
    service: VideoService, *, key: str | None = None, send: str | None = None, **options: Any
) -> httpx.AsyncClient:
    """A client of the application in this process; `send` is the key that it sends."""
    app: SecurityMiddleware = make_app(service, AccessRules(key), names=("embedded",))
    headers = {"Authorization": f"Bearer {send}"} if send else {}
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url=BASE, headers=headers, **options)


def video_folder(folder: Path) -> Path:
    """A folder with a short video, as sub/talk.mp4 and talk.mp4."""
    (folder / "sub").mkdir(parents=True)
    numbered_video(folder / "talk.mp4", 30, size=(64, 32))
    (folder / "sub" / "talk.mp4").write_bytes((folder / "talk.mp4").read_bytes())
    return folder


def jpeg(level: int = 100) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.full((32, 64, 3), level, np.uint8)).save(buffer, "JPEG")
    return buffer.getvalue()


def as_data(content: bytes, kind: str = "video/mp4") -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
