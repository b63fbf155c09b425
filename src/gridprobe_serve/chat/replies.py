"""What the reply of a chat says: a sentence with times, a letter, or JSON; a line for each of several videos."""

import json
import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gridprobe._util import printable
from gridprobe.models.base import about_tokens
from gridprobe_serve.chat.reading import ChatQuestion
from gridprobe_serve.errors import ApiError
from gridprobe_serve.jobs import Job
from gridprobe_serve.schemas import ChatBody

PIECE = re.compile(r"^\s+|\S+\s*")
"""What a stream sends at a time: a word, and the space after it."""
LEAST = 1e-30
"""A probability of 0 has no logarithm."""
MOST_NAMED = 20
"""Fields that warnings name."""
JSON_FIELDS = ("answer", "start", "end", "confidence")
OF_TEXT = ("temperature", "seed", "stop", "max_tokens", "max_completion_tokens")
"""Fields that say how a text is written, and nothing of an answer about a video."""


@dataclass
class AskedVideo:
    """A video of a chat, or a turn without one: the job that answers, or why there is none."""

    name: str
    job: Job | None = None
    error: ApiError | None = None


@dataclass(frozen=True)
class ChatTurn:
    """What a chat asks, and what answers it."""

    body: ChatBody
    question: ChatQuestion
    asked: Sequence[AskedVideo]


class ChatUsage(NamedTuple):
    """Tokens that were read and written."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    video: int = 0


@dataclass(frozen=True)
class Reply:
    """What is said to a chat."""

    id: str
    model: str
    content: str
    usage: ChatUsage
    extra: Mapping[str, Any]
    """The object `gridprobe`."""
    logprobs: Mapping[str, Any] | None = None
    cut: bool = False
    """Whether the text is not finished."""
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def pieces(self) -> list[str]:
        """The content as a stream sends it."""
        return PIECE.findall(self.content) or [self.content]


Outcome = Mapping[str, Any] | ApiError


def make_reply(turn: ChatTurn) -> Reply:
    """The reply, once all jobs are over; raises the first error if none of them has a result."""
    outcomes = [_outcome(each) for each in turn.asked]
    results = [each for each in outcomes if not isinstance(each, ApiError)]
    if not results:
        raise next(each for each in outcomes if isinstance(each, ApiError))
    if not turn.question.videos:
        return _text_reply(turn, results[0])
    question, answer = turn.question, results[0]["answer"]
    warnings = [*_warnings(turn, outcomes), *_without_influence(turn)]
    common = {"options": list(question.question.options), "parsed_options": question.parsed, "warnings": warnings}
    named = zip(turn.asked, outcomes, strict=True)
    several = {"videos": [{"video": each.name, **_public(outcome)} for each, outcome in named]}
    content = _content(turn, outcomes)
    return Reply(
        id=results[0]["job"],
        model=turn.body.model,
        content=content,
        usage=_usage([each["answer"]["cost"] for each in results], content),
        extra={**(results[0] if len(outcomes) == 1 else several), **common},
        logprobs=_logprobs(turn.body, answer) if len(outcomes) == 1 else None,
    )


def _outcome(asked: AskedVideo) -> Outcome:
    try:
        return asked.job.outcome() if asked.job else asked.error or ApiError("it was not asked about")
    except ApiError as error:
        return error


def _public(outcome: Outcome) -> Mapping[str, Any]:
    return {"error": outcome.to_dict()} if isinstance(outcome, ApiError) else outcome


def _text_reply(turn: ChatTurn, result: Mapping[str, Any]) -> Reply:
    """A text of the model; where JSON is wanted, in an object, unless the model wrote one."""
    text = result["text"]
    if _json_names(turn.body) and not _is_object(text):
        text = json.dumps(dict.fromkeys(JSON_FIELDS) | {"answer": text}, ensure_ascii=False)
    usage = ChatUsage(result["prompt_tokens"], result["tokens"])
    extra = {"job": result["job"], "warnings": [*result["warnings"], *_without_influence(turn)]}
    return Reply(result["job"], turn.body.model, text, usage, extra, cut=not result["finished"])


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


# What it says.


def _content(turn: ChatTurn, outcomes: Sequence[Outcome]) -> str:
    """The answer; of several videos a numbered line for each, or a list in JSON."""
    names = [each.name for each in turn.asked]
    if fields := _json_names(turn.body):
        objects = [_json_object(each, fields) for each in outcomes]
        answers = [{"video": name, **each} for name, each in zip(names, objects, strict=True)]
        return json.dumps(objects[0] if len(objects) == 1 else {"answers": answers}, ensure_ascii=False)
    lines = [str(each) if isinstance(each, ApiError) else _words(turn, each) for each in outcomes]
    if len(lines) == 1:
        return lines[0]
    return "\n".join(
        f"{number}. {name}: {line}" for number, (name, line) in enumerate(zip(names, lines, strict=True), 1)
    )


def form_of(body: ChatBody, question: ChatQuestion) -> str:
    """What the reply is: json, a sentence, label, text or both."""
    letters = body.logprobs or body.most_tokens == 1 or question.letters
    return "json" if _json_names(body) else body.gridprobe.content or ("label" if letters else "sentence")


def _words(turn: ChatTurn, result: Mapping[str, Any]) -> str:
    """A sentence, unless something else is wanted; an open question has no letter."""
    form = form_of(turn.body, turn.question)
    label, text = result["answer"]["choice"], result["answer"]["answer"]
    if form == "sentence":
        return str(result["brief"]["sentence"])
    return str(text if label is None else {"label": label, "text": text, "both": f"{label}. {text}"}[form])


def _json_object(outcome: Outcome, fields: Sequence[str]) -> dict[str, Any]:
    if isinstance(outcome, ApiError):
        return {"error": str(outcome)}
    answer, brief = outcome["answer"], outcome["brief"]
    values = {name: answer.get(name, brief.get(name)) for name in JSON_FIELDS}
    return {name: values[name] for name in fields}


def _json_names(body: ChatBody) -> Sequence[str]:
    """The fields of a reply in JSON, those of ours that a schema has; none if JSON is not wanted."""
    kind = (body.response_format or {}).get("type", "text")
    properties = _schema_of(body).get("properties")
    known = [name for name in JSON_FIELDS if isinstance(properties, Mapping) and name in properties]
    return () if kind == "text" else known or JSON_FIELDS


def _schema_of(body: ChatBody) -> Mapping[str, Any]:
    wanted = (body.response_format or {}).get("json_schema")
    schema = wanted.get("schema") if isinstance(wanted, Mapping) else None
    return schema if isinstance(schema, Mapping) else {}


# Warnings, tokens and probabilities.


def _warnings(turn: ChatTurn, outcomes: Sequence[Outcome]) -> Iterator[str]:
    """What the answers warn of, with the videos' names if there are several."""
    for asked, outcome in zip(turn.asked, outcomes, strict=True):
        if not isinstance(outcome, ApiError):
            start = f"{asked.name}: " if len(outcomes) > 1 else ""
            yield from (f"{start}{warning}" for warning in outcome["answer"]["warnings"])
    if turn.body.logprobs and (len(outcomes) > 1 or turn.question.question.open):
        yield "logprobs are those of the options of a question about one video; this reply has none"


