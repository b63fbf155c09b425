"""The address of a server, as in http://localhost:8000/v1#model, and the key for it, which is never part of a name."""

import os
import re
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from gridprobe.errors import UsageError

__all__ = ["KEY", "Address", "find_key"]

KEY = "GRIDPROBE_API_KEY"
OPENAI_KEY, OPENAI_HOST = "OPENAI_API_KEY", "api.openai.com"
ENDPOINTS = re.compile(r"/(chat/completions|completions|models|responses)/*$")
"""What people paste behind the address that is meant."""


@dataclass(frozen=True)
class Address:
    """Where a model is served."""

    base: str
    """The address that "/chat/completions" is appended to, such as "http://localhost:8000/v1"."""
    model: str
    """The model's name on the server; empty for the only one it serves."""

    @classmethod
    def parse(cls, name: str) -> "Address":
        """From a model's name; a name with a key in it is refused without repeating it."""
        try:
            parts = urlsplit(name.strip())
            host, _ = parts.hostname, parts.port
        except ValueError:
            raise UsageError("the server's address is not a URL; write it as http://host:8000/v1#model") from None
        if parts.username is not None or parts.password is not None or parts.query:
            raise UsageError(
                f"the address of {host} contains a user, a password or a query, which records would show; "
                f"remove it, and set {KEY} in the environment if the server needs a key"
            )
        if parts.scheme not in ("http", "https") or not host:
            raise UsageError(f"{name!r} is not the address of a server; write it as http://host:8000/v1#model")
        path = ENDPOINTS.sub("", parts.path.rstrip("/")) or "/v1"
        return cls(f"{parts.scheme}://{parts.netloc}{path}", parts.fragment)

    @property
    def root(self) -> str:
        """The address without "/v1", where vLLM has its own endpoints."""
        return self.base.removesuffix("/v1")

    @property
    def host(self) -> str:
        """The host, and its port if one is given, for messages."""
        return self._parts.netloc

    @property
    def _parts(self) -> SplitResult:
        return urlsplit(self.base)

    def __str__(self) -> str:
        return f"{self.base}#{self.model}" if self.model else self.base


def find_key(address: Address) -> str | None:
    """The key from the environment. OpenAI's own variable is read for OpenAI's own server only."""
    names = [KEY]
    if address.base.startswith("https://") and urlsplit(address.base).hostname == OPENAI_HOST:
        names.append(OPENAI_KEY)
    for name in names:
        key = os.environ.get(name, "").strip()
        if key and not re.fullmatch(r"[!-~]+", key):
            raise UsageError(f"{name} holds spaces or characters that cannot be part of a key; set it again")
        if key:
            return key
    return None
