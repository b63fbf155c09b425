"""Backends: everything that can look at frames and say which option it believes.

`load_model` turns a name into a backend and imports what that one needs, so that a user of one never pays for another.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gridprobe.backends.base import Backend, Packing, Posterior, PromptOrder, ScoreRequest, Timestamps
from gridprobe.backends.scripted import Scripted
from gridprobe.errors import ModelError, UsageError

__all__ = [
    "Backend",
    "Packing",
    "Posterior",
    "PromptOrder",
    "ScoreRequest",
    "Scripted",
    "Timestamps",
    "load_model",
]

KINDS = {
    "embedded": "the model inside gridprobe (10 M parameters); it knows only gridworld, the world of gridprobe demo",
    "embedded:nano": "a smaller one (3 M parameters) of the same kind",
    "a folder": "a Qwen3-VL checkpoint on disk, as saved by transformers",
    "owner/name": "a Qwen3-VL checkpoint from the Hugging Face hub, e.g. Qwen/Qwen3-VL-2B-Instruct",
}


def load_model(name: str, **options: Any) -> Backend:
    """Load a model by name.

    Args:
        name: a folder with a Qwen3-VL checkpoint, a Hugging Face id such as "Qwen/Qwen3-VL-2B-Instruct", or "embedded"
            or "embedded:nano" for a model of the package (a folder of that name is "./embedded").
        **options: `device`, `dtype`, `attn_implementation`, `device_map`, `quantization` ("4bit" or "8bit"),
            `revision`, `min_letter_mass`; see `gridprobe.backends.qwen3vl.load`.
    """
    if not isinstance(name, str) or not name.strip():
        raise UsageError("no model given; name a checkpoint folder or an id such as Qwen/Qwen3-VL-2B-Instruct")
    if name.startswith(("http://", "https://")):
        raise UsageError(f"{name}: served models are not supported yet; give a checkpoint folder or a Hugging Face id")
    kind, _, size = name.partition(":")
    if kind == "embedded":
        from gridprobe.backends.embedded import load_embedded

        with _explain_missing_package():
            return load_embedded(size if ":" in name else "micro", **options)
    looks_like_path = name.startswith((".", "/", "~")) or Path(name).expanduser().exists()
    if not looks_like_path and name.count("/") != 1:
        raise UsageError(
            f"{name!r} is neither a folder that exists nor a Hugging Face id (owner/name); see `gridprobe list models`"
        )
    with _explain_missing_package():
        from gridprobe.backends.qwen3vl import load

        return load(name, **options)


@contextmanager
def _explain_missing_package() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "transformers", "accelerate", "safetensors"):
            raise
        raise ModelError(
            f"running a local model needs {error.name}, which is not installed; run: pip install 'gridprobe[local]'"
        ) from None
