"""gridprobe as a model of lmms-eval: `--model gridprobe --model_args pretrained=Qwen/Qwen3-VL-2B-Instruct,k=12`.

lmms-eval catches every Exception, prints it and ends with exit code 0. So our errors end the program with a SystemExit.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from gridprobe.errors import GridProbeError, UsageError
from gridprobe.integrations.harness import Harness, HarnessRequest

try:
    from lmms_eval.api.model import lmms as Base
except ModuleNotFoundError:  # lmms-eval itself imports this module; without it, only our tests do
    Base = object

__all__ = ["GridProbeChat", "GridProbeSimple"]


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
            letters = self.harness.answers([self._asked(place, each.args) for place, each in enumerate(requests)])
        except GridProbeError as error:
            raise SystemExit(f"gridprobe: {error}") from error
        return letters

    def _asked(self, place: int, request: Sequence[Any]) -> HarnessRequest:
        prompt, _, to_visual, doc_id, task, split = request
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

    def _asked(self, place: int, request: Sequence[Any]) -> HarnessRequest:
        _, to_messages, _, doc_id, task, split = request
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
