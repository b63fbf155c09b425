"""The training pass equals the product's engine and transformers: layout, features, logits."""

import random

import numpy as np
import pytest
import torch

from gridprobe.backends import ScoreRequest
from gridprobe.backends.base import group_times
from gridprobe.backends.qwen3vl.engine import Qwen3VL
from gridprobe.backends.qwen3vl.pixels import patches
from gridprobe.backends.qwen3vl.plain import plain_logits
from gridprobe.gridworld import ask_about, generate
from gridprobe.gridworld.render import render_frames
from gridprobe.gridworld.training.batches import BatchMaker
from gridprobe.gridworld.training.checkpoint import build_model, build_tokenizer
from gridprobe.gridworld.training.forward import SPEC, FastModel, on_device
from gridprobe.gridworld.training.layout import Tokens, lay_out
from gridprobe.video import FramePool, FrameSize


@pytest.fixture(scope="module")
def parts():
    torch.manual_seed(0)
    tokenizer = build_tokenizer()
    model = build_model("nano", tokenizer).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.normal_(0.0, parameter.shape[-1] ** -0.5)
    return tokenizer, model


@pytest.mark.parametrize(("side", "packing"), [(96, "single"), (224, "single"), (64, "pairs")])
def test_training_and_serving_see_the_same_sequences_and_logits(parts, side: int, packing: str) -> None:
    tokenizer, model = parts
    engine = Qwen3VL(model, tokenizer, spec=SPEC, identity="nano", min_letter_mass=0.0)
    worlds = generate(np.random.default_rng(3), 3)
    time = np.sort(np.random.default_rng(4).random((3, 5), dtype=np.float32), axis=1)
    seconds = np.round(time * np.array([[30.0], [700.0], [7100.0]]), 3)
    pixels = (render_frames(worlds, time, side) * 255).round().to(torch.uint8)
    asked = [ask_about(worlds, row, "count", random.Random(row)).question for row in range(3)]
    requests = [
        ScoreRequest(
            FramePool(pixels[row].permute(0, 2, 3, 1).numpy(), tuple(seconds[row]), f"w{row}"),
            question.prompt,
            question.labels,
            FrameSize(),
            packing=packing,
        )
        for row, question in enumerate(asked)
    ]
    layouts = [engine._layout(request) for request in requests]

    # Every row asks two more things behind the same frames; neither may change what the question itself sees.
    maker, tokens = BatchMaker(tokenizer, seed=0, tokens=10_000), Tokens(tokenizer)
    asks = [maker._exchange(question.prompt, "A")[0][:-2] for question in asked]
    tails = [[maker._drill()[0], ask, maker._drill()[0]] for ask in asks]
    groups = np.array([group_times(row, packing) for row in seconds])
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


def _plain(engine: Qwen3VL, request: ScoreRequest) -> torch.Tensor:
    layout = engine._layout(request)
    flat = patches(
        request.frames.pixels, size=layout.size, packing=request.packing, spec=SPEC, device=torch.device("cpu")
    )
    return plain_logits(engine._model, [layout], [flat], filler=0)
