"""The training pass equals the product's engine and transformers: layout, features, logits."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from plain_transformers import patches_of, plain_logits

from gridprobe.models import Packing, Request
from gridprobe.models.local.layout import PreparedRequest
from gridprobe.models.qwen3vl.engine import Qwen3VL
from gridprobe.question import Question
from gridprobe.video import FramePool
from gridprobe_world.questions import ask_about
from gridprobe_world.render import render_frames
from gridprobe_world.world import Worlds, generate
from scoring import shown
from training.batches import BatchMaker, pair_times
from training.checkpoint import Tokens, build_model, build_tokenizer, lay_out
from training.train import SPEC, FastModel, on_device

Parts = tuple[Any, Any]
"""A tokenizer and a model."""


@pytest.fixture(scope="module")
def parts() -> Parts:
    torch.manual_seed(0)
    tokenizer = build_tokenizer()
    model = build_model("nano", tokenizer).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.normal_(0.0, parameter.shape[-1] ** -0.5)
    return tokenizer, model


@pytest.mark.parametrize(("side", "packing"), [(96, "single"), (224, "single"), (64, "pairs")])
def test_training_and_serving_see_the_same_sequences_and_logits(parts: Parts, side: int, packing: Packing) -> None:
    tokenizer, model = parts
    engine = Qwen3VL(model, tokenizer, spec=SPEC, identity="nano", min_letter_mass=0.0)
    worlds = generate(np.random.default_rng(3), 3)
    time = np.sort(np.random.default_rng(4).random((3, 5), dtype=np.float32), axis=1)
    seconds = np.round(time * np.array([[30.0], [700.0], [7100.0]]), 3)
    pixels = (render_frames(worlds, time, side) * 255).round().to(torch.uint8)
    asked = [_count(worlds, row) for row in range(3)]
    requests = [
        shown(
            FramePool(pixels[row].permute(0, 2, 3, 1).numpy(), tuple(seconds[row]), f"w{row}"),
            question.prompt,
            question.labels,
            packing=packing,
        )
        for row, question in enumerate(asked)
    ]
    layouts = [engine._layout(request) for request in requests]

    # Every row asks two more things behind the same frames; neither may change what the question itself sees.
    maker, tokens = BatchMaker(tokenizer, seed=0, tokens=10_000), Tokens(tokenizer)
    asks = [maker._exchange(question.prompt, "A")[0][:-2] for question in asked]
    tails = [[maker._drill()[0], ask, maker._drill()[0]] for ask in asks]
    groups = pair_times(seconds) if packing == "pairs" else seconds
    sequences = lay_out(np.rint(groups * 10).astype(np.int64), tails, side // 32, tokens)
    width = sequences.ids.shape[1] - sequences.tail.shape[1]
    for row, layout in enumerate(layouts):
        own = np.r_[: sequences.length[row], width + np.flatnonzero(sequences.tail[row] == 1)]
        assert sequences.ids[row, own].tolist() == layout.ids.tolist()
        assert sequences.positions[:, row, own].tolist() == layout.positions.tolist()

    fast = FastModel(model)
    frames = pixels.float() / 255
    if packing == "pairs":
        frames = torch.cat([frames, frames[:, -1:]], dim=1).reshape(3 * 3, 2, 3, side, side)
    else:
        frames = frames.reshape(15, 1, 3, side, side).expand(-1, 2, -1, -1, -1)
    with torch.no_grad():
        hidden, states = fast.hidden(on_device(sequences, "cpu"), [fast.features(frames)], tap=2)
        last = [width + np.flatnonzero(sequences.tail[row] == 1)[-1] for row in range(3)]
        logits = model.lm_head(hidden[torch.arange(3), last])
        expected = torch.cat([_plain(engine, request) for request in requests])
    assert torch.allclose(logits, expected, atol=2e-4)
    assert states.shape == (3, sequences.visual.shape[1], 160)


def _count(worlds: Worlds, row: int) -> Question:
    asked = ask_about(worlds, row, "count", random.Random(row))
    assert asked is not None
    return asked.question


def _plain(engine: Qwen3VL, request: Request) -> torch.Tensor:
    layout = engine._layout(request)
    return plain_logits(engine._model, [layout], [patches_of(engine, PreparedRequest(0, request, layout))], filler=0)


def test_groups_of_different_sizes_are_placed_as_transformers_places_images(parts: Parts) -> None:
    tokenizer, model = parts
    tokens = Tokens(tokenizer)
    rows = np.array([[2, 7, 2, 3, 2], [2, 2, 3, 2, 7]])
    tenths = np.array([[3, 57, 999, 1234, 70000], [10, 20, 30, 40, 50]])
    tail = tokenizer.encode("What colour is the ring?", add_special_tokens=False)
    sequences = lay_out(tenths, [[tail], [tail]], rows, tokens)
    width = sequences.ids.shape[1] - sequences.tail.shape[1]

    for row in range(2):
        own = np.r_[: sequences.length[row], width + np.flatnonzero(sequences.tail[row] == 0)]
        ids = torch.from_numpy(sequences.ids[row, own]).long()
        image = ids == tokens.video
        ids[image] = model.config.image_token_id
        grid = torch.tensor([[1, 2 * side, 2 * side] for side in rows[row]])
        expected, _ = model.model.get_rope_index(
            input_ids=ids[None], mm_token_type_ids=image[None].int(), image_grid_thw=grid
        )
        assert sequences.positions[:, row, own].tolist() == expected[:, 0].tolist()
        # `visual` lists the tokens of smaller groups first, each group's in order.
        sides = np.repeat(rows[row], rows[row] ** 2)
        assert sequences.visual[row].tolist() == np.flatnonzero(image)[np.argsort(sides, kind="stable")].tolist()


def test_frames_of_two_sizes_get_the_logits_transformers_gives_them_as_images(parts: Parts) -> None:
    tokenizer, model = parts
    tokens, worlds = Tokens(tokenizer), generate(np.random.default_rng(3), 1)
    time = np.array([[0.1, 0.3, 0.5, 0.8]], dtype=np.float32)
    index = {64: [0, 2, 3], 96: [1]}
    frames = {side: render_frames(worlds, time[:, at], side)[0] for side, at in index.items()}
    tail = tokenizer.encode("What colour is the ring?", add_special_tokens=False)
    sequences = lay_out(np.rint(time * 600).astype(np.int64), [[tail]], np.array([[2, 3, 2, 2]]), tokens)
    fast = FastModel(model)
    with torch.no_grad():
        features = [fast.features(frames[side][:, None].expand(-1, 2, -1, -1, -1)) for side in (64, 96)]
        hidden, _ = fast.hidden(on_device(sequences, "cpu"), features)
        length, width = int(sequences.length[0]), sequences.ids.shape[1] - sequences.tail.shape[1]
        found = model.lm_head(hidden[0, width + len(tail) - 1])

        ids = torch.from_numpy(np.r_[sequences.ids[0, :length], sequences.ids[0, width : width + len(tail)]]).long()
        image = ids == tokens.video
        ids[image] = model.config.image_token_id
        order = [frames[64][0], frames[96][0], frames[64][1], frames[64][2]]
        pixels = torch.cat([_as_patches(frame) for frame in order])
        expected = model(
            input_ids=ids[None],
            mm_token_type_ids=image[None].int(),
            pixel_values=pixels,
            image_grid_thw=torch.tensor([[1, side // 16, side // 16] for side in (64, 96, 64, 64)]),
        ).logits[0, -1]
    assert torch.allclose(found, expected, atol=2e-4)


def _as_patches(frame: torch.Tensor) -> torch.Tensor:
    from gridprobe.models.qwen3vl.blocks import cut

    return cut(((frame - 0.5) / 0.5)[None].expand(2, -1, -1, -1), SPEC).flatten(0, -2)
