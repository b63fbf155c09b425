"""Fixtures every test may use."""

import os
import signal
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import hypothesis
import pytest

from gridprobe.models import Model
from skips import skipped_table

# The same examples every time, and none fails for being slow: a red run must mean a bug, also on a busy machine.
hypothesis.settings.register_profile(
    "gridprobe", deadline=None, derandomize=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("gridprobe")


def fsync(descriptor: int) -> None:
    """Fail as the real one does, but do not wait for the disk: no test cuts the power."""
    os.fstat(descriptor)


os.fsync = fsync  # type: ignore[assignment]
os.environ["GRIDPROBE_CACHE"] = "off"  # tests leave nothing in the user's cache, and no test finds another's frames
os.environ["GRIDPROBE_CALIBRATION"] = "off"  # a user's calibrations decide no test
if "PYTEST_XDIST_WORKER" in os.environ:  # several processes with a thread for each core slow each other down
    os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"  # before any import of huggingface_hub: no test asks the hub


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny, random, genuine Qwen3-VL."""
    from checkpoints import make_checkpoint

    return make_checkpoint(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def tiny_model(tiny_checkpoint: Path) -> Model:
    """The tiny checkpoint, loaded as a user would."""
    from gridprobe import load_model

    return load_model(str(tiny_checkpoint), device="cpu")


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """On a busy machine tiny models are three times as fast with one thread as with two."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def decode_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions decode in this process: a child for each video takes 0.1 CPU seconds to start, and has its own tests."""
    monkeypatch.setattr("gridprobe.options.DECODE_IN", "process")


@pytest.fixture(scope="session")
def auto_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Folders with tiny, random checkpoints of other model families; each is made once."""
    from auto_checkpoints import make_auto_checkpoint

    place = tmp_path_factory.mktemp("families")
    return cache(lambda family: make_auto_checkpoint(family, place / family))


@pytest.fixture(scope="session")
def auto_model(auto_folder: Callable[[str], Path]) -> Callable[[str], Model]:
    """These checkpoints, loaded as a user would."""
    from gridprobe import load_model

    return cache(lambda family: load_model(str(auto_folder(family)), device="cpu"))


def pytest_configure() -> None:
    """Undo what `nohup` and a shell's `&` do to the processes they start: tests send these signals."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without a GPU the GPU tests are skipped, unless the machine promised one: then they must run, and fail."""
    if os.environ.get("GRIDPROBE_REQUIRE_GPU") == "1" or not any("gpu" in item.keywords for item in items):
        return
    import torch

    if not torch.cuda.is_available():
        for item in items:
            if "gpu" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="no CUDA device"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """What was not run: how many tests, why, and the command that runs them. pytest-xdist brings all reports here."""
    reports = terminalreporter.stats.get("skipped", [])
    reasons = [report.longrepr[2] for report in reports if isinstance(report.longrepr, tuple)]
    lines = skipped_table(reasons, config.option.markexpr)
    if lines:
        terminalreporter.section("not run: count, reason, command")
        for line in lines:
            terminalreporter.line(line)
