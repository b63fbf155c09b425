"""Which tokens mean which option letter, and the posterior over letters from the logits of the last position."""

from collections.abc import Sequence
from typing import Any

import torch

from gridprobe.backends.letters import single_tokens
from gridprobe.errors import ModelError

__all__ = ["MIN_MASS", "check_mass", "letter_logprobs", "letter_tokens"]

MIN_MASS = 1e-3
"""A model whose option letters get less probability than this is not answering with a letter."""


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


def check_mass(mass: float, labels: Sequence[str], *, least: float) -> None:
    """Refuse a posterior of a model that does not answer with a letter."""
    if mass < least:
        raise ModelError(
            f"the model puts only {mass:.2g} of its probability on the option letters {labels[0]}–{labels[-1]}: "
            "it does not answer with a letter here; use an Instruct checkpoint, not a Thinking or base one"
        )
