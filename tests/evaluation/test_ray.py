"""Real Ray on this machine: two actors, one of which is killed in the middle of the run."""

import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import gridprobe
import toy_runs
from crews import Clock, WatchedPool
from gridprobe_eval import summary
from gridprobe_eval.folder import Timeouts, status
from gridprobe_eval.supervisor import RayPool, Supervisor, TaskQueue
from gridprobe_eval.tasks import Method, Shard, tasks_of
from gridprobe_eval.worker import WorkerJob
from toy_runs import toy_benchmark
from waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    ray = pytest.importorskip("ray")
    folder = tmp_path_factory.mktemp("ray")
    places = (Path(toy_runs.__file__).parent, Path(gridprobe.__file__).parents[1])
    variables = {"PYTHONPATH": ":".join(map(str, places)), "GRIDPROBE_CACHE": "off"}
    variables |= {toy_runs.CALLS: str(folder / "calls"), toy_runs.GATE: str(folder / "gate")}
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


@pytest.fixture(scope="module")
def gate(cluster: Path) -> Iterator[toy_runs.Gate]:
    with closing(toy_runs.Gate(cluster / "gate")) as opened:
        yield opened


def kill_one(folder: Path, killed: list[str], gate: toy_runs.Gate) -> None:
    """Of two workers with three answers, kill the one that gave two; when it is replaced, let all answers through."""

    def busy() -> list[dict[str, object]]:
        beats = [json.loads(file.read_text()) for file in folder.glob("heartbeat-*.json")]
        return [beat for beat in beats if beat["done"] >= 2 and beat["question"]]

    gate.let(3)
    wait_until(busy)
    (beat, *_) = busy()
    os.kill(int(str(beat["pid"])), signal.SIGKILL)
    killed.append(str(beat["worker"]))
    wait_until(lambda: len(list(folder.glob("heartbeat-*.json"))) == 3)
    gate.let(100)


def test_an_actor_is_killed_and_its_questions_return_to_the_list(cluster: Path, gate: toy_runs.Gate) -> None:
    toy = toy_benchmark(cluster / "data", videos=8)
    out, killed = cluster / "run", list[str]()
    with toy_runs.evaluation(toy, out, engine="ray") as evaluation:
        killer = threading.Thread(target=kill_one, args=(out, killed, gate), daemon=True)
        killer.start()
        result = evaluation.run()
        killer.join()

    assert len(killed) == 1 and result["all"]["answered"] == 16 and result["errors"] == {}
    with toy_runs.evaluation(toy, cluster / "here", model=toy_runs.model()) as here:
        whole = here.run()
    assert json.dumps(whole) == json.dumps(summary(out))
    found = Counter(json.loads(line)["id"] for file in out.glob("records-*") for line in file.open())
    assert found == Counter(item.id for item in toy.items)
    told = status(out)
    assert [(each["worker"], each["state"]) for each in told["workers"]] == [(killed[0], "dead")]
    writers = {file.name.split("-")[1] for file in out.glob("records-*")}
    assert len(writers) == 3, "two workers and the one that took the dead one's place"


def test_an_actor_that_hangs_is_replaced_and_its_question_given_up(cluster: Path, gate: toy_runs.Gate) -> None:
    toy = toy_benchmark(cluster / "data2", videos=2, words={"v0-q0": "hangs", "v1-q1": "dies"})
    job, clock = WorkerJob(cluster / "run2", Method(toy_runs.toy_setup())), Clock()
    queue = TaskQueue(tasks_of(toy.items, Shard()), workers=1)
    gate.let(100)
    with toy_runs.evaluation(toy, job.folder), closing(RayPool(job)) as actors:
        pool = WatchedPool(actors, clock, hangs="v0-q0")
        timeouts = Timeouts(60.0, 1000.0)
        Supervisor(job.folder, queue, pool, prefix="", timeouts=timeouts, note=lambda outcome: None, clock=clock).run()

    result = summary(job.folder)
    assert result["errors"] == {"WorkerDied": 2} and result["all"]["answered"] == 2
    assert pool.started == ["w0", "w1", "w2", "w3"] and toy_runs.hangs() == 2
