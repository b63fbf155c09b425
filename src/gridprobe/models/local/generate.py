"""Texts that a local model writes: which token comes next, and when a text ends."""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gridprobe._util import report
from gridprobe.errors import ModelError
from gridprobe.models.base import Completion, Cost, SamplingParams, cut_at, seed_of, single_tokens

Step = Callable[[Sequence[int], Sequence[int]], Tensor]
"""From the last tokens of the texts with these numbers to the logits of their next tokens: texts × vocabulary."""


@dataclass(eq=False)
class GrowingText:
    """A text that is being written."""

    writing: SamplingParams
    limit: int
    seed: int
    ids: list[int] = field(default_factory=list)
    logprob: float = 0.0
    finished: bool = False

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    @property
    def done(self) -> bool:
        """Whether no token follows."""
        return self.finished or len(self.ids) >= self.limit

    def draw(self) -> float:
        """The next random number from 0 to 1; every token takes one."""
        return self._random.random()

    def add(self, token: int, logprob: float) -> None:
        """Add a token."""
        if math.isnan(logprob):
            raise ModelError("the model's output is not a number (NaN); try dtype float32, or check the weights")
        self.ids.append(token)
        self.logprob += logprob


@dataclass(frozen=True, eq=False)
class TextGenerator:
    """What a tokenizer and a model's settings say about texts."""

    tokenizer: Any
    ends: tuple[int, ...]
    """Tokens that end a text."""
    context: int | None
    """The most tokens of prompt and text together."""

    def drafts(self, prompt: npt.NDArray[np.int64], writing: SamplingParams) -> list[GrowingText]:
        """Empty texts after a prompt."""
        room = writing.limit if self.context is None else self.context - len(prompt) + 1
        limit, name = max(1, min(writing.limit, room)), prompt.tobytes()
        return [GrowingText(writing, limit, seed_of(writing, name, sample)) for sample in range(writing.samples)]

    def add(self, draft: GrowingText, token: int, logprob: float) -> None:
        """Add a token to a text, which may end it."""
        draft.add(token, logprob)
        stop = draft.writing.stop
        draft.finished = token in self.ends or bool(stop and cut_at(self._decode(draft.ids), stop)[1])

    def written(self, draft: GrowingText, cost: Cost, notes: tuple[str, ...] = ()) -> Completion:
        """A text that is done."""
        ids = tuple(draft.ids)
        text, _ = cut_at(self._decode(ids[:-1] if ids[-1] in self.ends else ids), draft.writing.stop)
        return Completion(text.strip(), len(ids), draft.logprob, draft.finished, cost, notes, ids)

    def choose(self, logits: Tensor, drafts: Sequence[GrowingText]) -> Iterator[tuple[int, float]]:
        """The next token of every text, and its log-probability at temperature 1."""
        temperature = drafts[0].writing.temperature
        if temperature:
            shares = torch.softmax(logits.double() / temperature, dim=-1).cumsum(-1)
            drawn = torch.tensor([[draft.draw()] for draft in drafts], dtype=torch.double, device=logits.device)
            tokens = torch.searchsorted(shares, drawn * shares[:, -1:], right=True).clamp(max=logits.shape[-1] - 1)[
                :, 0
            ]
        else:
            tokens = logits.argmax(-1)
        logprobs = torch.log_softmax(logits.double(), dim=-1)
        ended = torch.isin(tokens, torch.tensor(self.ends, device=tokens.device))
        own = torch.where(ended, self._ending(logprobs), logprobs.gather(1, tokens[:, None])[:, 0])
        return zip(tokens.tolist(), own.tolist(), strict=True)

    def _ending(self, logprobs: Tensor) -> Tensor:
        """The log-probability that the text ends."""
        return logprobs[:, list(self.ends)].logsumexp(-1)

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))


def write_all(scribe: TextGenerator, drafts: Sequence[GrowingText], logits: Tensor, step: Step) -> None:
    """Write all texts to their ends; `logits` are those of their first tokens."""
    live = list(range(len(drafts)))
    while live:
        choices = scribe.choose(logits, [drafts[number] for number in live])
        for number, (token, logprob) in zip(live, choices, strict=True):
            scribe.add(drafts[number], token, logprob)
        live = [number for number in live if not drafts[number].done]
        if live:
            report("write", len(drafts[live[0]].ids), max(draft.limit for draft in drafts))
            logits = step([drafts[number].ids[-1] for number in live], live)


def end_tokens(model: Any, tokenizer: Any, *more: int) -> tuple[int, ...]:
    """The tokens that end a text: those of the checkpoint's generation settings, its tokenizer's own, and these."""
    named = getattr(model.generation_config, "eos_token_id", None)
    listed = [*(named if isinstance(named, list) else [named]), tokenizer.eos_token_id, *more]
    size = model.get_output_embeddings().weight.shape[0]
    ends = {int(token) for token in listed if token is not None and token < size}
    if not ends:
        raise ModelError("the checkpoint does not say which token ends a text: set eos_token_id in its tokenizer")
    return tuple(sorted(ends))


# Which tokens mean which option letter, and the posterior over letters from the logits of the last position.

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
    logprobs = torch.log_softmax(logits.double(), dim=-1)[:, columns].cpu()
    place = {token: number for number, token in enumerate(columns)}
    pairs = []
    for row, letters in zip(logprobs, tokens, strict=True):
        raw = torch.stack([torch.logsumexp(row[[place[token] for token in ids]], dim=0) for ids in letters])
        pairs.append((tuple(torch.log_softmax(raw, dim=0).tolist()), float(raw.exp().sum())))
    return pairs


def check_mass(mass: float, labels: Sequence[str], *, least: float) -> None:
    """Refuse a posterior of a model that does not answer with a letter."""
    if mass < least:
        raise ModelError(
            f"the model puts only {mass:.2g} of its probability on the option letters {labels[0]}–{labels[-1]}: "
            "it does not answer with a letter here; use an Instruct checkpoint, not a Thinking or base one"
        )
