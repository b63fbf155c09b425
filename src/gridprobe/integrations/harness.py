"""Harness: answers prompts that another program wrote, each about a video, with a letter."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gridprobe._util import report
from gridprobe.answer import Answer
from gridprobe.ask import Session
from gridprobe.errors import ModelError, UsageError
from gridprobe.evaluation.tasks import Attempt
from gridprobe.options import Options, Plan
from gridprobe.question import Question

__all__ = ["Harness", "HarnessRequest"]


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

    def answers(self, asked: Sequence[HarnessRequest]) -> list[str]:
        """The letter for each prompt, in their order. Prompts about one video are asked together: it is decoded once.

        Raises:
            ModelError: more prompts failed than `max_failures` allows.
        """
        letters: dict[str, str] = {}
        failed: list[str] = []
        for done, (each, attempt, answer) in enumerate(self._asked(asked), start=1):
            letters[each.id] = answer.choice if answer else ""
            if attempt.error is not None:
                failed.append(f"{each.id}: {attempt.error}")
            elif answer is not None:
                self._record(each, answer)
            report("questions", done, len(asked))
        self.failures.extend(failed)
        if len(failed) > self.max_failures * len(asked):
            raise ModelError(f"{len(failed)} of {len(asked)} questions failed; the first was {failed[0]}")
        return [letters[each.id] for each in asked]

    def _asked(self, asked: Sequence[HarnessRequest]) -> Iterator[tuple[HarnessRequest, Attempt, Answer | None]]:
        videos: dict[str, list[HarnessRequest]] = {}
        for each in asked:
            videos.setdefault(each.video, []).append(each)
        if len({each.id for each in asked}) < len(asked):
            raise UsageError("two prompts have the same id; each needs its own")
        for video, about in videos.items():
            with Session(video, setup=self.setup, reuse=len(about) > 1) as session:
                for each in about:
                    answer = None
                    with Attempt() as attempt:
                        answer = session.ask(Question.from_prompt(each.prompt, id=each.id))
                    yield each, attempt, answer

    def _record(self, asked: HarnessRequest, answer: Answer) -> None:
        if self.out is not None:
            with self.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"id": asked.id, **answer.to_dict()}, allow_nan=False) + "\n")
