"""The language model on sequences of different lengths, with or without keys and values of their first parts."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from gridprobe._util import check_cancelled
from gridprobe.models.local.kv_cache import SHORTEST_PART, most_scores, steady_attention
from gridprobe.models.qwen3vl.blocks import (
    Block,
    attention_weights,
    last_text_block,
    last_text_block_of_row,
    rms,
    text_block,
    text_weights,
    upload,
)

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Piece:
    """A part of one sequence to run: all of it, its prefix, or what follows the prefix."""

    ids: np.ndarray[Any, np.dtype[np.int64]]
    positions: np.ndarray[Any, np.dtype[np.int64]]
    """3 × length."""
    visual: np.ndarray[Any, np.dtype[np.bool_]]
    features: Tensor | None
    """Of its visual tokens: levels × tokens × width."""
    past: Tensor | None = None
    """Keys and values of the tokens before it: layers × 2 × heads × length × head size."""

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(eq=False)
class _Run:
    """A batch of pieces in the layers."""

    h: Tensor
    cos: Tensor
    sin: Tensor
    places: tuple[Tensor, Tensor]
    features: Tensor | None
    past: Tensor | None
    mask: Tensor | None = None
    visible: Callable[[int, int], Tensor] | None = None
    """Makes the mask of the tokens from one to another; None if they attend causally."""
    kept: Tensor | None = None
    """Where the keys and values of these tokens go, if later parts of the text attend to them."""
    start: int = 0
    """How many tokens of the text were read in parts before this one."""
    final: bool = True
    """Whether the text ends here."""

    @property
    def kernels(self) -> AbstractContextManager[None]:
        """Those for the attention of these pieces."""
        return steady_attention(self.h.device, tokens=self.h.shape[1] if self.mask is None else 0)


def _visible(before: Tensor, owner: Tensor, dtype: torch.dtype) -> Callable[[int, int], Tensor]:
    """The mask of texts that attend to some of the past, and to the tokens of their own text up to themselves.

    Args:
        before: which tokens of the past each text attends to: batch × texts × keys.
        owner: the number of each token's text.
        dtype: of the mask.
    """

    def mask(start: int, end: int) -> Tensor:
        """For the tokens from start to end, over the past and all tokens up to the end."""
        own = (owner[start:end, None] == owner[:end]).tril(start)
        return _added(torch.cat([before[:, owner[start:end]], own.expand(len(before), -1, -1)], dim=-1), dtype)

    return mask


class LanguageModel:
    """Qwen3-VL's language model. Sequences are padded on the right, which causal attention never sees."""

    def __init__(self, model: Any, *, block: Block = text_block) -> None:
        self._language = model.model.language_model
        self._head = model.lm_head
        self._block = block
        self._scores = most_scores(self._device)

    def logits(self, pieces: Sequence[Piece]) -> Tensor:
        """Vocabulary logits after the last token of every piece, in float32."""
        if self._too_wide(pieces, rows=len(pieces), length=max(map(len, pieces))):
            return torch.cat([self.logits(some) for some in _halves(pieces)])
        run = self._last_part(self._begin(pieces))
        return self._finish(run, pieces)

    def beside(self, pieces: Sequence[Piece], seen: Sequence[Tensor]) -> Tensor:
        """As `logits`, for texts that follow the same past, each as if it were alone; the past is not copied.

        Args:
            pieces: texts without frames, all with the same `past`.
            seen: for each text, which tokens of the past it attends to.
        """
        if self._too_wide(pieces, rows=1, length=sum(map(len, pieces))):
            halves = zip(_halves(pieces), _halves(seen), strict=True)
            return torch.cat([self.beside(some, theirs) for some, theirs in halves])
        run = self._last_part(self._row(pieces, seen))
        return self._finish_row(run, pieces)

    def watched(
        self, pieces: Sequence[Piece], seen: Sequence[Tensor], owners: Tensor, units: int
    ) -> tuple[Tensor, Tensor]:
        """As `beside`, and how much the tokens of each text attend to each unit of the past: texts × heads × units.

        A unit's number is its share of the attention of the token that attends to it most. The heads are those of all
        layers but the last, where only one token is computed. `owners` has the unit of every token of the past, or -1.
        """
        heads, layers = self._language.config.num_attention_heads, self._language.layers[:-1]
        if self._too_wide(pieces, rows=heads, length=sum(map(len, pieces))):
            halves = zip(_halves(pieces), _halves(seen), strict=True)
            parts = [self.watched(some, theirs, owners, units) for some, theirs in halves]
            return torch.cat([logits for logits, _ in parts]), torch.cat([watched for _, watched in parts])
        most = torch.zeros(max(1, len(layers)), len(pieces), heads, units, device=self._device)
        for run in self._parts(self._row(pieces, seen), heads=heads):
            steps = self._layers(run, layers if run.final else self._language.layers)
            lengths = [len(piece) for piece in pieces] if len(pieces) > 1 else [run.h.shape[1]]
            for number, layer in enumerate(layers):
                shares = self._attention(run, number, layer, owners, units)
                here = torch.stack([part.amax(1) for part in torch.split(shares, lengths, 1)])
                most[number] = torch.maximum(most[number], here)
                next(steps)
            for _ in steps:  # the last layer, if later parts attend to its keys
                pass
        return self._finish_row(run, pieces), most.transpose(0, 1).flatten(1, 2)

    def _attention(self, run: "_Run", number: int, layer: Any, owners: Tensor, units: int) -> Tensor:
        """How much each token attends to each unit in one layer: heads × tokens × units."""
        assert run.past is not None and run.mask is not None
        weights, past = attention_weights(run.h, run.cos, run.sin, run.mask, run.past[number, 0], layer), len(owners)
        mine = owners >= 0
        shares = weights.new_zeros(*weights.shape[:2], units)
        return shares.index_add_(2, owners[mine], weights[:, :, :past][:, :, mine])

    def _row(self, pieces: Sequence[Piece], seen: Sequence[Tensor]) -> "_Run":
        """Texts side by side in one row; each attends to what it sees of the past and to its own tokens before."""
        prefix, lengths = pieces[0].past, upload([len(piece) for piece in pieces], self._device)
        assert prefix is not None
        joined = Piece(
            np.concatenate([piece.ids for piece in pieces]),
            np.concatenate([piece.positions for piece in pieces], axis=1),
            np.concatenate([piece.visual for piece in pieces]),
            None,
        )
        h, positions, places, _ = self._gather([joined])
        cos, sin = self._language.rotary_emb(h, positions)
        owner = torch.arange(len(pieces), device=h.device).repeat_interleave(lengths)
        visible = _visible(torch.stack(list(seen))[None], owner, h.dtype)
        return _Run(h, cos, sin, places, None, prefix[:, :, None], visible=visible)

    def _too_wide(self, pieces: Sequence[Piece], *, rows: int, length: int) -> bool:
        """Whether several texts after a past need more scores than may be in memory: rows × length × keys."""
        past_length = max(0 if piece.past is None else piece.past.shape[3] for piece in pieces)
        return len(pieces) > 1 and past_length > 0 and rows * length * (past_length + length) > self._scores

    def _parts(self, run: "_Run", *, heads: int = 1) -> Iterator["_Run"]:
        """A run, or parts of it one after another if it needs more scores than may be in memory.

        All layers must have run on a part before the next one is taken, which finds its keys and values in its past.
        """
        if run.visible is None or run.past is None:
            yield run
            return
        length, past_length = run.h.shape[1], run.past.shape[-2]
        step = max(SHORTEST_PART, self._scores // (heads * len(run.h) * (past_length + length)))
        if step >= length:
            yield replace(run, mask=run.visible(0, length))
            return
        past = run.past.new_empty(*run.past.shape[:-2], past_length + length, run.past.shape[-1])
        past[..., :past_length, :] = run.past
        for start in range(0, length, step):
            yield _part(run, past, start, min(start + step, length))

    def _last_part(self, run: "_Run") -> "_Run":
        """The end of a run before the last layer."""
        for part in self._parts(run):
            for _ in self._layers(part, self._language.layers[:-1] if part.final else self._language.layers):
                pass
        return part

    def _finish_row(self, run: "_Run", pieces: Sequence[Piece]) -> Tensor:
        """The last layer and the logits after each text of a row."""
        assert run.past is not None and run.mask is not None
        language, eps = self._language, self._eps
        last = upload(np.cumsum([len(piece) for piece in pieces]) - 1 - run.start, run.h.device)
        before, weights = (run.past[-1, 0], run.past[-1, 1]), text_weights(language.layers[-1])
        with run.kernels:
            states = last_text_block_of_row(run.h, run.cos, run.sin, run.mask, before, eps, *weights, last=last)
        return self.vocabulary(rms(states, language.norm.weight, eps))

    def _finish(self, run: "_Run", pieces: Sequence[Piece]) -> Tensor:
        """The last layer and the logits."""
        language = self._language
        last = upload([len(piece) - 1 - run.start for piece in pieces], run.h.device)
        before = None if run.past is None else (run.past[-1, 0], run.past[-1, 1])
        eps, final = self._eps, language.layers[-1]
        with run.kernels:
            states = last_text_block(run.h, run.cos, run.sin, run.mask, before, eps, *text_weights(final), last=last)
        return self.vocabulary(rms(states, language.norm.weight, eps))

    def keys_and_values(self, pieces: Sequence[Piece]) -> list[Tensor]:
        """Keys and values of each piece for later tokens, in the form of `Piece.past`."""
        return _by_piece(list(self._layers(self._begin(pieces), self._language.layers)), pieces)

    def read(self, pieces: Sequence[Piece]) -> tuple[Tensor, list[Tensor]]:
        """Both of the above: logits after the last token of every piece, and the keys and values of its tokens."""
        if self._too_wide(pieces, rows=len(pieces), length=max(map(len, pieces))):
            (first, caches), (second, others) = (self.read(some) for some in _halves(pieces))
            return torch.cat([first, second]), [*caches, *others]
        run_caches: list[list[Tensor]] = []
        for run in self._parts(self._begin(pieces)):
            run_caches.append(_by_piece(list(self._layers(run, self._language.layers)), pieces))
        row, last = torch.arange(len(pieces), device=run.h.device), [len(piece) - 1 - run.start for piece in pieces]
        states = rms(run.h[row, upload(last, run.h.device)], self._language.norm.weight, self._eps)
        caches = [parts[0] if len(parts) == 1 else torch.cat(parts, dim=-2) for parts in zip(*run_caches, strict=True)]
        return self.vocabulary(states), caches

    def follow(self, ids: Tensor, positions: Tensor, past: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Last states of text that follows `past`, batch × length × width, and its keys and values.

        Args:
            ids: batch × length.
            positions: likewise; text has the same position on all axes.
            past: layers × 2 × batch × heads × keys × head size.
            seen: whether a token attends to a key, those of `past` and then those of the text: batch × length × keys.
        """
        h = self._language.embed_tokens(ids)
        cos, sin = self._language.rotary_emb(h, positions[None].expand(3, -1, -1))
        run = _Run(h, cos, sin, (ids[:0, 0], ids[:0, 0]), None, past, _added(seen, h.dtype))
        kept = list(self._layers(run, self._language.layers))
        return rms(run.h, self._language.norm.weight, self._eps), torch.stack([torch.stack(layer) for layer in kept])

    def vocabulary(self, states: Tensor) -> Tensor:
        """Logits of the tokens after these last states, in float32."""
        logits: Tensor = self._head(states)
        return logits.float()

    @property
    def _device(self) -> torch.device:
        device: torch.device = self._language.embed_tokens.weight.device
        return device

    @property
    def _eps(self) -> float:
        return float(self._language.config.rms_norm_eps)

    def _begin(self, pieces: Sequence[Piece]) -> "_Run":
        h, positions, places, features = self._gather(pieces)
        cos, sin = self._language.rotary_emb(h, positions)
        past, visible = self._before(pieces, h)
        return _Run(h, cos, sin, places, features, past, visible=visible)

    def _layers(self, run: "_Run", layers: Sequence[Any]) -> Iterator[tuple[Tensor, Tensor]]:
        """Run the layers one after another, moving the states of the run; yields their keys and values."""
        eps = self._eps
        for number, layer in enumerate(layers):
            if run.visible is not None or run.past is None:  # texts that grow report each token
                check_cancelled("model")
            before = None if run.past is None else (run.past[number, 0], run.past[number, 1])
            with run.kernels:
                run.h, k, v = self._block(run.h, run.cos, run.sin, run.mask, before, eps, *text_weights(layer))
            if run.features is not None and number + 1 < len(run.features):
                run.h[run.places] += run.features[number + 1]
            if run.kept is not None:
                run.kept[number, 0], run.kept[number, 1] = k, v
            yield k, v

    def _gather(self, pieces: Sequence[Piece]) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor], Tensor | None]:
        """First states, positions, and the places of visual features; one copy to the device for each."""
        device, length = self._device, max(map(len, pieces))
        ids = np.zeros((len(pieces), length), dtype=np.int64)
        positions = np.zeros((3, len(pieces), length), dtype=np.int64)
        visual = np.zeros((len(pieces), length), dtype=bool)
        for number, piece in enumerate(pieces):
            ids[number, : len(piece)] = piece.ids
            positions[:, number, : len(piece)] = piece.positions
            visual[number, : len(piece)] = piece.visual
        h = self._language.embed_tokens(upload(ids, device))
        row, column = (upload(part, device) for part in np.nonzero(visual))
        parts = [piece.features for piece in pieces if piece.features is not None]
        features = torch.cat(parts, dim=1).to(h.dtype) if parts else None
        if features is not None:
            h[row, column] = features[0]
        return h, upload(positions, device), (row, column), features

    def _before(self, pieces: Sequence[Piece], h: Tensor) -> tuple[Tensor | None, Callable[[int, int], Tensor] | None]:
        """Past keys and values in one batch, and what is no padding of them."""
        if pieces[0].past is None:
            return None, None
        prefixes = [piece.past for piece in pieces if piece.past is not None]
        lengths = upload([prefix.shape[3] for prefix in prefixes], h.device)
        width = int(max(prefix.shape[3] for prefix in prefixes))
        past = prefixes[0][:, :, None]
        if len(prefixes) > 1:
            past = h.new_zeros(*prefixes[0].shape[:2], len(prefixes), prefixes[0].shape[2], width, prefixes[0].shape[4])
            for row, prefix in enumerate(prefixes):
                past[:, :, row, :, : prefix.shape[3]] = prefix
        mask = torch.arange(width, device=h.device) < lengths[:, None]
        owner = torch.zeros(h.shape[1], dtype=torch.long, device=h.device)
        return past, _visible(mask[:, None], owner, h.dtype)


def _part(run: _Run, past: Tensor, start: int, end: int) -> _Run:
    """The tokens of a run of one row from start to end; `past` has room for the keys and values of all its tokens."""
    assert run.visible is not None
    past_length = past.shape[-2] - run.h.shape[1]
    row, column = run.places
    here = (column >= start) & (column < end)
    return replace(
        run,
        h=run.h[:, start:end],
        cos=run.cos[:, start:end],
        sin=run.sin[:, start:end],
        places=(row[here], column[here] - start),
        features=None if run.features is None else run.features[:, here],
        past=past[..., : past_length + start, :],
        mask=run.visible(start, end),
        kept=past[..., past_length + start : past_length + end, :],
        start=start,
        final=end == run.h.shape[1],
    )


def _halves(some: Sequence[T]) -> tuple[Sequence[T], Sequence[T]]:
    middle = len(some) // 2
    return some[:middle], some[middle:]


def _added(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """What is seen as what is added to the scores of attention: batch × 1 × tokens × keys."""
    return torch.zeros_like(seen, dtype=dtype).masked_fill(~seen, float("-inf"))[:, None]


def _by_piece(kept: Sequence[tuple[Tensor, Tensor]], pieces: Sequence[Piece]) -> list[Tensor]:
    """Keys and values of all layers, by piece and without padding."""
    return [
        torch.stack([torch.stack([part[row, :, : len(piece)] for part in layer]) for layer in kept])
        for row, piece in enumerate(pieces)
    ]


# Texts that follow prompts, many after each; the keys and values of a prompt are held once for all of them.


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
        """Make room for that many texts after each prompt and so many steps."""
        self._language = language
        self._texts = texts
        self._past, mask = _joined(prefixes, room=texts * steps)
        self._seen = mask[:, None].repeat(1, texts, 1)
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
