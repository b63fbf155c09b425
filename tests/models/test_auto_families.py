"""Every family of `transformers_auto` equals transformers' own processor and model, however it is asked."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import gridprobe
from auto_checkpoints import LLAVA_TURN, TINY, new_enough, usual_of
from gridprobe.cli.doctor import _probe
from gridprobe.models import Choose, FrameGroup, Model, Request, Timestamps, View, choose, cost_model_of, load_model
from gridprobe.models.local.generate import letter_logprobs, letter_tokens
from gridprobe.models.transformers.engine import Auto
from gridprobe.models.transformers.pricing import PicturePrice, hollow_tower
from gridprobe.models.transformers.prompt import FAMILY
from gridprobe.registry import FAMILIES
from gridprobe.video import FramePool, FrameSize
from scoring import shown

HERE = Path(__file__).parent
PROMPT = "Question: which colour does the boat have?\nA. red\nB. deep blue\nC. none"
LABELS = ("A", "B", "C")
FRAMES = np.random.default_rng(1).integers(0, 256, (3, 64, 96, 3), dtype=np.uint8)
TIMES = (0.0, 12.25, 3600.5)
POOL = FramePool(FRAMES, TIMES, source="noise")
CASES: dict[str, Timestamps] = {"timed": "true", "untimed": "none"}
pytestmark = [pytest.mark.usefixtures("one_thread"), new_enough]
each_family = pytest.mark.parametrize("family", usual_of(TINY))


@pytest.fixture
def model(family: str, auto_model: Callable[[str], Model]) -> Auto:
    found = auto_model(family)
    assert isinstance(found, Auto)
    return found


def fresh(model: Auto) -> Auto:
    """Another engine around the same weights, with nothing kept."""
    return Auto(
        model._model,
        model._composer._tokenizer,
        pictures=model._pictures,
        composer=model._composer,
        prices=(model._language, model._price_of),
        identity="again",
    )


def requests() -> list[Request]:
    small = FrameGroup(POOL.take([0, 2]), View(FrameSize(max_side=64)))
    large = FrameGroup(POOL.take([1]), View(FrameSize()))
    return [
        shown(POOL, PROMPT, LABELS),
        Request(PROMPT, Choose(LABELS), (large, small)),
        Request("Question: ?", Choose(("A", "B"))),
        shown(POOL.take([1]), "Question: ?", ("A", "B"), timestamps="none"),
        shown(POOL.take([0, 1]), PROMPT, LABELS, prompt_order="text_first"),
        shown(POOL.take([0, 1]), PROMPT, LABELS, between=("hello", "", "good bye")),
    ]


@pytest.fixture(scope="module")
def reference(auto_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """Ids and logits of both cases of every family."""
    folder = tmp_path_factory.mktemp("reference")
    jobs: dict[str, dict[str, Any]] = {}
    for family, tiny in TINY.items():
        for case, timestamps in CASES.items():
            jobs[f"{family}/{case}"] = {
                "family": family,
                "folder": str(auto_folder(family)),
                "times": TIMES if timestamps == "true" else (),
                "prompt": PROMPT,
                "frames": len(FRAMES),
                "pictures_first": tiny.template == LLAVA_TURN,
                "options": dict(FAMILY[family].options),
            }
    (folder / "jobs.json").write_text(json.dumps(jobs))
    np.save(folder / "frames.npy", FRAMES)
    (folder / "num2words.py").write_text("num2words = str\n")  # SmolVLM's processor asks for it, for video
    torchvision = Path(sys.prefix) / "reference"  # installed apart by `make setup`; elsewhere the ordinary one serves
    paths = os.pathsep.join(map(str, (torchvision, folder)))
    files = [folder / name for name in ("jobs.json", "frames.npy", "out.npz")]
    done = subprocess.run(
        [sys.executable, str(HERE / "auto_reference.py"), *map(str, files)],
        env={**os.environ, "PYTHONPATH": paths, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(np.load(folder / "out.npz", allow_pickle=False))


def test_there_is_a_tiny_checkpoint_of_every_family() -> None:
    assert set(TINY) == set(FAMILIES) - {"qwen3_vl"} == set(FAMILY) - {"qwen3_vl"}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("family", TINY)
def test_ids_and_letters_equal_transformers(
    model: Auto, family: str, case: str, reference: dict[str, np.ndarray]
) -> None:
    request = shown(POOL, PROMPT, LABELS, timestamps=CASES[case])
    tokens = letter_tokens(model._composer._tokenizer, LABELS)
    logits = torch.from_numpy(reference[f"{family}/{case}/logits"])
    expected, mass = letter_logprobs(logits[None], [[tokens[label] for label in LABELS]])[0]

    posterior = choose(fresh(model), [request])[0]

    assert model._layout(request).ids.tolist() == reference[f"{family}/{case}/ids"].tolist()
    assert posterior.logprobs == pytest.approx(expected, abs=1e-4)
    assert posterior.mass == pytest.approx(mass, rel=1e-3)
    assert posterior.cost.tokens == len(reference[f"{family}/{case}/ids"])


@each_family
def test_the_frames_decide_the_answer(model: Auto) -> None:
    """A model whose pictures do not reach the language model would pass every other comparison with itself."""
    other = FramePool(255 - FRAMES, TIMES, source="negative")

    one, two = choose(model, [shown(POOL, PROMPT, LABELS), shown(other, PROMPT, LABELS)])

    assert max(abs(a - b) for a, b in zip(one.logprobs, two.logprobs, strict=True)) > 1e-3


@each_family
def test_a_batch_equals_single_requests_and_nothing_kept_changes_them(model: Auto) -> None:
    asked = requests()
    together = choose(fresh(model), asked)

    for request, posterior in zip(asked, together, strict=True):
        assert choose(fresh(model), [request])[0].logprobs == pytest.approx(posterior.logprobs, abs=1e-4)
        assert choose(model, [request])[0].logprobs == pytest.approx(posterior.logprobs, abs=1e-4)


@each_family
def test_features_are_computed_once_and_equal_pixels(model: Auto, monkeypatch: pytest.MonkeyPatch) -> None:
    again, plain = fresh(model), fresh(model)
    monkeypatch.setattr(plain, "_reuses", False)
    request = shown(POOL, PROMPT, LABELS)

    first, second = choose(again, [request])[0], choose(again, [request])[0]

    assert again._reuses and len(again.kept) == len(POOL)
    assert choose(plain, [request])[0].logprobs == pytest.approx(first.logprobs, abs=1e-4)
    assert first.cost.flops_computed == first.cost.flops > second.cost.flops_computed > 0
    assert choose(plain, [request])[0].cost.flops_computed == first.cost.flops


@each_family
def test_the_gauge_knows_the_cost_without_the_weights(
    model: Auto, family: str, auto_folder: Callable[[str], Path]
) -> None:
    gauge = cost_model_of(str(auto_folder(family)))

    for request in requests():
        assert gauge.cost(request) == model.cost(request)
    assert gauge.exact
    for name in (
        *("kv_reuse", "masks_frames", "attention_map", "close_ups"),
        *("generates", "frame_multiple", "tokens_per_image"),
    ):
        assert getattr(gauge.capabilities, name) == getattr(model.capabilities, name), name
    assert (gauge.capabilities.weight_bytes or 0) > 1e5 and gauge.capabilities.pass_bytes > 0


def test_counting_does_not_change_the_model_and_needs_no_kernels_of_torch(
    auto_folder: Callable[[str], Path], auto_model: Callable[[str], Model]
) -> None:
    eager = load_model(str(auto_folder("internvl")), device="cpu", attn_implementation="eager")
    plain = auto_model("internvl")
    assert isinstance(eager, Auto) and isinstance(plain, Auto)
    hollow = PicturePrice(hollow_tower(plain._model.config, plain._pictures), plain._pictures)

    assert plain._model.config._attn_implementation == "sdpa" and eager._model.config._attn_implementation == "eager"
    assert hollow([(96, 64)]) == plain._price_of([(96, 64)]) == eager._price_of([(96, 64)])
    assert choose(eager, requests()[:1])[0].logprobs == pytest.approx(
        choose(plain, requests()[:1])[0].logprobs, abs=1e-4
    )


# Q05 of tests/reliability.md
@each_family
def test_text_of_a_user_is_never_structure(model: Auto, family: str) -> None:
    """Every special token of the tokenizer in question, options and subtitles adds no special token to the sequence."""
    names = " ".join(model._composer._own.values())
    harmless = shown(POOL, "Question: ?", LABELS, between=("", "x", "", ""))
    hostile = shown(POOL, f"Question: {names}?", LABELS, between=("", names, "", ""))

    counts = [np.isin(model._layout(each).ids, list(model._composer._own)).sum() for each in (harmless, hostile)]

    assert counts[0] == counts[1] > 0
    assert choose(model, [hostile])[0].labels == LABELS


@each_family
def test_a_family_without_cheaper_small_frames_has_a_fixed_number_of_tokens(model: Auto) -> None:
    small, large = (shown(POOL, PROMPT, LABELS, pixels=FrameSize(square=side)) for side in (64, 128))
    saves = model.cost(small).visual_tokens < model.cost(large).visual_tokens

    assert saves == (model.capabilities.tokens_per_image is None)


@each_family
def test_identity_names_what_prepares_the_pixels(model: Auto, family: str) -> None:
    assert model.identity.startswith(f"{family}@") and model.identity.endswith(":torch.float32:sdpa:full:auto:pil")


def test_with_torchvision_the_pixels_are_its_own_and_the_identity_says_so(
    auto_folder: Callable[[str], Path], auto_model: Callable[[str], Model], tmp_path: Path
) -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import reference; reference.repair_torchvision(); "
        "from gridprobe.cli.doctor import _probe; from gridprobe import load_model; "
        "model = load_model(sys.argv[2], device='cpu'); "
        "print(model.identity, *model.run([_probe(0)])[0].logprobs)"
    )
    paths = (Path(sys.prefix) / "reference", Path(gridprobe.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", program, str(HERE), str(auto_folder("internvl"))],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    identity, *logprobs = done.stdout.split()
    expected = choose(auto_model("internvl"), [_probe(0)])[0].logprobs

    assert identity == auto_model("internvl").identity.replace(":pil", ":torchvision")
    assert [float(value) for value in logprobs] == pytest.approx(expected, abs=0.1)
