"""Asker: questions about videos as a stage of Ray Data, Daft, DataChain or a loop over batches.

    ray.data.from_items([{"video": "a.mp4"}, {"video": "b.mp4"}]).map_batches(
        Asker("Is there a red triangle?", options=("yes", "no"), model="embedded"), batch_size=8
    )

As an actor it is `map_batches(Asker, fn_constructor_kwargs={"question": …}, concurrency=2)`. The model is loaded once
for each copy of the object, at its first batch.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gridprobe.answer import Answer
from gridprobe.ask import Session
from gridprobe.errors import Attempt, GridProbeError, UsageError
from gridprobe.options import Options
from gridprobe.plan import Plan
from gridprobe.question import Question

Columns = dict[str, Any]


class Asker:
    """A batch of columns in, the same with an answer for each row out. A failure is text in `error`, never raised.

    New columns: answer, confidence, start, end (of the strongest evidence; NaN without any), tokens, seconds, error.
    """

    def __init__(
        self,
        question: str = "",
        *,
        options: Sequence[str] = (),
        model: str = "embedded",
        video: str = "video",
        column: str = "question",
        preset: str = "default",
        **settings: Any,
    ) -> None:
        """Say what is asked.

        Args:
            question: the question for every row; without it, each row has its own in `column`.
            options: the answers to choose from; none is an open question.
            model: the name of a model; a loaded one could not be sent to an actor.
            video: the column with the paths of videos.
            column: the column with the questions.
            preset: the preset of the settings.
            **settings: any field of `gridprobe.Options`.
        """
        if not isinstance(model, str):
            raise UsageError(f"a stage loads its own model: give its name, not {type(model).__name__}")
        self.video, self.column, self.model = video, column, model
        self.fixed = Question(question, tuple(options)).distinct() if question else None
        self.options = tuple(options)
        self.method = Options.from_preset(preset, **settings)  # a wrong setting is said before a cluster starts
        self._plan: Plan | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the loaded model."""
        return {**vars(self), "_plan": None}

    def __call__(self, batch: Mapping[str, Any]) -> Columns:
        """Answer every row."""
        rows = [self._row(batch, number) for number in range(len(batch[self.video]))]
        kinds = {"answer": object, "error": object, "tokens": np.int64}
        names = ("answer", "confidence", "start", "end", "tokens", "seconds", "error")
        return {**batch, **{name: np.array([row[name] for row in rows], kinds.get(name, float)) for name in names}}

    def _row(self, batch: Mapping[str, Any], number: int) -> dict[str, Any]:
        begin, answer = time.perf_counter(), None
        with Attempt() as attempt:
            question = self.fixed or Question(str(batch[self.column][number]), self.options).distinct()
            with Session(str(batch[self.video][number]), setup=self._loaded(), reuse=False) as session:
                answer = session.ask(question, show_map=True)
        return {**_columns(answer), "seconds": time.perf_counter() - begin, "error": _sentence(attempt.error)}

    def _loaded(self) -> Plan:
        if self._plan is None:
            self._plan = self.method.resolve(model=self.model).loaded()
        return self._plan


def _columns(answer: Answer | None) -> dict[str, Any]:
    if answer is None:
        return {"answer": "", "confidence": np.nan, "start": np.nan, "end": np.nan, "tokens": 0}
    start, end = answer.evidence[0] if answer.evidence else (np.nan, np.nan)
    tokens = answer.cost.total.tokens
    return {"answer": answer.text, "confidence": answer.confidence, "start": start, "end": end, "tokens": tokens}


def _sentence(error: Exception | None) -> str:
    """What went wrong; a bug of ours is named by its class."""
    if error is None:
        return ""
    return str(error) if isinstance(error, GridProbeError) else f"{type(error).__name__}: {error}"
