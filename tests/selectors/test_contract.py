"""One contract for every selector of the registry; `small_selectors.py` says how each is built."""

import json
import pickle
from pathlib import Path

import pytest

from encoder_checkpoints import ScriptedEncoder
from gridprobe import MockModel
from gridprobe.errors import ModelError, UsageError
from gridprobe.importance import Budget, Fixed, NoiseAware, ShapeRule
from gridprobe.models import LazyModel
from gridprobe.options import Options
from gridprobe.question import Question
from gridprobe.registry import SELECTORS
from gridprobe.selectors import Selector
from gridprobe.selectors.base import LazyEncoder
from small_selectors import DECLARED, Small, constant_encoder, constant_model, encoder, model, small
from videos_of_arrays import gray_pool

QUESTION = Question("Where is the needle?", ["here", "there", "nowhere"], id="q")
EIGHT = Fixed(8)

every_selector = pytest.mark.parametrize("name", SELECTORS)


def declared(name: str) -> Small:
    return DECLARED.get(name, Small())


def takes_number(name: str) -> bool:
    return SELECTORS[name].frames != "none"


def takes_rule(name: str) -> bool:
    return SELECTORS[name].frames != "needed"


def is_kept_to(name: str, found: int, wanted: int) -> bool:
    return 1 <= found <= wanted if declared(name).stops_early else found == wanted


def budget_for(name: str, budget: Budget = EIGHT) -> Budget:
    """A fixed number where one fits, else a rule."""
    return budget if takes_number(name) else ShapeRule()


@pytest.mark.parametrize("size", [1, 2, 3, 14, 16, 64, 143, 144])
@every_selector
def test_it_keeps_ascending_distinct_frames_with_their_times(name: str, size: int, tmp_path: Path) -> None:
    pool = gray_pool(size)
    selector, again = (small(name, tmp_path, budget_for(name), pool=size) for _ in range(2))

    first, second = selector.select(pool, QUESTION), again.select(pool, QUESTION)

    least, most = selector.bounds(size)
    assert 1 <= least <= first.kept <= most <= size == first.pool
    assert list(first.indices) == sorted(set(first.indices))
    assert first.timestamps == tuple(pool.times[i] for i in first.indices)
    assert first.indices == second.indices and first.scores == second.scores
    assert first.scores is None or len(first.scores) == size
    assert first.evidence is None or first.evidence.grid.cells == size
    assert first.selector == name


@every_selector
def test_a_number_of_frames_is_kept_to_or_refused(name: str, tmp_path: Path) -> None:
    if not takes_number(name):
        with pytest.raises(UsageError, match="does not fit it"):
            small(name, tmp_path, Fixed(3))
        return
    for number in (1, 2, 3, 5, 15, 16, 99):
        found = small(name, tmp_path, Fixed(number), pool=16).select(gray_pool(16), QUESTION)
        assert is_kept_to(name, found.kept, min(number, 16))


@pytest.mark.parametrize("rule", [ShapeRule(), NoiseAware()], ids=["shape", "noise"])
@every_selector
def test_a_rule_decides_the_number_or_is_refused(name: str, rule: Budget, tmp_path: Path) -> None:
    if not takes_rule(name):
        with pytest.raises(UsageError, match="needs a number of frames"):
            small(name, tmp_path, rule)
        return
    selector = small(name, tmp_path, rule)
    found = selector.select(gray_pool(144), QUESTION)

    least, most = selector.bounds(144)
    assert least <= found.kept <= most
    if found.evidence is not None and name != "uniform-like":
        assert found.kept == rule.kept(found.evidence)


@pytest.mark.parametrize("size", [1, 9, 16, 144])
@every_selector
def test_frames_that_are_all_alike_are_no_obstacle(name: str, size: int, tmp_path: Path) -> None:
    asks, compares = constant_model(), constant_encoder()
    selector = small(name, tmp_path, budget_for(name), pool=size, asks=asks, compares=compares)
    found = selector.select(gray_pool(size), QUESTION)

    if takes_number(name):
        assert is_kept_to(name, found.kept, min(8, size))
    assert found.shape is None or declared(name).own_map or found.shape.sigma == 0.0


@every_selector
def test_what_is_asked_is_on_the_bill(name: str, tmp_path: Path) -> None:
    asks, compares = model(), encoder()
    selector = small(name, tmp_path, budget_for(name), asks=asks, compares=compares)

    cost = selector.select(gray_pool(144), QUESTION).cost

    texts = 1 if compares.seen else 0
    assert cost.calls == len(asks.requests) + len(compares.seen) + texts
    assert bool(cost.calls) == bool(selector.models)
    assert (compares.identity in selector.models) == bool(compares.seen)
    assert (asks.identity in selector.models) == bool(asks.requests)
    assert cost.flops >= 1e6 * len(compares.seen)
    assert len(compares.seen) == len(set(compares.seen)), "a frame is encoded once"


@every_selector
def test_what_is_not_a_number_is_refused(name: str, tmp_path: Path) -> None:
    broken = MockModel(lambda request: dict.fromkeys(request.labels, float("nan")))
    blind = ScriptedEncoder(lambda level: [float("nan"), 1.0])
    for parts in ({"asks": broken}, {"compares": blind}):
        selector = small(name, tmp_path, budget_for(name), **parts)
        used = {each.identity for each in parts.values()} & set(selector.models)
        if used:
            with pytest.raises(ModelError):
                selector.select(gray_pool(144), QUESTION)


@every_selector
def test_it_says_what_it_needs(name: str, tmp_path: Path) -> None:
    selector = small(name, tmp_path, budget_for(name))

    assert selector.name == name == selector.describe()["name"]
    assert json.loads(json.dumps(selector.describe(), allow_nan=False)) == selector.describe()
    assert selector.input_size is None or selector.models, "one that looks at frames asks a model or an encoder"
    assert selector.keeping_kv().describe() == selector.describe()
    assert selector.loaded(device="cpu").describe() == selector.describe(), "what is loaded stays"


@every_selector
def test_the_model_is_exchangeable(name: str, tmp_path: Path) -> None:
    selector = small(name, tmp_path, budget_for(name))

    swapped = selector.with_model(model("other"))

    assert swapped.models == tuple(each.replace("scripted:model", "scripted:other") for each in selector.models)


@every_selector
def test_it_travels_before_anything_is_loaded(name: str, tmp_path: Path) -> None:
    selector = small(name, tmp_path, budget_for(name), asks=LazyModel("embedded"), compares=LazyEncoder("embedded"))

    arrived: Selector = pickle.loads(pickle.dumps(selector))

    assert arrived.describe() == selector.describe() and arrived.models == selector.models
    assert json.loads(json.dumps(arrived.describe())) == arrived.describe()


@every_selector
def test_a_setup_takes_it_by_name(name: str, tmp_path: Path) -> None:
    argument = declared(name).argument(tmp_path, 144)
    changes = {"frames": 8} if takes_number(name) else {"frames": "auto"}
    setup = Options.from_preset("gridworld", **changes).resolve(
        model="embedded", selector=f"{name}:{argument}" if argument else name
    )

    assert setup.selector.describe()["name"] == name and setup.travels


def test_every_declaration_is_of_a_selector() -> None:
    assert set(DECLARED) <= set(SELECTORS)
