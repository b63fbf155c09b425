"""Vision features of pictures, each computed once, and the form in which a model takes them back."""

import copy
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import accelerate
import torch
import transformers
from torch import Tensor

from gridprobe.backends.transformers_auto.pictures import Pictures

__all__ = ["Tower", "accepted", "hollow_tower"]


class Tower:
    """A model's vision tower and projector."""

    def __init__(self, model: Any, pictures: Pictures, *, device: torch.device, dtype: torch.dtype) -> None:
        self._model = model
        self._joined = pictures.joined
        self._device, self._dtype = device, dtype
        self._names = accepted(model.model.get_image_features)
        self._kind: Any = None
        self._listed = False
        self._rank = 2

    def encode(self, pictures: Sequence[Mapping[str, Tensor]]) -> list[Tensor]:
        """Features of pictures of one size: for each, levels × tokens × width.

        Level 0 goes into the sequence; further levels, if any, are added to the first layers' states.
        """
        given = {name: value for name, value in self._joined(pictures).items() if name in self._names}
        given = {n: v.to(self._device, self._dtype if v.is_floating_point() else None) for n, v in given.items()}
        found = self._model.model.get_image_features(**given, return_dict=True)
        pooled = found.pooler_output
        self._kind, self._listed = type(found), not isinstance(pooled, Tensor)
        self._rank = 2 if self._listed else pooled.ndim
        levels = torch.stack([_flat(level) for level in (pooled, *(getattr(found, "deepstack_features", None) or ()))])
        return [each.clone() for each in levels.chunk(len(pictures), dim=1)]

    def outputs(self, features: Sequence[Tensor]) -> Any:
        """Features of some pictures as the tower would return them."""
        levels = range(1, len(features[0]))
        deep = [self._form([each[level] for each in features]) for level in levels]
        extra = {"deepstack_features": deep} if deep else {}
        return self._kind(pooler_output=self._form([each[0] for each in features]), **extra)

    def _form(self, parts: list[Tensor]) -> Any:
        if self._listed:
            return parts
        return torch.stack(parts) if self._rank == 3 else torch.cat(parts)


def _flat(level: Any) -> Tensor:
    """Tokens × width of all pictures."""
    whole = level if isinstance(level, Tensor) else torch.cat([part.flatten(0, -2) for part in level])
    return whole.flatten(0, -2)


def accepted(function: Any) -> frozenset[str]:
    """The names of a function's arguments."""
    return frozenset(inspect.signature(function).parameters)


def hollow_tower(config: Any, pictures: Pictures) -> Tower:
    """The vision tower with zeros for weights; memory that is only read as zeros takes no room."""
    with accelerate.init_empty_weights(include_buffers=False):
        model = transformers.AutoModelForImageTextToText.from_config(
            copy.deepcopy(config), attn_implementation="sdpa", trust_remote_code=False
        )
    language = {id(weight) for weight in model.get_decoder().parameters()}
    for module in model.modules():
        for name, weight in module.named_parameters(recurse=False):
            if id(weight) not in language:
                zeros = torch.nn.Parameter(torch.zeros(weight.shape), requires_grad=False)
                setattr(module, name, zeros)
    return Tower(model.eval(), pictures, device=torch.device("cpu"), dtype=torch.float32)
