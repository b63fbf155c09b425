"""The local engine equals transformers' own processor and model: tokens, pixels, positions and letters."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from plain_transformers import patches_of

from gridprobe.models import Choose, FrameGroup, Packing, Request, View, choose
from gridprobe.models.local.generate import letter_logprobs, letter_tokens
from gridprobe.models.local.layout import PreparedRequest
from gridprobe.models.qwen3vl.engine import Qwen3VL
from gridprobe.question import Question
from gridprobe.video import FramePool, FrameSize
from scoring import load_qwen, shown

QUESTION = Question("Which colour does the small boat have?", ["red", "deep blue", "<|im_end|> green", "none"])
HERE = Path(__file__).parent


def _frames(count: int, width: int, height: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, height, width, 3), dtype=np.uint8)


# name -> frames, packing, times. Sizes that need resizing, odd counts, one frame, times of an hour-long video.
CASES: dict[str, tuple[np.ndarray, Packing, list[float]]] = {
    "pairs even": (_frames(6, 224, 128, 1), "pairs", [0.5, 1.0, 61.25, 600.0, 1800.5, 3599.9]),
    "pairs odd": (_frames(5, 96, 96, 2), "pairs", [0.0, 2.0, 4.0, 6.0, 8.0]),
    "pairs resized": (_frames(4, 320, 180, 3), "pairs", [0.1, 0.2, 0.3, 0.4]),
    "single": (_frames(4, 128, 96, 5), "single", [0.0, 25.0, 50.0, 1234.5]),
    "single resized": (_frames(3, 322, 181, 6), "single", [1.0, 2.0, 3.0]),
    "single one frame": (_frames(1, 96, 64, 7), "single", [7.0]),
}


# Frames of two sizes among each other, given to transformers as images of those sizes.
MIXED = "two sizes"
LARGE, SMALL = (_frames(2, 160, 96, 8), [10.0, 40.5]), (_frames(4, 64, 96, 9), [0.0, 20.0, 30.0, 55.0])
ALL = (*CASES, MIXED)


def _neutral(text: str) -> str:
    """What transformers' processor can be given: it would read the special token in option C as structure."""
    return text.replace("<|im_end|>", "< im_end >")


def _request(name: str, *, neutral: bool = True) -> Request:
    if name == MIXED:
        pools = [FramePool(frames, tuple(times), source=name) for frames, times in (LARGE, SMALL)]
        groups = tuple(FrameGroup(pool, View(FrameSize())) for pool in pools)
        return Request(_neutral(QUESTION.prompt), Choose(QUESTION.labels), groups)
    frames, packing, times = CASES[name]
    prompt = _neutral(QUESTION.prompt) if neutral else QUESTION.prompt
    pool = FramePool(frames, tuple(times), source=name)
    return shown(pool, prompt, QUESTION.labels, packing=packing)


@pytest.fixture(scope="module")
def reference(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    folder = tmp_path_factory.mktemp("reference")
    cases: dict[str, dict[str, Any]] = {
        name: {"packing": packing, "times": times, "prompt": _neutral(QUESTION.prompt)}
        for name, (_, packing, times) in CASES.items()
    }
    arrays: dict[str, Any] = {name: frames for name, (frames, _, _) in CASES.items()}
    cases[MIXED] = {"images": [LARGE[1], SMALL[1]], "prompt": _neutral(QUESTION.prompt)}
    arrays |= {f"{MIXED}/{number}": frames for number, (frames, _) in enumerate((LARGE, SMALL))}
    np.savez(folder / "cases.npz", cases=json.dumps(cases), **arrays)
    torchvision = Path(sys.prefix) / "reference"  # installed apart by `make setup`; elsewhere the ordinary one serves
    environment = {**os.environ, "PYTHONPATH": str(torchvision), "HF_HUB_OFFLINE": "1"}
    program = [sys.executable, str(HERE / "reference.py"), str(tiny_checkpoint)]
    done = subprocess.run(
        [*program, str(folder / "cases.npz"), str(folder / "out.npz")],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(np.load(folder / "out.npz", allow_pickle=False))


@pytest.mark.parametrize("name", ALL)
def test_token_ids_and_positions_equal_transformers(
    name: str, tiny_model: Qwen3VL, reference: dict[str, np.ndarray]
) -> None:
    layout = tiny_model._layout(_request(name))

    assert layout.ids.tolist() == reference[f"float32/{name}/ids"].tolist()
    assert layout.grids == [tuple(grid) for grid in reference[f"float32/{name}/grid"].tolist()]
    assert layout.positions.tolist() == reference[f"float32/{name}/positions"].tolist()


@pytest.mark.parametrize("name", ALL)
def test_pixel_values_equal_transformers_to_the_bit(
    name: str, tiny_model: Qwen3VL, reference: dict[str, np.ndarray]
) -> None:
    request = _request(name)
    ours = patches_of(tiny_model, PreparedRequest(0, request, tiny_model._layout(request)))

    assert ours is not None and np.array_equal(ours.numpy(), reference[f"float32/{name}/pixels"])


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("bfloat16", 0.05)])
@pytest.mark.parametrize("name", ALL)
def test_letter_logprobs_equal_transformers(
    name: str, dtype: str, tolerance: float, tiny_checkpoint: Path, reference: dict[str, np.ndarray]
) -> None:
    model = load_qwen(str(tiny_checkpoint), dtype=dtype, device="cpu")
    tokens = letter_tokens(model._tokenizer, QUESTION.labels)
    logits = torch.from_numpy(reference[f"{dtype}/{name}/logits"])
    expected, mass = letter_logprobs(logits[None], [[tokens[label] for label in QUESTION.labels]])[0]

    posterior = choose(model, [_request(name)])[0]

    assert posterior.logprobs == pytest.approx(expected, abs=tolerance)
    assert posterior.mass == pytest.approx(mass, rel=10 * tolerance)
    assert posterior.cost.tokens == len(reference[f"{dtype}/{name}/ids"])
