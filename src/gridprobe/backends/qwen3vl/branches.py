"""Texts that follow prompts, many after each; the keys and values of a prompt are held once for all of them."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gridprobe.backends.qwen3vl.language import LanguageModel
from gridprobe.backends.qwen3vl.pixels import upload

__all__ = ["Branches", "Prefix"]


@dataclass(frozen=True, eq=False)
class Prefix:
    """A prompt that was read."""

    parts: tuple[Tensor, ...]
    """Keys and values of its tokens, one part after another: each layers × 2 × heads × length × head size."""
    position: int
    """The position of the next token."""
    logits: Tensor
    """Of the next token."""

    def __len__(self) -> int:
        return sum(part.shape[3] for part in self.parts)


class Branches:
    """The same number of texts after each prompt, which grow by one token at a time."""

    def __init__(self, language: LanguageModel, prefixes: Sequence[Prefix], *, texts: int, steps: int) -> None:
        """Make room for so many texts after each prompt and so many steps."""
        self._language = language
        self._texts = texts
        self._past, known = _joined(prefixes, room=texts * steps)
        self._seen = known[:, None].repeat(1, texts, 1)
        self._filled = max(map(len, prefixes))
        self._next = upload([prefix.position for prefix in prefixes], self._past.device)
        self._prompts = list(range(len(prefixes)))

    def step(self, tokens: Sequence[int], live: Sequence[int]) -> Tensor:
        """Go on with some of the texts, one token each; text n is the one of prompt n // texts."""
        self._keep(sorted({number // self._texts for number in live}))
        places = upload([self._prompts.index(number // self._texts) for number in live], self._past.device)
        sample = upload([number % self._texts for number in live], self._past.device)
        ids = torch.zeros(len(self._prompts), self._texts, dtype=torch.long, device=self._past.device)
        ids[places, sample] = upload(list(tokens), self._past.device)
        start, end = self._filled, self._filled + self._texts
        self._seen[:, :, start:end] = torch.eye(self._texts, dtype=torch.bool, device=ids.device)
        positions = self._next[:, None].expand(-1, self._texts)
        past = self._past[..., :start, :]
        states, self._past[..., start:end, :] = self._language.follow(ids, positions, past, self._seen[:, :, :end])
        self._filled, self._next = end, self._next + 1
        return self._language.vocabulary(states[places, sample])

    def _keep(self, prompts: list[int]) -> None:
        """Drop prompts whose texts are all done."""
        if prompts == self._prompts:
            return
        rows = upload([self._prompts.index(prompt) for prompt in prompts], self._past.device)
        self._past, self._seen, self._next = self._past[:, :, rows], self._seen[rows], self._next[rows]
        self._prompts = prompts


def _joined(prefixes: Sequence[Prefix], *, room: int) -> tuple[Tensor, Tensor]:
    """Keys and values in one batch with room for more, and which of them are known: prompts × keys."""
    layers, pair, heads, _, size = prefixes[0].parts[0].shape
    width = max(map(len, prefixes)) + room
    past = prefixes[0].parts[0].new_zeros(layers, pair, len(prefixes), heads, width, size)
    for row, prefix in enumerate(prefixes):
        start = 0
        for part in prefix.parts:
            past[:, :, row, :, start : start + part.shape[3]] = part
            start += part.shape[3]
    lengths = upload([len(prefix) for prefix in prefixes], past.device)
    return past, torch.arange(width, device=past.device) < lengths[:, None]
