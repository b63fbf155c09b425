"""Which of several servers a request belongs to, so that a question meets the video that is open there.

Each server puts its mark at the beginning of the ids that it makes. A request with such an id belongs to the server of
the mark; any other request about a video belongs to the server that rendezvous hashing gives for the video.
"""

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from gridprobe.errors import GridProbeError
from gridprobe_serve.chat.dialects import MessagesBody, ResponsesBody
from gridprobe_serve.chat.reading import read_chat
from gridprobe_serve.schemas import ChatBody, SessionBody
from gridprobe_serve.sources import Frames
from gridprobe_serve.store import AllowedFolders, parts_below

__all__ = ["affinity_of", "mark_of", "owned_by", "ranked"]

MARK_LENGTH = 8
OWNER = "owner:"
ID_IN_PATH = re.compile(r"/v1/gridprobe/(?:jobs|sessions|uploads)/([^/]+)")
ID_IN_NAME = re.compile(r"(?:upload|session):/*(.+)", re.IGNORECASE)

CHATS: dict[str, Callable[[bytes], ChatBody]] = {
    "/v1/chat/completions": ChatBody.model_validate_json,
    "/v1/responses": lambda body: ResponsesBody.model_validate_json(body).to_chat(),
    "/v1/messages": lambda body: MessagesBody.model_validate_json(body).to_chat(),
}


def mark_of(server: str) -> str:
    """What the ids of a server begin with.

    Args:
        server: its unique name.
    """
    return hashlib.sha256(server.encode()).hexdigest()[:MARK_LENGTH]


def owned_by(mark: str) -> str:
    """The affinity of requests that belong to the server with this mark."""
    return OWNER + mark[:MARK_LENGTH]


def ranked(affinity: str, marks: Sequence[str]) -> list[str]:
    """The servers for a request, best first.

    When a server goes or comes, only its own videos change places (rendezvous hashing).

    Args:
        affinity: what `affinity_of` returned.
        marks: those of the servers that are there.
    """
    owner = affinity.removeprefix(OWNER)
    return sorted(marks, key=lambda mark: (mark != owner, hashlib.sha256(f"{mark}|{affinity}".encode()).digest()))


def affinity_of(path: str, body: bytes, folder: AllowedFolders | None = None) -> str | None:
    """What a request belongs to; None if any server can answer it.

    Args:
        path: of the address.
        body: JSON, or nothing.
        folder: whose files requests may name.
    """
    if match := ID_IN_PATH.match(path):
        return owned_by(match[1])
    video = _named_video(path, body)
    if isinstance(video, Frames):
        return _digest(json.dumps(list(video.pictures)))
    if video is None:
        return None
    match = ID_IN_NAME.fullmatch(video)
    return owned_by(match[1]) if match else _digest(_normal(video, folder))


def _named_video(path: str, body: bytes) -> str | Frames | None:
    """The first video of a question; None if there is none, or if the server will refuse the body."""
    try:
        if path in CHATS:
            videos = read_chat(CHATS[path](body)).videos
            return videos[0] if videos else None
        if path in ("/v1/gridprobe/ask", "/v1/gridprobe/jobs", "/v1/gridprobe/sessions"):
            video = json.loads(body).get("video")
            return SessionBody(video=video).video
    except (ValidationError, RequestValidationError, GridProbeError, ValueError, AttributeError):
        return None
    return None


def _normal(name: str, folder: AllowedFolders | None) -> str:
    """The same name for all spellings of a file; data and addresses are as they are."""
    if folder is not None and not re.match(r"(?:data|https?):", name, re.IGNORECASE):
        with suppress(GridProbeError):
            return "/".join(parts_below(folder.roots[0], name))
    return name


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
