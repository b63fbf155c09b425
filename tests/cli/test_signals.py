"""E06: signals end an evaluation in order, with their own exit codes."""

import json
import os
import signal
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from gridprobe.cli import cli
from gridprobe.cli.console import Stopped, stopping
from gridprobe_eval.runner import Evaluation
from videos import numbered_video

SIGNALS = [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGUSR1, 138)]


# E06 and C05 of tests/reliability.md
@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_signal_raises_once_and_handlers_are_put_back(number: signal.Signals, code: int) -> None:
    before = signal.getsignal(number)
    with pytest.raises(Stopped) as stopped, stopping():
        try:
            os.kill(os.getpid(), number)
        finally:
            assert signal.getsignal(number) == signal.SIG_DFL, "a second signal ends the process at once"
    assert stopped.value.exit_code == code
    assert signal.getsignal(number) == before


def test_an_ignored_signal_stays_ignored_and_other_threads_are_left_alone() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with stopping():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
    entered = threading.Event()

    def work() -> None:
        with stopping():
            entered.set()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert entered.is_set()


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_e06_an_evaluation_ends_in_order_and_status_says_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, code: int
) -> None:
    row = {"id": "q", "video": "v.mp4", "question": "Is it?", "options": ["yes", "no"]}
    (tmp_path / "mine.jsonl").write_text(json.dumps(row) + "\n")
    numbered_video(tmp_path / "v.mp4", 10)
    monkeypatch.setattr(Evaluation, "_work", lambda self, ledger: os.kill(os.getpid(), number))
    line = ["eval", "jsonl", "--data", str(tmp_path / "mine.jsonl"), "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(cli, [*line, "--model", "embedded:nano"])
    status = CliRunner().invoke(cli, ["status", str(tmp_path / "run")])

    assert done.exit_code == code, done.output
    assert f"gridprobe: ended by {number.name}" in done.stderr
    assert "the same command resumes the run" in done.stderr
    assert "interrupted" in status.stdout
