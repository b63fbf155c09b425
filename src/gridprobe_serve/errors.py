"""ApiError: an error with an HTTP status and OpenAI's error body; and what every other error is to a client."""

import errno
import json
import logging
import re
import secrets
from pathlib import Path
from typing import Any

from starlette.responses import JSONResponse, Response

from gridprobe._util import printable
from gridprobe.errors import (
    Cancelled,
    DataError,
    DecoderKilled,
    GridProbeError,
    ModelError,
    ServerUnavailable,
    TooLarge,
    UsageError,
    VideoError,
)

LOG = logging.getLogger("gridprobe_serve")
PATH = re.compile(r"(?:file:|(?<![\w/.:]))/(?:[\w.@+-]+/)+[\w.@+-]*")


class ApiError(GridProbeError):
    """A request that is not answered."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        code: str = "invalid_request",
        param: str | None = None,
        **headers: str,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    def to_dict(self) -> dict[str, Any]:
        """The object inside an error body of OpenAI's form."""
        kinds = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
        kind = kinds.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return {"message": str(self), "type": kind, "param": self.param, "code": self.code}


STATUSES: tuple[tuple[type[GridProbeError], int, str], ...] = (
    (Cancelled, 499, "cancelled"),
    (UsageError, 400, "invalid_request"),
    (DataError, 400, "invalid_request"),
    (DecoderKilled, 503, "decoder_killed"),
    (VideoError, 422, "unusable_video"),
    (ServerUnavailable, 503, "model_unavailable"),
    (TooLarge, 413, "too_long"),
    (ModelError, 502, "model_error"),
)
"""The first that fits counts."""


def as_api_error(error: BaseException) -> ApiError:
    """What a client is told of an error; the text of one that we did not raise on purpose is not for clients."""
    if isinstance(error, ApiError):
        return error
    for kind, status, code in STATUSES:
        if isinstance(error, kind):
            return ApiError(str(error), status=status, code=code)
    message = "the server made a mistake; its log has the details under the request's X-Request-ID"
    return ApiError(message, status=500, code="internal_error")


def not_found(what: str) -> ApiError:
    """There is nothing with this id; the same text whether there ever was or not."""
    message = f"there is no such {what}; it may have ended, or the server was restarted"
    return ApiError(message, status=404, code="not_found")


def check_descriptors(error: OSError) -> None:
    """Raise a 503 if a file could not be opened because too many are; nothing is wrong with that file."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        message = "the server has too many files open; try again soon"
        raise ApiError(message, status=503, code="busy", Retry_After="5") from None


class Json(JSONResponse):
    """JSON in ASCII, so that no text of a client can fail to be encoded."""

    def render(self, content: Any) -> bytes:
        """The body."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


def error_response(error: ApiError) -> Response:
    """An error body of OpenAI's form."""
    return Json({"error": error.to_dict()}, error.status, error.headers)


def scrubbed(text: str) -> str:
    """A text without absolute paths and without addresses of servers."""
    text = re.sub(r"https?://[^\s#'\"]+", "server", text)
    return PATH.sub(lambda match: Path(match[0]).name or "…", text)


def log_line(text: str) -> str:
    """A text that cannot forge lines of a log."""
    return printable(text)[:500]


_marks = [""]


def mark_ids(mark: str) -> None:
    """Begin all further ids of this process with a mark, so that a router of several servers knows whose they are."""
    _marks[0] = mark


def new_id() -> str:
    """An id that cannot be guessed."""
    return _marks[0] + secrets.token_hex(16)
