"""Which tokens mean which option letter, and the posterior over letters from the logits of the last position."""

from collections.abc import Sequence
from typing import Any

import torch

from gridprobe.backends.letters import single_tokens

__all__ = ["letter_logprobs", "letter_tokens"]


def letter_tokens(tokenizer: Any, labels: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """For each label the ids of its surface forms that are single tokens of a tokenizer of transformers."""
    return single_tokens(lambda text: tokenizer.encode(text, add_special_tokens=False), labels)


def letter_logprobs(
    logits: torch.Tensor, tokens: Sequence[Sequence[Sequence[int]]]
) -> list[tuple[tuple[float, ...], float]]:
    """For each sequence the log-probabilities over its letters, and the raw probability of all of them.

    Args:
        logits: of the last positions, sequences × vocabulary; read from the device in one copy.
        tokens: for each sequence, for each letter, its token ids; they are pooled by log-sum-exp.
    """
    columns = sorted({token for letters in tokens for ids in letters for token in ids})
    known = torch.log_softmax(logits.double(), dim=-1)[:, columns].cpu()
    place = {token: number for number, token in enumerate(columns)}
    found = []
    for row, letters in zip(known, tokens, strict=True):
        raw = torch.stack([torch.logsumexp(row[[place[token] for token in ids]], dim=0) for ids in letters])
        found.append((tuple(torch.log_softmax(raw, dim=0).tolist()), float(raw.exp().sum())))
    return found
