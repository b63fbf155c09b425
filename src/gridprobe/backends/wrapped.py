"""Wrapped: the base of models that change how another one is asked."""

from typing import Any

from gridprobe.backends.base import Backend

__all__ = ["Wrapped"]


class Wrapped:
    """A model in front of another; whatever it does not define itself is passed through."""

    def __init__(self, model: Backend) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    @property
    def identity(self) -> str:
        """That of the model behind it."""
        return self._model.identity

    @property
    def multiple(self) -> int:
        """That of the model behind it."""
        return self._model.multiple
