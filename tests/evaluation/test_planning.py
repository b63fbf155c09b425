"""A estimate_run's numbers are those of the run it plans."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gridprobe.errors import DataError, UsageError
from gridprobe.models import CostModel, cost_model_of
from gridprobe.models.qwen3vl import BYTES, CAUTION
from gridprobe.models.qwen3vl.engine import Qwen3VL
from gridprobe.models.qwen3vl.pricing import QWEN3_VL, ModelDims, dims_of, parameters, token_bytes
from gridprobe.options import Options
from gridprobe.question import Question
from gridprobe_eval import read_records, run
from gridprobe_eval.benchmarks import Benchmark, Item, load_benchmark
from gridprobe_eval.estimate import estimate_run
from toy_runs import toy_benchmark
from videos import numbered_video
from ways import PUBLISHED

pytestmark = pytest.mark.usefixtures("decode_here")

SETTINGS = Options(k=3)


def planned_for(
    benchmark: Benchmark, model: str, *, selector: str = "gridprobe", settings: Options = SETTINGS
) -> dict[str, Any]:
    gauge = cost_model_of(model)
    setup = settings.resolve(model=model, selector=selector)
    return estimate_run(benchmark, setup, model=gauge, answerer=gauge)


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Benchmark:
    folder = tmp_path_factory.mktemp("clips")
    items = []
    for number, frames in enumerate((150, 5)):  # the second has fewer frames than the grid has cells
        path = numbered_video(folder / f"v{number}.mp4", frames, gop=1)
        for place in range(2):
            question = Question(f"What is shown, and is it {place}?", ("a", "b", "a third"))
            items.append(Item(f"v{number}q{place}", question, path, f"v{number}"))
    return Benchmark("clips", "clips-4", tuple(items))


def test_probe_tokens_are_exactly_those_of_the_run_and_focus_within_the_range(
    clips: Benchmark, tiny_checkpoint: Path, tiny_model: Qwen3VL, tmp_path: Path
) -> None:
    settings = Options(k=3, **PUBLISHED)
    planned = planned_for(clips, str(tiny_checkpoint), settings=settings)
    run(clips, tmp_path / "run", setup=settings.resolve(model=tiny_model))
    records = read_records(tmp_path / "run").best.values()

    probes = sum(record["cost"]["probe_tflops"] for record in records)
    focus = sum(record["cost"]["focus_tflops"] for record in records)
    assert planned["text_tokens"] == "counted by the tokenizer"
    assert planned["probes"]["tflops"] == pytest.approx(probes, rel=1e-9)
    assert planned["focus"]["least"]["tflops"] <= focus <= planned["focus"]["most"]["tflops"]
    baseline = sum(record["cost"]["baseline_tflops"] for record in records)
    assert planned["focus"]["most"]["tflops"] == pytest.approx(baseline, rel=1e-9)
    total = sum(record["cost"]["tokens"] for record in records)
    least, most = (planned["focus"][end]["tokens"] for end in ("least", "most"))
    assert planned["probes"]["tokens"] + least <= total <= planned["probes"]["tokens"] + most
    assert (planned["questions"], planned["videos"], planned["unreadable"]) == (4, 2, [])
    assert planned["hours"] == pytest.approx((150 + 5) / 25 / 3600, rel=0.05)


def test_the_overview_and_its_map_cost_what_they_do_in_the_run(
    clips: Benchmark, tiny_checkpoint: Path, tiny_model: Qwen3VL, tmp_path: Path
) -> None:
    planned = planned_for(clips, str(tiny_checkpoint), settings=replace(SETTINGS, effort="full"))
    run(clips, tmp_path / "run", setup=replace(SETTINGS, effort="full").resolve(model=tiny_model))
    records = read_records(tmp_path / "run").best.values()

    for stage, name in (("overview", "overview_tflops"), ("probes", "probe_tflops")):
        assert planned[stage]["tflops"] == pytest.approx(sum(each["cost"][name] for each in records), rel=1e-9)
    focus = sum(record["cost"]["focus_tflops"] for record in records)
    assert planned["focus"]["least"]["tflops"] * 0.999 <= focus <= planned["focus"]["most"]["tflops"] * 1.001
    quick = planned_for(clips, str(tiny_checkpoint), settings=replace(SETTINGS, effort="quick"))
    assert quick["overview"] == planned["overview"] and quick["probes"]["calls"] == quick["focus"]["most"]["calls"] == 0
    assert quick["settled_by_overview"] and not planned["settled_by_overview"]


def test_a_fixed_number_of_frames_is_no_range_and_a_blind_selector_has_no_probes(clips: Benchmark) -> None:
    model = "Qwen/Qwen3-VL-2B-Instruct"
    uniform = planned_for(clips, model, selector="uniform", settings=replace(SETTINGS, frames=4))
    everything = planned_for(clips, model, selector="all")

    assert uniform["probes"]["calls"] == 0 and uniform["focus"]["least"] == uniform["focus"]["most"]
    assert everything["focus"]["least"] == everything["focus"]["most"]
    assert uniform["text_tokens"].startswith("estimated")
    assert uniform["focus"]["most"]["tokens"] < everything["focus"]["most"]["tokens"]


def test_a_video_that_cannot_be_read_is_counted_as_the_others_and_told(clips: Benchmark, tmp_path: Path) -> None:
    missing = Item("gone", clips.items[0].question, tmp_path / "gone.mp4", "gone", duration=3600.0)

    planned = planned_for(replace(clips, items=(*clips.items, missing)), "embedded")

    assert len(planned["unreadable"]) == 1 and "gone.mp4" in planned["unreadable"][0]
    assert planned["hours"] > 1 and planned["questions"] == 5
    with pytest.raises(DataError, match="no video of the benchmark can be read"):
        planned_for(replace(clips, items=(missing,)), "embedded")


def test_videos_that_are_not_generated_yet_are_planned_as_they_will_be(tmp_path: Path) -> None:
    benchmark = load_benchmark("gridworld", tmp_path, count=6)

    planned = planned_for(benchmark, "embedded")

    assert planned["unreadable"] == [] and planned["frame_size"] == [224, 224]
    assert planned["hours"] == pytest.approx(sum({i.group: i.duration or 0 for i in benchmark.items}.values()) / 3600)
    assert list(tmp_path.iterdir()) == [], "nothing is generated"


@pytest.mark.parametrize("size", QWEN3_VL)
def test_weights_of_a_model_that_is_not_here_follow_from_its_widths(size: str) -> None:
    found = cost_model_of(f"Qwen/Qwen3-VL-{size}-Instruct")

    weights = _count(QWEN3_VL[size], tied=size != "8B")
    assert (found.capabilities.weight_bytes or 0) / BYTES == pytest.approx(weights, rel=0.01) and not found.exact


def _count(dims: ModelDims, *, tied: bool) -> int:
    """The weights of a model of these widths, counted by transformers on a device without memory."""
    import torch
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

    v = dims.vision
    text = {"hidden_size": dims.hidden, "num_hidden_layers": dims.layers, "num_attention_heads": dims.heads}
    text |= {"num_key_value_heads": dims.kv_heads, "head_dim": dims.head_dim, "intermediate_size": dims.ffn}
    text |= {"vocab_size": dims.vocab, "tie_word_embeddings": tied}
    vision: dict[str, Any] = {"depth": v.depth, "hidden_size": v.hidden, "intermediate_size": v.ffn}
    vision |= {"out_hidden_size": v.out, "num_heads": 16, "deepstack_visual_indexes": list(range(v.mergers - 1))}
    config = Qwen3VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=tied)
    with torch.device("meta"):
        model = Qwen3VLForConditionalGeneration(config)
    return sum(weight.numel() for weight in model.parameters())


def test_weights_and_activations_agree_with_a_real_model(tiny_checkpoint: Path, tiny_model: Qwen3VL) -> None:
    found = cost_model_of(str(tiny_checkpoint))
    model = tiny_model._model
    count = sum(weight.numel() for weight in model.parameters())

    d = dims_of(model.config)
    assert found.exact and parameters(d, tied=True) == pytest.approx(count, rel=0.1)
    per_token = tiny_model._memory.token_bytes * BYTES / model.dtype.itemsize
    assert per_token == token_bytes(d, BYTES)
    kept = 2 * d.kv_heads * d.head_dim * d.layers * BYTES
    assert found.capabilities.pass_bytes * 1000 == pytest.approx(1000 * (CAUTION * per_token + kept))


@pytest.mark.parametrize("name", ["Qwen/Qwen3-VL-72B-Instruct", "nobody/nothing", "/no/such/folder"])
def test_a_model_nobody_knows_is_one_sentence(name: str) -> None:
    with pytest.raises(UsageError, match="cannot plan for"):
        cost_model_of(name)


def test_a_plan_is_plain_json_and_no_model_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gridprobe.models.local.checkpoint.load", None)
    toy = toy_benchmark(tmp_path)

    planned = planned_for(toy, "embedded", settings=Options(k=2, show="collage"))

    assert json.loads(json.dumps(planned, allow_nan=False))["focus"]["most"]["calls"] == 6
    assert isinstance(cost_model_of("embedded:nano"), CostModel)
