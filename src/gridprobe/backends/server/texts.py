"""Texts that a server writes: what is asked for, and what is read from the choices of its reply."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gridprobe.backends.server.wire import Garbled
from gridprobe.backends.writing import Writing, Written, about_tokens, cut_at

__all__ = ["fields", "read"]


def fields(writing: Writing, *, logprobs: bool) -> dict[str, Any]:
    """What a request's body says; the number of texts and the seed are added by whoever sends it."""
    found: dict[str, Any] = {"max_tokens": writing.limit, "temperature": writing.temperature}
    if logprobs:
        found["logprobs"] = True
    return found | ({"stop": list(writing.stop)} if writing.stop else {})


def read(choices: Sequence[Mapping[str, Any]], writing: Writing, *, completion: int) -> list[Written]:
    """The texts in the choices; `completion` is how many tokens the server counted in all of them, or 0.

    A server that lists the tokens of each text is taken at its word; otherwise each has its part of what was counted.
    """
    texts = [_read(choice, writing) for choice in choices]
    if not completion or all(text.logprob is not None for text in texts):
        return texts
    left, whole, found = completion, sum(text.tokens for text in texts), []
    for text in texts:
        share = round(left * text.tokens / whole)
        found.append(replace(text, tokens=share))
        left, whole = left - share, whole - text.tokens
    return found


def _read(choice: Mapping[str, Any], writing: Writing) -> Written:
    """A text; without a list of its tokens, their number is estimated."""
    message = choice.get("message")
    content = message.get("content") if isinstance(message, Mapping) else None
    if not isinstance(content, str):
        raise Garbled("the reply has no text")
    text, stopped = cut_at(content, writing.stop)
    logprobs = _logprobs(choice)
    tokens = min(writing.limit, about_tokens(content)) if logprobs is None else len(logprobs)
    reason = choice.get("finish_reason")
    finished = stopped or (tokens < writing.limit if reason is None else reason == "stop")
    return Written(text.strip(), tokens, None if logprobs is None else math.fsum(logprobs), finished)


def _logprobs(choice: Mapping[str, Any]) -> list[float] | None:
    """The log-probability of every token; None if the server does not list them."""
    content = (choice.get("logprobs") or {}).get("content")
    if not content:
        return None
    try:
        return [float(each["logprob"]) for each in content]
    except (KeyError, TypeError, ValueError):
        raise Garbled("the reply's log-probabilities are not numbers") from None
