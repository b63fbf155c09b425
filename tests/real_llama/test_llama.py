"""llama.cpp's server with the embedded model as GGUF, compared with our own engine: `make test-llama`."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from gridprobe.answer import Answer
from gridprobe.ask import Session
from gridprobe.models import Model, load_model
from gridprobe.models.openai import Server
from gridprobe.options import Options
from gridprobe_eval.benchmarks import Benchmark, Item, load_benchmark
from gridprobe_world.demo import FINE_K, FINE_VIDEO, fine_question, write_both
from gridprobe_world.embedded import WEIGHTS

PYTHON = os.environ.get("GRIDPROBE_LLAMA", "")
pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(not PYTHON, reason="GRIDPROBE_LLAMA names no Python with xllamacpp; see make test-llama"),
]
START_SECONDS = 300
QUESTIONS = 6
OVERVIEW = Options.from_preset("gridworld", effort="quick")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("llama")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    hidden = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [PYTHON, str(Path(__file__).with_name("server.py")), str(WEIGHTS / "micro"), str(folder), str(port)]
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(command, env=hidden, stdout=log, stderr=subprocess.STDOUT)
    try:
        _wait(f"http://127.0.0.1:{port}/health", process, folder / "log.txt")
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.kill()
        process.wait()


def _wait(address: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        assert process.poll() is None, log.read_text()[-3000:]
        try:
            if httpx.get(address, trust_env=False).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.5)
    raise AssertionError(f"llama.cpp did not start in {START_SECONDS} s: {log.read_text()[-3000:]}")


@pytest.fixture(scope="module")
def served(url: str) -> Iterator[Server]:
    server = load_model(url, priced_as="embedded:micro")
    assert isinstance(server, Server)
    yield server
    server.close()


def test_the_self_test_finds_what_llama_server_can_do(served: Server) -> None:
    features = served.features

    assert (features.strategy.name, features.batches, features.uuids) == ("top20", False, False)
    assert features.images == 144 and not features.pictures_first, "it reads all pictures, in their order"
    assert features.notes == ()


def test_the_same_probabilities_as_our_engine_and_a_cache_of_pictures(served: Server, tmp_path: Path) -> None:
    benchmark = load_benchmark("gridworld", tmp_path, count=QUESTIONS)
    here = load_model("embedded:micro", dtype="float32", device="cpu")
    far, cached, right = 0.0, [], 0
    for item in benchmark.items:
        there, ours = (_ask(model, benchmark, item) for model in (served, here))
        far = max(
            far,
            *(
                abs(value - ours.posterior.probabilities[label])
                for label, value in there.posterior.probabilities.items()
            ),
        )
        right += there.choice == item.question.answer
        cached.append(there.cost.total.cached_tokens / there.cost.total.tokens)
    print(f"largest difference of a letter's probability: {far:.2g}; {right} of {QUESTIONS} right; cached {cached}")
    assert far < 0.05 and right >= QUESTIONS - 1
    assert max(cached) > 0.8, "the next question about the same video computes its text alone"


def _ask(model: Model, benchmark: Benchmark, item: Item) -> Answer:
    setup = OVERVIEW.resolve(model=model)
    assert setup.sampling is not None
    with Session(benchmark.open(item, setup.sampling), setup=setup) as session:
        return session.ask(item.question)


def test_gridprobe_ask_answers_a_question_that_needs_the_focused_pass(url: str, tmp_path: Path) -> None:
    write_both(tmp_path)
    question = fine_question()
    options = [word for option in question.options for word in ("-o", option)]
    command = [sys.executable, "-m", "gridprobe", "ask", str(tmp_path / FINE_VIDEO), question.text, *options]
    command += ["--preset", "gridworld", "--k", str(FINE_K), "--effort", "full", "--model", url, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["choice"], answer["reached"]["by"]) == (question.answer, "focus")
