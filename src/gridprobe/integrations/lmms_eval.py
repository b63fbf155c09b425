"""The entry point that makes gridprobe a model of lmms-eval (group `lmms_eval.models`). Imports nothing heavy."""

from typing import Any

__all__ = ["manifest"]


def manifest() -> Any:
    """What lmms-eval needs to find our classes; it imports them when `--model gridprobe` is asked for."""
    from lmms_eval.models.registry_v2 import ModelManifest

    package = "gridprobe.integrations.lmms_eval_models"
    return ModelManifest(
        model_id="gridprobe", simple_class_path=f"{package}.GridProbe", chat_class_path=f"{package}.GridProbeChat"
    )