def _without_influence(turn: ChatTurn) -> Iterator[str]:
    """A warning for each field that does not change the reply."""
    body = turn.body
    written = [name for name in OF_TEXT if turn.question.videos and getattr(body, name) is not None]
    unread = [name for name in written if not (name.startswith("max_") and body.most_tokens == 1)]
    required = _schema_of(body).get("required")
    missing = [each for each in required if each not in JSON_FIELDS] if isinstance(required, list) else []
    named = [f"the field {each} of response_format" for each in missing]
    names = [*unread, *named, *body.unknown(), *turn.question.unknown]
    for name in names[:MOST_NAMED]:
        yield f"{printable(name)[:80]} does not change the answers of this server"
    if len(names) > MOST_NAMED:
        yield f"{len(names) - MOST_NAMED} other fields do not change the answers of this server"


def _usage(costs: Sequence[Mapping[str, Any]], content: str) -> ChatUsage:
    tokens, cached, video = (sum(cost[name] for cost in costs) for name in ("tokens", "cached_tokens", "visual_tokens"))
    completion = max(1, about_tokens(content))
    return ChatUsage(max(0, tokens - completion), completion, cached, video)


def _logprobs(body: ChatBody, answer: Mapping[str, Any]) -> dict[str, Any] | None:
    """The options' letters, likeliest first."""
    if not body.logprobs or answer["choice"] is None:
        return None
    listed = [
        {"token": label, "logprob": math.log(max(LEAST, probability)), "bytes": list(label.encode())}
        for label, probability in answer["posterior"].items()
    ]
    listed.sort(key=lambda each: -each["logprob"])
    chosen = next(each for each in listed if each["token"] == answer["choice"])
    return {"content": [{**chosen, "top_logprobs": listed[: body.top_logprobs or 0]}], "refusal": None}
