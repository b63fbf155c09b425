"""gridprobe as a model of VLMEvalKit, which has no entry points. It follows VLMEvalKit's source and was not run here.

Put it next to VLMEvalKit's run.py, then: python run_vlmevalkit.py --data Video-MME_64frame --model GridProbe
"""

from functools import partial
from typing import Any, ClassVar

import run  # type: ignore[import-not-found]
from vlmeval.config import supported_VLM  # type: ignore[import-not-found]
from vlmeval.vlm.base import BaseModel  # type: ignore[import-not-found]

from gridprobe_serve.lmms import Harness, HarnessRequest


class GridProbe(BaseModel):  # type: ignore[misc]
    """One video and a prompt in, a letter out."""

    VIDEO_LLM = True  # the video itself, not frames that VLMEvalKit sampled
    allowed_types: ClassVar = ["text", "video"]

    def __init__(self, **options: Any) -> None:
        self.harness = Harness.of(**options, max_failures=0.0)  # a failed question ends the run

    def generate_inner(self, message: list[dict[str, str]], dataset: str | None = None) -> str:
        """Answer one question of VLMEvalKit."""
        (video,) = (part["value"] for part in message if part["type"] == "video")
        prompt = "\n".join(part["value"] for part in message if part["type"] == "text")
        return self.harness.answers([HarnessRequest("question", video, prompt)])[0]


supported_VLM["GridProbe"] = partial(GridProbe, model="Qwen/Qwen3-VL-2B-Instruct")
run.main()
