"""gridprobe as a model of other evaluation programs: `Harness` for any, and classes for lmms-eval.

    --model gridprobe --model_args pretrained=Qwen/Qwen3-VL-2B-Instruct,k=12

lmms-eval catches every Exception, prints it and ends with exit code 0. So our errors end the program with a SystemExit.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gridprobe._util import report
from gridprobe.answer import Answer
from gridprobe.ask import Session
from gridprobe.errors import Attempt, GridProbeError, ModelError, UsageError
from gridprobe.options import Options
from gridprobe.plan import Plan
from gridprobe.question import Question

try:
    from lmms_eval.api.model import lmms as Base
except ModuleNotFoundError:  # lmms-eval itself imports the classes below; without it, only our tests do
    Base = object


@dataclass(frozen=True)
class HarnessRequest:
    """One prompt about one video."""

    id: str
    video: str
    prompt: str


@dataclass(frozen=True)
class Harness:
    """How prompts are answered: `Harness.of` makes one from names."""

    setup: Plan
    max_failures: float = 0.1
    """The share of prompts that may fail. A failed one has the answer "", which every harness counts as wrong."""
    out: Path | None = None
    """A file for the whole answers, one JSON object a line: kept frames, confidence, cost."""
    failures: list[str] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        model: str,
        *,
        answer_model: str | None = None,
        selector: str = "gridprobe",
        preset: str = "default",
        device: str | None = None,
        max_failures: float = 0.1,
        out: str | None = None,
        **changes: Any,
    ) -> "Harness":
        """Load the models. `changes` are any settings on top of the preset."""
        settings = Options.from_preset(preset, **changes)
        setup = settings.resolve(model=model, answer_model=answer_model, selector=selector)
        return cls(setup.loaded(**({"device": device} if device else {})), max_failures, Path(out) if out else None)

    def answers(self, requests: Sequence[HarnessRequest]) -> list[str]:
        """The letter for each prompt, in their order. Prompts about one video are asked together: it is decoded once.

        Raises:
            ModelError: more prompts failed than `max_failures` allows.
        """
        letters: dict[str, str] = {}
        failures: list[str] = []
        for done, (request, attempt, answer) in enumerate(self._attempts(requests), start=1):
            letters[request.id] = answer.choice if answer else ""
            if attempt.error is not None:
                failures.append(f"{request.id}: {attempt.error}")
            elif answer is not None:
                self._record(request, answer)
            report("questions", done, len(requests))
        self.failures.extend(failures)
        if len(failures) > self.max_failures * len(requests):
            raise ModelError(f"{len(failures)} of {len(requests)} questions failed; the first was {failures[0]}")
        return [letters[request.id] for request in requests]

    def _attempts(self, requests: Sequence[HarnessRequest]) -> Iterator[tuple[HarnessRequest, Attempt, Answer | None]]:
        if len({request.id for request in requests}) < len(requests):
            raise UsageError("two prompts have the same id; each needs its own")
        by_video: dict[str, list[HarnessRequest]] = {}
        for request in requests:
            by_video.setdefault(request.video, []).append(request)
        for video, prompts in by_video.items():
            with Session(video, setup=self.setup, reuse=len(prompts) > 1) as session:
                for request in prompts:
                    answer = None
                    with Attempt() as attempt:
                        answer = session.ask(Question.from_prompt(request.prompt, id=request.id))
                    yield request, attempt, answer

    def _record(self, request: HarnessRequest, answer: Answer) -> None:
        if self.out is not None:
            with self.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"id": request.id, **answer.to_dict()}, allow_nan=False) + "\n")


# lmms-eval.


class GridProbeSimple(Base):  # type: ignore[misc]  # its package is not installed where types are checked
    """Answers multiple-choice prompts about one video with a letter."""

    is_simple = True

    def __init__(
        self,
        pretrained: str = "",
        *,
        device: str | None = None,
        batch_size: Any = 1,
        max_batch_size: Any = None,
        **options: Any,
    ) -> None:
        """Load the model.

        Args:
            pretrained: folder, hub id, or embedded.
            device: as for `gridprobe ask`.
            batch_size: ignored; gridprobe fills the memory that is free.
            max_batch_size: ignored.
            **options: those of `Harness.of`, and any setting, such as k=12 or preset=paper.
        """
        super().__init__()
        if not pretrained:
            raise SystemExit("gridprobe: name the model, as in --model_args pretrained=Qwen/Qwen3-VL-2B-Instruct")
        try:
            self.harness = Harness.of(pretrained, device=device, **options)
        except GridProbeError as error:
            raise SystemExit(f"gridprobe: {error}") from error

    def generate_until(self, requests: Sequence[Any]) -> list[str]:
        """A letter for every request."""
        if getattr(self, "world_size", 1) > 1:
            raise SystemExit("gridprobe: start lmms-eval with one process; gridprobe eval --workers uses several GPUs")
        try:
            return self.harness.answers([self._request(place, each.args) for place, each in enumerate(requests)])
        except GridProbeError as error:
            raise SystemExit(f"gridprobe: {error}") from error

    def _request(self, place: int, arguments: Sequence[Any]) -> HarnessRequest:
        prompt, _, to_visual, doc_id, task, split = arguments
        visuals = to_visual(self.task_dict[task][split][doc_id])
        return HarnessRequest(f"{task}/{split}/{doc_id}/{place}", _one_video(visuals), str(prompt))

    def loglikelihood(self, requests: Sequence[Any]) -> list[tuple[float, bool]]:
        """Not offered."""
        raise SystemExit("gridprobe: this task asks for likelihoods of texts; gridprobe answers with a letter")

    def generate_until_multi_round(self, requests: Sequence[Any]) -> list[str]:
        """Not offered."""
        raise SystemExit("gridprobe: this task has several rounds; gridprobe answers one question at a time")


class GridProbeChat(GridProbeSimple):
    """The same for tasks with messages, and what lmms-eval takes unless it is told `--force_simple`."""

    is_simple = False

    def _request(self, place: int, arguments: Sequence[Any]) -> HarnessRequest:
        _, to_messages, _, doc_id, task, split = arguments
        messages: Sequence[Mapping[str, Any]] = to_messages(self.task_dict[task][split][doc_id])
        parts = [part for message in messages for part in message["content"]]
        prompt = "\n".join(part["text"] for part in parts if part["type"] == "text")
        visuals = [part["url"] for part in parts if part["type"] != "text"]
        return HarnessRequest(f"{task}/{split}/{doc_id}/{place}", _one_video(visuals), prompt)


def _one_video(visuals: Sequence[Any]) -> str:
    if len(visuals) != 1 or not isinstance(visuals[0], str):
        kinds = ", ".join(sorted({type(each).__name__ for each in visuals})) or "nothing"
        raise UsageError(f"a question must be about one video file, got {len(visuals)} visuals ({kinds})")
    return visuals[0]
