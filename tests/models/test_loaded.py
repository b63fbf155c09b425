"""A model of transformers that the caller has loaded, with its processor: the answers are those of its checkpoint."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import gridprobe as gp
from auto_checkpoints import new_enough
from gridprobe.errors import UsageError
from gridprobe.models import Model
from gridprobe_world.dataset import items, pool_of

pytestmark = pytest.mark.usefixtures("one_thread")
ITEM = items(1)[0]
POOL = pool_of(ITEM, cells=9, size=64)
HERE = Path(__file__).parent

PROGRAM = """
import sys
import gridprobe as gp, numpy as np, transformers
from models.reference import repair_torchvision
repair_torchvision()
model = transformers.AutoModelForImageTextToText.from_pretrained(sys.argv[1], dtype="float32")
processor = transformers.AutoProcessor.from_pretrained(sys.argv[1])
frames = np.random.default_rng(0).integers(0, 256, (9, 64, 64, 3), dtype=np.uint8)
for each in (gp.load_model(model, processor=processor), (model, processor), gp.load_model(sys.argv[1], device="cpu")):
    answer = gp.ask(frames, "Which?", options=["a", "b", "c"], model=each, k=3, effort="full")
    print(answer.selection.indices, answer.posterior.logprobs, answer.cost.tflops)
"""


class Processor:
    """A processor without its part for video, which needs torchvision."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=False)

    def save_pretrained(self, folder: str) -> None:
        self.tokenizer.save_pretrained(folder)


def load(folder: Path) -> Any:
    kind = transformers.AutoModelForImageTextToText
    return kind.from_pretrained(folder, dtype="float32", trust_remote_code=False)


def test_qwen3_vl_with_its_own_processor(tiny_checkpoint: Path) -> None:
    """In a process of its own, where a torchvision stands in; see reference.py."""
    paths = [str(Path(gp.__file__).parents[1]), str(HERE.parent), str(Path(sys.prefix) / "reference")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    program = [sys.executable, "-c", PROGRAM, str(tiny_checkpoint)]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    loaded, together, folder = done.stdout.splitlines()
    assert loaded == together == folder


@new_enough
@pytest.mark.parametrize("family", ["idefics3", "gemma3"])
def test_other_families(family: str, auto_folder: Callable[[str], Path]) -> None:
    folder = auto_folder(family)
    processor = transformers.AutoProcessor.from_pretrained(folder, trust_remote_code=False)

    loaded, own = gp.load_model(load(folder), processor=processor), gp.load_model(str(folder), device="cpu")

    one, other = (gp.ask(POOL, ITEM.asked.question, model=model, k=3) for model in (loaded, own))
    assert one.posterior.logprobs == pytest.approx(other.posterior.logprobs, abs=1e-5)
    assert one.cost.tflops == other.cost.tflops


def test_its_identity_is_that_of_its_weights(tiny_checkpoint: Path) -> None:
    processor = Processor(tiny_checkpoint)
    one, other = load(tiny_checkpoint), load(tiny_checkpoint)
    same = {gp.load_model(model, processor=processor).identity for model in (one, other)}
    with torch.no_grad():
        other.lm_head.weight += 0.01

    assert len(same) == 1
    assert gp.load_model(other, processor=processor).identity not in same


@pytest.mark.parametrize(
    ("arguments", "way"),
    [
        (lambda model, processor: {"name": model}, "needs its processor, got NoneType: load_model(model, processor="),
        (lambda model, processor: {"name": (model, processor.tokenizer)}, "needs its processor, got "),
        (lambda model, processor: {"name": processor, "processor": processor}, "a model is a name, a loaded model of"),
        (lambda model, processor: {"name": "embedded", "processor": processor}, "leave out processor="),
        (lambda model, processor: {"name": (model, processor), "device": "cpu"}, "leave out device="),
        (lambda model, processor: {"name": "embedded", "devise": "cpu"}, "did you mean 'device'?"),
    ],
)
def test_what_cannot_be_taken_names_the_way(
    arguments: Callable[[Any, Any], dict[str, Any]], way: str, tiny_checkpoint: Path
) -> None:
    with pytest.raises(UsageError) as raised:
        gp.load_model(**arguments(load(tiny_checkpoint), Processor(tiny_checkpoint)))

    assert way in str(raised.value)


def test_a_question_names_what_a_model_may_be() -> None:
    with pytest.raises(UsageError, match="a model is a name, a loaded model of transformers with its processor, or"):
        gp.ask(np.zeros((1, 8, 8, 3), np.uint8), "Which?", model=object())


@pytest.mark.parametrize(
    "options", [{"dtype": torch.bfloat16}, {"torch_dtype": "bfloat16"}, {"torch_dtype": torch.bfloat16}]
)
def test_types_as_transformers_names_them(options: dict[str, Any], tiny_checkpoint: Path) -> None:
    model: Model = gp.load_model(tiny_checkpoint, device="cpu", **options)

    assert ":torch.bfloat16:" in model.identity
