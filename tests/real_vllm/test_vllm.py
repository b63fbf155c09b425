"""vLLM with the embedded model, compared with our own engine, and killed in the middle of a run: `make test-vllm`."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gridprobe.answer import Answer
from gridprobe.ask import Session
from gridprobe.models import Model, load_model
from gridprobe.models.base import Cost
from gridprobe.models.openai import Server
from gridprobe.options import Options
from gridprobe_eval.benchmarks import Benchmark, load_benchmark
from gridprobe_eval.records import read_records
from gridprobe_world.embedded import WEIGHTS

COMMAND = os.environ.get("GRIDPROBE_VLLM", "")
pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(not COMMAND, reason="GRIDPROBE_VLLM does not name the vllm command; see make test-vllm"),
]
OPTIONS = (
    *("--served-model-name", "micro", "--enforce-eager", "--dtype", "float32", "--max-model-len", "16384"),
    *("--limit-mm-per-prompt", '{"image": 160}', "--enable-prompt-tokens-details"),
)
START_SECONDS = 900
QUESTIONS, RUN_QUESTIONS, KILLED_AFTER = 12, 40, 8
WITH_A_MAP = 500
"""The number of a question about a video of its own."""
SETTINGS = Options.from_preset("gridworld", probes="fresh", effort="full")


class Vllm:
    """A vLLM server in a process group of its own."""

    def __init__(self, log: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, without waiting until it replies."""
        hidden = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environment = hidden | {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
        command = [COMMAND, "serve", str(WEIGHTS / "micro"), "--port", str(self.port), *OPTIONS]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def wait(self) -> None:
        """Wait until it replies."""
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            assert self._process is not None and self._process.poll() is None, self._log.read_text()[-3000:]
            try:
                if httpx.get(f"http://127.0.0.1:{self.port}/health", trust_env=False).status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(1)
        raise AssertionError(f"vLLM did not start in {START_SECONDS} s: {self._log.read_text()[-3000:]}")

    def kill(self) -> None:
        """Kill it and its children, as a crash or a job manager would."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vllm]:
    server = Vllm(tmp_path_factory.mktemp("vllm") / "log.txt")
    server.start()
    try:
        server.wait()
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="module")
def served(vllm: Vllm) -> Iterator[Server]:
    server = load_model(vllm.url, priced_as="embedded:micro")
    assert isinstance(server, Server)
    yield server
    server.close()


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Benchmark:
    return load_benchmark("gridworld", tmp_path_factory.mktemp("videos"), count=QUESTIONS)


def test_the_self_test_finds_everything_that_vllm_can_do(served: Server) -> None:
    features = served.features

    assert (features.strategy.name, features.batches, features.uuids, features.images) == ("ids", True, True, 144)
    assert features.notes == () and "@vllm-" in served.identity


def test_the_same_probabilities_and_the_same_kept_frames_as_our_engine(served: Server, questions: Benchmark) -> None:
    here = load_model("embedded:micro", dtype="float32", device="cpu")
    far, cached = 0.0, 0
    for item in questions.items:
        there_, here_ = (_ask(model, questions, item) for model in (served, here))
        assert there_.selection.indices == here_.selection.indices, item.id
        assert there_.cost.total.tokens == here_.cost.total.tokens
        cached += there_.cost.total.cached_tokens
        for a, b in zip(_posteriors(there_), _posteriors(here_), strict=True):
            far = max(far, *(abs(a[label] - b[label]) for label in b))
    print(f"largest difference of a letter's probability: {far:.2g}; {cached} tokens from the cache")
    assert far < 1e-4 and cached > 0


def _ask(model: Model, benchmark: Benchmark, item: Any) -> Answer:
    setup = SETTINGS.resolve(model=model)
    assert setup.sampling is not None
    return Session(benchmark.open(item, setup.sampling), setup=setup, reuse=False).ask(item.question)


def _posteriors(answer: Answer) -> list[dict[str, float]]:
    assert answer.reached.overview is not None
    return [each.probabilities for each in (answer.reached.overview, *answer.selection.probes, answer.posterior)]


def test_a_map_of_when_computes_little_more_than_the_overview(served: Server, tmp_path: Path) -> None:
    """A video that nobody has asked about: vLLM's prefix cache holds nothing of it."""
    benchmark = load_benchmark("gridworld", tmp_path, count=1, first=WITH_A_MAP)
    (item,) = benchmark.items
    costs = []
    for probes in ("when", "fresh"):
        setup = Options.from_preset("default", probes=probes, effort="quick").resolve(model=served)
        assert setup.sampling is not None
        with Session(benchmark.open(item, setup.sampling), setup=setup) as session:
            answer = session.ask(item.question, show_map=True)
        assert answer.selection.evidence is not None
        assert answer.selection.evidence.kind == {"when": "when", "fresh": "probes"}[probes]
        costs.append(answer.cost)
    when, fresh = costs
    print(
        f"computed tokens: overview {_computed(when.overview)}, map {_computed(when.probe)}, {_computed(fresh.probe)}"
    )

    assert when.total.calls <= 3 and fresh.probe.calls == 24
    assert _computed(when.total) <= 1.15 * _computed(when.overview)
    assert _computed(when.probe) < _computed(fresh.probe) / 5


def _computed(cost: Cost) -> int:
    """Tokens that were not in the server's cache."""
    return cost.tokens - cost.cached_tokens


def test_a_run_survives_that_the_server_is_killed_and_restarted(vllm: Vllm, tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = [sys.executable, "-m", "gridprobe", "eval", "gridworld", "--data", str(tmp_path), "--out", str(out)]
    command += ["--preset", "gridworld", "--with", f"count={RUN_QUESTIONS}", "--model", vllm.url, "--json"]
    command += ["--effort", "full"]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        _wait_for_records(out, KILLED_AFTER, run)
        vllm.kill()
        before = len(read_records(out).best) if out.is_dir() else 0
        vllm.start()
        stdout, stderr = run.communicate(timeout=3000)
    finally:
        run.kill()
        run.wait()

    assert run.returncode == 0, stderr
    result = json.loads(stdout)["all"]
    print(f"killed after {before} questions; accuracy {result['accuracy']:.1%}")
    assert KILLED_AFTER <= before < RUN_QUESTIONS
    assert (result["answered"], result["failed"], result["missing"]) == (RUN_QUESTIONS, 0, 0)
    assert result["accuracy"] > 0.8


def _wait_for_records(out: Path, count: int, run: "subprocess.Popen[str]") -> None:
    while run.poll() is None:
        if out.is_dir() and len(read_records(out).best) >= count:
            return
        time.sleep(0.2)
    raise AssertionError(f"the run ended early: {run.communicate()}")
