"""The options of a model on a server."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from gridprobe.errors import UsageError
from gridprobe.registry import suggestion

__all__ = ["ServerOptions"]

LOCAL = {"device": None, "dtype": "auto", "attn_implementation": "sdpa", "device_map": None, "quantization": None}
"""Options of local models, with the values that a server may be loaded with; `device` is set for every worker."""


@dataclass(frozen=True)
class ServerOptions:
    """How a server is used. None of these changes what the model sees."""

    timeout: float = 600.0
    """Seconds to wait for one reply."""
    patience: float = 1800.0
    """Seconds to wait for a server that is down or busy, before a run ends."""
    concurrency: int = 16
    """Requests at a time, where the server has no endpoint for batches. Fewer are sent while it is busy."""
    samples: int = 16
    """Answers to draw for each request, if the server gives no probabilities."""
    trust_env: bool = False
    """Whether to use the proxies of the environment (HTTPS_PROXY and the like)."""
    price_in: float = 0.0
    """Price of a million prompt tokens, in any currency."""
    price_cached: float | None = None
    """The same for tokens from the server's cache; None is as for other tokens."""
    price_out: float = 0.0
    """Price of a million generated tokens."""
    priced_as: str = ""
    """Name of a model whose floating-point operations are counted, such as Qwen/Qwen3-VL-8B-Instruct or a checkpoint's
    folder. By default the name on the server decides, and an unknown model has no such count."""

    def __post_init__(self) -> None:
        for name in ("timeout", "patience"):
            if not 0 < getattr(self, name) < math.inf:
                raise UsageError(f"{name} must be a finite number of seconds above 0, got {getattr(self, name)}")
        for name, least in (("concurrency", 1), ("samples", 2)):
            if getattr(self, name) < least:
                raise UsageError(f"{name} must be at least {least}, got {getattr(self, name)}")
        for name in ("price_in", "price_cached", "price_out"):
            if not 0 <= (getattr(self, name) or 0.0) < math.inf:
                raise UsageError(f"{name} must be a price of at least 0, got {getattr(self, name)}")

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "ServerOptions":
        """From the options of `load_model`, which may be text from a command line."""
        known = {each.name: each for each in fields(cls)}
        values = {}
        for name, value in given.items():
            if name in known:
                values[name] = _typed(name, value, known[name].default)
            elif name not in LOCAL:
                raise UsageError(f"a server has no option {name!r}; {suggestion(name, known)}")
            elif name != "device" and value not in (None, LOCAL[name]):
                raise UsageError(f"{name}={value} is for local models; start the server with it instead")
        return cls(**values)


def _typed(name: str, value: Any, default: Any) -> Any:
    """The value as the type of its default; a price may be None."""
    kind = float if default is None else type(default)
    if value is None and default is None:
        return None
    try:
        return {"true": True, "false": False}[str(value).lower()] if kind is bool else kind(value)
    except (ValueError, TypeError, KeyError):
        raise UsageError(f"{name} must be of the type {kind.__name__}, got {value!r}") from None
