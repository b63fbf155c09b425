"""The embedded encoder in a session: it finds evidence, is on the bill and in the records, and can be planned for."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import gridprobe as gp
from gridprobe.errors import ModelError, UsageError
from gridprobe.models import LazyModel, cost_model_of
from gridprobe.options import Options
from gridprobe.plan import Plan
from gridprobe.selectors.base import LazyEncoder, load_encoder
from gridprobe_eval.benchmarks import Benchmark, Item, load_benchmark
from gridprobe_eval.estimate import estimate_run
from gridprobe_eval.tasks import Choice
from videos_of_arrays import gray_pool

QUESTION = gp.Question("Which shape is red?", ["circle", "square"])


def setup_for(selector: str, **changes: object) -> Plan:
    settings = Options.from_preset("gridworld", k=4, frames=4, limits={"cache": 0}, **changes)
    return settings.resolve(model="embedded:nano", selector=selector)


@pytest.mark.parametrize("selector", ["clip", "mdp3", "focus", "hybrid"])
def test_a_session_loads_the_encoder_and_the_answer_names_it(selector: str) -> None:
    with gp.Session(gray_pool(16), setup=setup_for(selector)) as session:
        answer = session.ask(QUESTION)

    assert any(each.startswith("encoder:embedded@") for each in answer.models[0])
    described = answer.to_dict()
    assert described["settings"]["selector"]["encoder"] in answer.models[0]
    assert described["selection"]["map"] == ("probes" if selector == "hybrid" else "encoder")
    assert answer.cost.probe.calls > 4 and answer.cost.probe.flops > 0
    assert not any("not one of" in warning for warning in answer.warnings)


def test_a_second_question_about_the_same_frames_encodes_only_its_text() -> None:
    with gp.Session(gray_pool(16), setup=setup_for("clip")) as session:
        first, second = session.ask(QUESTION), session.ask(gp.Question("Is there a circle?", ["yes", "no"]))

    assert first.cost.probe.flops_computed == first.cost.probe.flops
    assert second.cost.probe.flops_computed < second.cost.probe.flops / 10


def test_words_it_does_not_know_are_a_warning() -> None:
    with gp.Session(gray_pool(16), setup=setup_for("clip")) as session:
        answer = session.ask(gp.Question("Which dog is red?", ["circle", "square"]))

    assert any('the embedded encoder met "dog"' in warning for warning in answer.warnings)


def test_without_a_name_a_real_encoder_is_meant_and_its_absence_an_error() -> None:
    settings = Options(k=4, frames=4)
    setup = settings.resolve(model="embedded:nano", selector="clip")

    with pytest.raises(ModelError, match=r"cannot find the model openai/clip-vit-large.*takes another encoder"):
        setup.loaded()


def test_it_finds_the_needle_where_even_spacing_does_not(tmp_path: Path) -> None:
    benchmark = load_benchmark("gridworld", data=tmp_path, source="rendered")
    items = [item for item in benchmark.items if item.bins["family"] == "needle"][:6]
    settings = Options.from_preset("gridworld", frames=8, limits={"cache": 0})

    def found(selector: str) -> int:
        setup = settings.resolve(model="embedded:nano", selector=selector).loaded()
        return sum(_hit(benchmark, item, setup) for item in items)

    assert found("clip") >= 5 and found("uniform") <= 3


def _hit(benchmark: Benchmark, item: Item, setup: Plan) -> bool:
    """Whether a kept frame shows the evidence."""
    assert setup.sampling is not None
    with gp.Session(benchmark.open(item, setup.sampling), setup=setup) as session:
        kept = setup.selector.select(session.pool, item.question).timestamps
    return any(start <= time <= end for time in kept for start, end in item.extra["evidence"])


def test_a_run_can_be_planned_without_weights(tmp_path: Path) -> None:
    benchmark = load_benchmark("gridworld", data=tmp_path)
    gauge = cost_model_of("embedded:nano")
    found = {
        name: estimate_run(benchmark, setup_for(name), model=gauge, answerer=gauge, choice=Choice(limit=1))["probes"]
        for name in ("clip", "focus", "uniform")
    }

    assert found["uniform"]["calls"] == 0 < found["focus"]["calls"] <= found["clip"]["calls"] == 17
    assert found["clip"]["tflops"] == pytest.approx(16 * 266.5e6 / 1e12, rel=0.05)


def test_what_is_not_here_cannot_be_planned_for() -> None:
    assert load_encoder("siglip", weights=False).identity == LazyEncoder("siglip").identity
    with pytest.raises(UsageError, match="cannot plan for the encoder 'no/where'"):
        load_encoder("clip:no/where", weights=False)


def test_settings_are_recorded(tmp_path: Path) -> None:
    described = setup_for("bolt").describe()

    assert json.loads(json.dumps(described))["selector"]["encoder"] == "encoder:embedded"


def test_the_encoder_is_loaded_on_the_device_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def loaded(self: LazyEncoder, *, device: str) -> LazyEncoder:
        asked.append(device)
        return self

    monkeypatch.setattr(LazyEncoder, "loaded", loaded)
    setup = setup_for("clip")

    setup.loaded()
    setup.loaded(device="cpu")
    replace(setup, model=LazyModel("embedded:nano", (("device", "cpu"),))).loaded()
    replace(setup, model=gp.MockModel(lambda request: {"A": 1.0})).loaded()

    assert asked == ["auto", "cpu", "cpu", "auto"]
