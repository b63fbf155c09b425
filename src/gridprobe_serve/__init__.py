"""gridprobe as a server (HTTP), as a tool for agents (MCP), and as a model of lmms-eval."""

from typing import Any

from gridprobe.registry import SERVING, Entry

__all__ = [
    "MCP",
    "SERVE",
    "lmms_eval_manifest",
]

SERVE = Entry("gridprobe_serve.command:serve", "Answer questions over HTTP; has a page for browsers.", section=SERVING)
MCP = Entry("gridprobe_serve.command:mcp", "Give agents tools for videos (MCP).", section=SERVING)


def lmms_eval_manifest() -> Any:
    """What lmms-eval needs to find our classes; it imports them when `--model gridprobe` is asked for."""
    from lmms_eval.models.registry_v2 import ModelManifest

    module = "gridprobe_serve.lmms"
    return ModelManifest(
        model_id="gridprobe",
        simple_class_path=f"{module}.GridProbeSimple",
        chat_class_path=f"{module}.GridProbeChat",
    )
