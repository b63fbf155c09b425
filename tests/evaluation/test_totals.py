"""Totals of a run hold, however many workers there are; what was not asked is stated, and a larger total goes on."""

import json
import random
from pathlib import Path

import pytest

from gridprobe.errors import UsageError
from gridprobe.limits import UsageLimits
from gridprobe.question import Question
from gridprobe_eval import read_records
from gridprobe_eval.benchmarks import Item
from gridprobe_eval.folder import status
from gridprobe_eval.reader import read_run
from gridprobe_eval.supervisor import TaskQueue
from gridprobe_eval.tasks import Account, Task, Totals
from toy_runs import evaluation, model, toy_benchmark

pytestmark = pytest.mark.usefixtures("decode_here")


def tokens(folder: Path) -> int:
    return sum(record["cost"]["tokens"] for record in read_records(folder).best.values())


@pytest.fixture
def needed(tmp_path: Path) -> int:
    """Tokens that six questions take without a total."""
    with evaluation(toy_benchmark(tmp_path / "data"), tmp_path / "free", model=model()) as running:
        running.run()
    return tokens(tmp_path / "free")


@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_stops_before_its_total_says_so_and_goes_on_with_a_larger_one(
    tmp_path: Path, needed: int, workers: int
) -> None:
    benchmark, out = toy_benchmark(tmp_path / "data"), tmp_path / "run"
    own = {"model": model()} if workers == 0 else {"workers": workers}
    most = round(0.7 * needed)

    with evaluation(benchmark, out, totals=Totals(tokens=most), **own) as running:
        result = running.run()
    done = result["all"]["answered"]
    sentence = f"{6 - done} questions were not asked: --total-tokens {most} ({tokens(out)} spent)"
    assert 1 <= done < 6 and tokens(out) <= most
    assert result["all"]["missing"] == 6 - done and result["all"]["failed"] == 0
    assert result["stopped"] == status(out)["stopped"] == [sentence]
    assert sentence in read_run(out).notes

    with evaluation(benchmark, out, totals=Totals(tokens=2 * needed), **own) as running:
        result = running.run()
    assert result["all"]["answered"] == 6 and "stopped" not in result
    assert status(out)["stopped"] == [] and not list(out.glob("stopped-*"))
    warnings = [text for record in read_records(out).best.values() for text in record["warnings"]]
    limited = [text for text in warnings if not text.startswith("this took ")]  # more than one pass over all frames
    assert tokens(out) == needed and not limited, "no question was asked with less than it needs"


def test_a_total_that_is_too_small_for_one_question_fails_none(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with evaluation(toy_benchmark(tmp_path / "data"), out, totals=Totals(tokens=3), model=model()) as running:
        result = running.run()
    assert (result["all"]["answered"], result["all"]["failed"], result["all"]["missing"]) == (0, 0, 6)
    assert result["stopped"] == ["6 questions were not asked: --total-tokens 3 (0 spent)"]


def test_a_question_that_fails_takes_nothing_of_the_total(tmp_path: Path, needed: int) -> None:
    benchmark = toy_benchmark(tmp_path / "data", words={"v0-q0": "fails"})
    out = tmp_path / "run"
    with evaluation(benchmark, out, totals=Totals(tokens=2 * needed), model=model(), max_failures=5) as running:
        result = running.run()
    assert (result["all"]["answered"], result["all"]["failed"], result["all"]["missing"]) == (5, 1, 0)


@pytest.mark.parametrize("seed", range(200))
def test_grants_never_exceed_a_total_whatever_workers_do(seed: int) -> None:
    draw = random.Random(seed)
    total = draw.randint(1, 20_000)
    own = draw.choice([None, draw.randint(1, 2000)])
    account = Account(Totals(tokens=total), UsageLimits(max_tokens=own))
    question = Question("?", ("a", "b"))
    tasks = [
        Task(tuple(Item(f"{video}-{n}", question, Path("v"), str(video)) for n in range(draw.randint(1, 5))))
        for video in range(draw.randint(1, 12))
    ]
    queue = TaskQueue(tasks, workers=3, account=account)
    wanted = {item.id: draw.randint(1, 1500) for task in tasks for item in task.items}
    spent = 0
    for _ in range(400):
        worker = f"w{draw.randrange(3)}"
        held = queue.assigned.get(worker)
        if not held:
            queue.take(worker)
            continue
        item = held[0].items[0]
        queue.begin(worker, item.id)
        cost = min(wanted[item.id], int(held[0].grants[item.id]["tokens"]))
        spent += cost
        if draw.random() < 0.1:
            queue.lost(worker)
        else:
            queue.finish(worker, item.id, {"tokens": cost, "tflops": 0.0, "seconds": 0.0})
    assert spent <= total and account.spent["tokens"] <= total
    if not queue.left and queue.unasked:
        assert account.lacking == "tokens"


@pytest.mark.parametrize("value", [0, -1, 1.5, float("nan"), True])
def test_what_is_no_total_is_refused(value: float) -> None:
    with pytest.raises(UsageError, match="total_tokens must be a whole number"):
        Totals(tokens=value)  # type: ignore[arg-type]


def test_the_file_of_a_stop_that_is_damaged_is_still_a_stop(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with evaluation(toy_benchmark(tmp_path / "data"), out, totals=Totals(tokens=3), model=model()) as running:
        running.run()
    (file,) = out.glob("stopped-*.json")
    file.write_text(json.dumps([1]))
    assert status(out)["stopped"] == [f"the run stopped at a total; {file.name} does not say at which"]
