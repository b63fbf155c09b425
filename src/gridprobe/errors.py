"""The error tree. Everything gridprobe raises on purpose is one of these, in one plain sentence.

GridProbeError
├── UsageError    the caller asked for something that cannot be: fix the call            (exit code 2)
│   └── OverLimit     a question takes more than its limits allow
├── VideoError    the video cannot be opened or decoded: fix the file                    (exit code 1)
│   └── DecoderKilled    its decoder was killed from outside, which says nothing about the file: try again
├── ModelError    the model cannot be loaded, or its output cannot be used               (exit code 1)
│   ├── TooLarge             a request has more tokens than the model reads, or than fit into memory
│   └── ServerError          a model's server refuses a request, or its reply cannot be used
│       └── ServerUnavailable    no further request can succeed now, so a run ends and can be resumed
├── DataError     a benchmark or question file does not hold what it should              (exit code 1)
├── RunError      an evaluation cannot continue: its folder, its disk, too many failures (exit code 1)
└── Cancelled     the caller cancelled the work                                          (exit code 1)

A message names the value, the rule and the way out. Any other exception is a bug of ours and keeps its traceback.
"""

from types import TracebackType


class GridProbeError(Exception):
    """Base of every error gridprobe raises on purpose."""

    exit_code = 1
    transient = False
    """Whether the same request may succeed later, so that a run asks the question again."""


class UsageError(GridProbeError):
    """A value given by the caller breaks a rule."""

    exit_code = 2


class OverLimit(UsageError):
    """A question, or its next pass, takes more than a limit allows."""

    def __init__(self, message: str, *, limit: str = "", more: str = "") -> None:
        super().__init__(message)
        self.limit = limit
        """The limit that it would exceed, such as "max_tokens"."""
        self.more = more
        """What the next pass would take, such as "31,200 tokens more, over --max-tokens 20000"."""


class VideoError(GridProbeError):
    """A video cannot be opened, decoded, or trusted."""


class DecoderKilled(VideoError):
    """The process that decodes was killed from outside, by an operator or because memory ran out."""

    transient = True


class ModelError(GridProbeError):
    """A model cannot be loaded, or does not give a usable posterior."""


class TooLarge(ModelError):
    """A request has more tokens than the model reads, or needs more memory than there is."""


class ServerError(ModelError):
    """A model's server refuses a request, or its reply cannot be used."""


class ServerUnavailable(ServerError):
    """No further request can succeed: the server is gone, refuses the key, or serves another model than before."""


class DataError(GridProbeError):
    """A question or benchmark file does not hold what it should."""


class RunError(GridProbeError):
    """An evaluation cannot go on: its folder is in use or cannot be written, or too many questions failed."""


class Cancelled(GridProbeError):
    """The caller cancelled the work."""


class Attempt:
    """A piece of work whose failure, whatever it is, becomes part of the result: `with Attempt() as attempt: …`.

    This is the one place where a bug of ours does not end the program: one bad question must not end three days of
    work. The record names its class, and the summary counts it.
    """

    def __init__(self) -> None:
        self.error: Exception | None = None

    def __enter__(self) -> "Attempt":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> bool:
        if isinstance(error, Exception):
            self.error = error
            return True
        return False
