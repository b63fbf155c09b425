"""Which tokens mean which option letter, and the posterior over letters from the logits of the last position."""

from collections.abc import Sequence
from typing import Any

import torch

from gridprobe.errors import ModelError

__all__ = ["MIN_MASS", "check_mass", "letter_logprobs", "letter_tokens"]

MIN_MASS = 1e-3
"""A model whose option letters get less probability than this is not answering with a letter."""

SURFACE_FORMS = ("{}", " {}", "({}")
"""How a model may begin its answer: "A", " A" or "(A"."""


def letter_tokens(tokenizer: Any, labels: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """For each label the ids of its surface forms that are single tokens.

    The sets must be disjoint. A form of several tokens is left out instead of being represented by its first token: if
    "(" were a token, "(A" and "(B" would begin with the same one.
    """
    tokens: dict[str, tuple[int, ...]] = {}
    owner: dict[int, str] = {}
    for label in labels:
        encoded = [tokenizer.encode(form.format(label), add_special_tokens=False) for form in SURFACE_FORMS]
        tokens[label] = tuple(dict.fromkeys(ids[0] for ids in encoded if len(ids) == 1))
        if not tokens[label]:
            raise ModelError(f"this tokenizer has no single token for the option letter {label}")
        for token in tokens[label]:
            if owner.setdefault(token, label) != label:
                raise ModelError(f"token {token} begins both {owner[token]} and {label}; letters cannot be told apart")
    return tokens


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
