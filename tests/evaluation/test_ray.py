"""Real Ray on this machine: two actors, one of which is killed in the middle of the run."""

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gridprobe
import toy_runs
from gridprobe.evaluation import Evaluation, run, summary
from gridprobe.evaluation.status import status
from toy_runs import toy_benchmark

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    ray = pytest.importorskip("ray")
    folder = tmp_path_factory.mktemp("ray")
    places = (Path(toy_runs.__file__).parent, Path(gridprobe.__file__).parents[1])
    variables = {"PYTHONPATH": ":".join(map(str, places)), "GRIDPROBE_CACHE": "off"}
    variables |= {toy_runs.CALLS: str(folder / "calls"), toy_runs.SLOW: "0.3"}
    ray.init(
        num_cpus=2,
        num_gpus=0,
        include_dashboard=False,
        logging_level="ERROR",
        log_to_driver=False,
        runtime_env={"env_vars": variables},
    )
    os.environ[toy_runs.CALLS] = variables[toy_runs.CALLS]
    yield folder
    del os.environ[toy_runs.CALLS]
    ray.shutdown()


def kill_one(folder: Path, killed: list[str]) -> None:
    """Kill the process of the first worker that is seen to have finished something and to be at the next."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for file in folder.glob("heartbeat-*.json"):
            beat = json.loads(file.read_text())
            if beat["done"] >= 2 and beat["question"]:
                os.kill(beat["pid"], signal.SIGKILL)
                killed.append(beat["worker"])
                return
        time.sleep(0.02)


def test_an_actor_is_killed_and_its_questions_return_to_the_list(cluster: Path) -> None:
    toy = toy_benchmark(cluster / "data", videos=8)
    out, killed = cluster / "run", list[str]()
    options: dict[str, Any] = {
        "model": "scripted:toy",
        "k": 2,
        "load": toy_runs.load,
        "engine": "ray",
        "patience": 60.0,
    }
    with Evaluation(toy, out, **options) as evaluation:
        killer = threading.Thread(target=kill_one, args=(out, killed))
        killer.start()
        result = evaluation.run()
        killer.join()

    assert len(killed) == 1 and result["all"]["answered"] == 16 and result["errors"] == {}
    whole = run(toy, cluster / "here", model=toy_runs.model(), k=2)
    assert json.dumps(whole) == json.dumps(summary(out))
    found = Counter(json.loads(line)["id"] for file in out.glob("records-*") for line in file.open())
    assert found == Counter(item.id for item in toy.items)
    told = status(out)
    assert [(each["worker"], each["state"]) for each in told["workers"]] == [(killed[0], "dead")]
    writers = {file.name.split("-")[1] for file in out.glob("records-*")}
    assert len(writers) == 3, "two workers and the one that took the dead one's place"


def test_an_actor_that_hangs_is_replaced_and_its_question_given_up(cluster: Path) -> None:
    toy = toy_benchmark(cluster / "data2", videos=2, words={"v0-q0": "hangs", "v1-q1": "dies"})
    options: dict[str, Any] = {"model": "scripted:toy", "k": 2, "load": toy_runs.load, "engine": "ray", "patience": 6.0}

    result = run(toy, cluster / "run2", workers=2, max_failures=2, **options)

    assert result["errors"] == {"WorkerDied": 2} and result["all"]["answered"] == 2
