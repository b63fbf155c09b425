"""Models that look at frames and give each option a probability.

`load_model` turns a name into a model and imports only what that model needs. The names are in
`gridprobe.registry`.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from gridprobe.errors import ModelError, UsageError
from gridprobe.models.base import (
    Capabilities,
    Choose,
    Completion,
    Cost,
    CostModel,
    FrameGroup,
    Model,
    Packing,
    Posterior,
    PromptOrder,
    Request,
    Response,
    SamplingParams,
    Timestamps,
    Unit,
    View,
    choose,
    generate,
)
from gridprobe.registry import MODELS, explain_missing

__all__ = [
    "Capabilities",
    "Choose",
    "Completion",
    "CostModel",
    "FrameGroup",
    "LazyModel",
    "Model",
    "ModelLike",
    "Packing",
    "Posterior",
    "PromptOrder",
    "Request",
    "Response",
    "SamplingParams",
    "Timestamps",
    "Unit",
    "View",
    "as_model",
    "choose",
    "cost_model_of",
    "generate",
    "is_server",
    "load_model",
]

CHECKPOINT = "checkpoint"
"""The entry for names without the prefix of another entry: folders and Hugging Face ids."""
SERVER = "server"
"""The entry for addresses."""


def is_server(name: str) -> bool:
    """Whether a model's name is the address of a server."""
    return name.removeprefix(f"{SERVER}:").startswith(("http://", "https://"))


ModelLike = Any
"""A name, a `Model`, or a loaded model of transformers with its processor, as a tuple."""


def load_model(name: ModelLike, *, processor: Any = None, **options: Any) -> Model:
    """Load a model by name, or wrap a loaded one of transformers.

    Args:
        name: a checkpoint folder, a Hugging Face id such as "Qwen/Qwen3-VL-2B-Instruct", "embedded" or "embedded:nano"
            for a model of the package (a folder of that name is "./embedded"), "http://host:8000/v1#model" for a model
            on a server, or a name that another package added. Or a loaded model.
        processor: that of a loaded model; the two may also be one tuple.
        **options: `device`, `dtype` or `torch_dtype`, `attn_implementation`, `device_map`, `quantization` ("4bit" or
            "8bit"), `revision`, `min_letter_mass`; see `gridprobe.models.local.loading.LoadOptions`. For a server see
            `gridprobe.models.openai.ServerOptions`.
    """
    if "torch_dtype" in options:
        options.setdefault("dtype", options.pop("torch_dtype"))  # its name in older versions of transformers
    if isinstance(name, tuple) and len(name) == 2 and processor is None:
        name, processor = name
    name = os.fspath(name) if isinstance(name, os.PathLike) else name
    if not isinstance(name, str):
        with explain_missing("local"):
            from gridprobe.models.local.checkpoint import wrap

            return wrap(name, processor, **options)
    if processor is not None:
        raise UsageError(f"the checkpoint {name!r} has its own processor; leave out processor=")
    kind, argument = _find(name)
    entry = MODELS[kind]
    with explain_missing(entry.extra):
        model: Model = entry.load().load(argument, **options)
    return model


def as_model(model: ModelLike) -> Model:
    """The model that is meant: one by name is not loaded yet."""
    if isinstance(model, str | os.PathLike):
        return LazyModel(os.fspath(model))
    wrapped: Model = model if hasattr(model, "run") else load_model(model)
    return wrapped


def cost_model_of(name: str) -> CostModel:
    """What requests to a model would cost, without loading it. Nothing is downloaded."""
    kind, argument = _find(name)
    code = MODELS[kind].load()
    if not hasattr(code, "cost_model"):
        raise UsageError(f"the model {name!r} cannot be planned for: its backend has no cost model")
    cost_model: CostModel = code.cost_model(argument)
    return cost_model


def _find(name: str) -> tuple[str, str]:
    """The entry that a model's name refers to, and the argument for it."""
    if not name.strip():
        raise UsageError("no model given; name a checkpoint folder or an id such as Qwen/Qwen3-VL-2B-Instruct")
    if is_server(name):
        return SERVER, name.removeprefix(f"{SERVER}:")
    kind, colon, argument = name.partition(":")
    if kind not in MODELS:
        return CHECKPOINT, name
    if colon and not argument:
        expected = MODELS[kind].argument.split("|")
        raise UsageError(f"{name!r} names no model; choose {' or '.join(f'{kind}:{each}' for each in expected)}")
    return kind, argument


@dataclass(frozen=True)
class LazyModel:
    """A model that is not loaded yet: its name and the options to load it with. It can be sent to another process."""

    name: str
    options: tuple[tuple[str, Any], ...] = ()
    capabilities: ClassVar[Capabilities] = Capabilities(loaded=False)

    def __post_init__(self) -> None:
        _find(self.name)

    @property
    def identity(self) -> str:
        """The name, until it is loaded."""
        return self.name

    def load(self, **options: Any) -> Model:
        """Load it; its own options win over these."""
        return load_model(self.name, **{**options, **dict(self.options)})

    def run(self, requests: Sequence[Request]) -> list[Response]:
        """Refuse: there is nothing to ask yet."""
        raise ModelError(f"the model {self.name} is not loaded")

    def cost(self, request: Request) -> Cost:
        """Refuse: its price is not known yet."""
        raise ModelError(f"the model {self.name} is not loaded")
