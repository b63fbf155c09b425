"""Refusal: an error with an HTTP status; and which status every other error has."""

import errno
from typing import Any

from gridprobe.errors import (
    Cancelled,
    DataError,
    DecoderKilled,
    GridProbeError,
    ModelError,
    ServerUnavailable,
    UsageError,
    VideoError,
)

__all__ = ["Refusal", "as_refusal", "check_descriptors", "not_found"]

INTERNAL = "the server made a mistake; its log has the details under the request's X-Request-ID"


class Refusal(GridProbeError):
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
    (ModelError, 502, "model_error"),
)
"""The first that fits counts."""


def as_refusal(error: BaseException) -> Refusal:
    """How an error is told to a client; what we did not raise on purpose is not told."""
    if isinstance(error, Refusal):
        return error
    for kind, status, code in STATUSES:
        if isinstance(error, kind):
            return Refusal(str(error), status=status, code=code)
    return Refusal(INTERNAL, status=500, code="internal_error")


def not_found(what: str) -> Refusal:
    """There is nothing with this id; the same text whether there ever was or not."""
    return Refusal(
        f"there is no such {what}; it may have ended, or the server was restarted", status=404, code="not_found"
    )


def check_descriptors(error: OSError) -> None:
    """Refuse with 503 if a file could not be opened because too many are; nothing is wrong with that file."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        message = "the server has too many files open; try again soon"
        raise Refusal(message, status=503, code="busy", Retry_After="5") from None
