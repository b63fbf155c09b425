"""Nothing lost, nothing twice, nothing mixed: runs that are killed, starved of disk, doubled and resumed."""

import errno
import importlib
import json
import os
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import toy_runs
from gridprobe import MockModel
from gridprobe._util import Disk
from gridprobe.errors import RunError, UsageError
from gridprobe.models import LazyModel, Model, Request
from gridprobe.options import Options
from gridprobe.question import Question
from gridprobe.selectors import Selection, Selector
from gridprobe.video import FramePool, SampleSpec
from gridprobe.video.decoder_pool import ChildDecoder
from gridprobe_eval import Evaluation, disk, read_records, summary, worker
from gridprobe_eval.benchmarks import Benchmark, Item
from gridprobe_eval.supervisor import ProcessPool
from gridprobe_eval.tasks import Method
from gridprobe_eval.worker import WorkerJob
from toy_runs import here, ids, kill_when, lines, started, toy_benchmark
from waiting import wait_until

pytestmark = pytest.mark.usefixtures("decode_here")


@pytest.fixture(autouse=True)
def _calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(toy_runs.CALLS, str(tmp_path / "calls"))


@pytest.fixture
def toy(tmp_path: Path) -> Benchmark:
    return toy_benchmark(tmp_path / "data")


def told(folder: Path) -> str:
    return json.dumps(summary(folder))


def timeless(folder: Path) -> list[str]:
    """All records without their times and the name of their worker, sorted."""
    best = read_records(folder).best
    names = ("at", "worker", "seconds")
    return sorted(json.dumps({k: v for k, v in each.items() if k not in names}) for each in best.values())


def pool(benchmark: Benchmark, out: Path, workers: int = 1, **options: Any) -> dict[str, Any]:
    return started(benchmark, out, workers=workers, **options)


class TestARun:
    def test_asks_every_question_once_and_writes_what_the_folder_promises(self, toy: Benchmark, tmp_path: Path) -> None:
        result = here(toy, tmp_path / "run")

        assert toy_runs.calls() == Counter(ids(toy)) == lines(tmp_path / "run")
        assert (result["all"]["answered"], result["all"]["missing"], result["errors"]) == (6, 0, {})
        assert result["bins"]["length"]["short"]["questions"] == 2
        record = read_records(tmp_path / "run").best["v0-q1"]
        assert {"group", "choice", "right", "posterior", "letter_mass", "confidence", "selection", "cost"} <= set(
            record
        )
        assert (record["basis"], record["kind"]) == ("letters", None)
        assert record["right"] and record["selection"]["importance"] is None and "conventions" not in record["cost"]
        probed = record["selection"]
        assert len(probed["probe_choices"]) == len(probed["row_confidence"]) + len(probed["column_confidence"])
        assert set(probed["probe_choices"]) <= {"A", "B"}
        items = [json.loads(line) for line in (tmp_path / "run" / "items.jsonl").read_text().splitlines()]
        assert [item["id"] for item in items] == ids(toy)
        assert {"group", "question", "options", "answer", "bins", "video", "duration", "extra"} <= set(items[0])

    def test_questions_of_a_video_share_a_session_which_is_decoded_ahead(
        self, toy: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        opened: list[tuple[str, str]] = []
        real = ChildDecoder.open

        def watched(decoder: ChildDecoder, *rest: Any) -> Any:
            opened.append((Path(decoder.path).name, threading.current_thread().name))
            return real(decoder, *rest)

        monkeypatch.setattr("gridprobe.options.DECODE_IN", "child")
        monkeypatch.setattr(ChildDecoder, "open", watched)
        here(toy, tmp_path / "run")

        assert opened == [(f"v{n}", "gridprobe-decode") for n in range(3)]

    def test_the_next_video_is_decoded_while_the_model_is_busy(self, tmp_path: Path) -> None:
        toy = toy_benchmark(tmp_path / "data", videos=2, questions=1)
        started, going = threading.Event(), threading.Event()

        def open_video(item: Item, spec: SampleSpec) -> Path:
            if item.group == "v1":
                started.set()
            return item.video

        def waits(request: Request) -> dict[str, float]:
            if "<v0" in request.prompt:  # the model's turn comes only after the next video was begun
                assert started.wait()
                going.set()
            return {"A": 1.0, "B": 1.0}

        result = here(replace(toy, open=open_video), tmp_path / "run", model=MockModel(waits))

        assert going.is_set() and result["all"]["answered"] == 2

    def test_your_own_selector_is_evaluated(self, toy: Benchmark, tmp_path: Path) -> None:
        class First(Selector):
            name = "first"

            def select(self, pool: FramePool, question: Question) -> Selection:
                return Selection.of(self.name, pool, (0,))

        result = here(toy, tmp_path / "run", selector=First())

        assert result["all"]["kept"] == 1.0 and result["all"]["answered"] == 6
        assert json.loads((tmp_path / "run" / "spec.json").read_text())["setup"]["selector"] == {"name": "first"}

    # E16 of tests/reliability.md
    def test_a_broken_video_fails_its_own_questions_and_no_others(self, toy: Benchmark, tmp_path: Path) -> None:
        for picture in (tmp_path / "data" / "v1").iterdir():
            picture.write_bytes(b"no picture")

        result = here(toy, tmp_path / "run", max_failures=2)

        best = read_records(tmp_path / "run").best
        assert {name for name, each in best.items() if each["outcome"] == "failed"} == {"v1-q0", "v1-q1"}
        assert result["errors"] == {"VideoError": 2} and result["all"]["accuracy"] == pytest.approx(2 / 6)
        assert "v1" in best["v1-q1"]["error"]["message"]

    def test_failures_of_any_kind_are_records_and_the_run_goes_on(self, tmp_path: Path) -> None:
        toy = toy_benchmark(tmp_path / "data", words={"v0-q0": "fails", "v1-q1": "breaks"})

        result = here(toy, tmp_path / "run", max_failures=2)

        assert result["errors"] == {"ModelError": 1, "ZeroDivisionError": 1}
        assert result["all"]["answered"] == 4
        error = read_records(tmp_path / "run").best["v1-q1"]["error"]
        assert error == {"class": "ZeroDivisionError", "message": "nobody foresaw this"}

    # E17 of tests/reliability.md
    @pytest.mark.parametrize("limit", [1, 0.2])
    def test_too_many_failures_end_it_with_the_counts(self, tmp_path: Path, limit: float) -> None:
        words = {f"v{v}-q{q}": "fails" for v in range(3) for q in range(2)}
        toy = toy_benchmark(tmp_path / "data", words=words)
        allowed = 1 if limit == 1 else 2

        with pytest.raises(RunError, match=rf"^{allowed + 1} of 6 questions failed, more than the {allowed} that"):
            here(toy, tmp_path / "run", max_failures=limit)
        assert sum(lines(tmp_path / "run").values()) == allowed + 1
        with pytest.raises(RunError, match=f"^{allowed + 1} of 6"):  # before anything is asked
            here(toy, tmp_path / "run", max_failures=limit)
        assert sum(lines(tmp_path / "run").values()) == allowed + 1

    # E18 of tests/reliability.md
    def test_failed_ones_are_asked_again_only_when_told_to_and_keep_their_history(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        toy = toy_benchmark(tmp_path / "data", words={"v0-q0": "fails"})
        here(toy, tmp_path / "run")
        monkeypatch.setenv(toy_runs.REPAIRED, "1")
        here(toy, tmp_path / "run")
        assert summary(tmp_path / "run")["all"]["failed"] == 1

        before = toy_runs.calls()
        with toy_runs.evaluation(toy, tmp_path / "run", model=toy_runs.model(), retry_failed=True) as evaluation:
            assert str(evaluation.counts) == "5 done, 1 failed, 1 to do"
            result = evaluation.run()

        assert result["all"]["answered"] == 6 and toy_runs.calls() - before == Counter(["v0-q0"])
        assert lines(tmp_path / "run")["v0-q0"] == 2
        assert read_records(tmp_path / "run").best["v0-q0"]["attempt"] == 2

    def test_limit_ids_and_shards_come_together(self, toy: Benchmark, tmp_path: Path) -> None:
        for shard in ("1/2", "2/2"):
            here(toy, tmp_path / "run", shard=shard)

        here(toy, tmp_path / "one")
        assert told(tmp_path / "run") == told(tmp_path / "one")
        assert toy_runs.calls() == Counter(ids(toy) * 2)
        assert here(toy, tmp_path / "few", ids=("v0-q0", "v2-q1"))["all"]["questions"] == 2
        assert here(toy, tmp_path / "drawn", limit=4)["bins"]["length"]["short"]["questions"] == 2

    def test_ctrl_c_leaves_whole_records_and_an_open_door(
        self, toy: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupted(request: Request) -> Mapping[str, float]:
            if "<v1-q0>" in request.prompt:
                raise KeyboardInterrupt
            return toy_runs.answer(request)

        with pytest.raises(KeyboardInterrupt):
            here(toy, tmp_path / "run", model=MockModel(interrupted, name="toy"))
        assert list(lines(tmp_path / "run")) == ["v0-q0", "v0-q1"]
        here(toy, tmp_path / "run")

        assert toy_runs.calls() == Counter(ids(toy))


class TestNothingMixed:
    def test_another_spec_is_refused_before_anything_is_touched(self, toy: Benchmark, tmp_path: Path) -> None:
        here(toy, tmp_path / "run")

        with pytest.raises(UsageError, match=r"setup\.sampling\.k was 2 and is now 3; .*limit was null and is now 4"):
            here(toy, tmp_path / "run", k=3, limit=4)

    def test_shard_workers_and_timeout_are_no_part_of_it(self, toy: Benchmark, tmp_path: Path) -> None:
        here(toy, tmp_path / "run", shard="1/3", max_failures=3, timeout=5.0, start_timeout=50.0)
        here(toy, tmp_path / "run")

        assert toy_runs.calls() == Counter(ids(toy))

    def test_the_same_name_with_other_weights_is_refused(self, toy: Benchmark, tmp_path: Path) -> None:
        started(toy, tmp_path / "run", workers=0, shard="1/2")

        class Other(toy_runs.ToyModel):
            def load(self, **options: Any) -> Model:
                return MockModel(toy_runs.answer, name="other weights")

        with pytest.raises(RunError, match="begun with the models scripted:toy and scripted:toy, but these are"):
            started(toy, tmp_path / "run", workers=0, model=Other())

    def test_a_checkpoint_whose_last_weights_changed_is_refused(
        self, toy: Benchmark, tiny_checkpoint: Path, tmp_path: Path
    ) -> None:
        folder = shutil.copytree(tiny_checkpoint, tmp_path / "checkpoint")
        options = {"model": LazyModel(str(folder)), "workers": 0}
        started(toy, tmp_path / "run", shard="1/2", **options)
        begun = lines(tmp_path / "run")
        weights = bytearray((folder / "model.safetensors").read_bytes())
        weights[-1] ^= 0x80  # the sign of the last one
        (folder / "model.safetensors").write_bytes(weights)

        with pytest.raises(RunError, match=r"begun with the models checkpoint@\w+:.*, but these are checkpoint@"):
            started(toy, tmp_path / "run", **options)

        assert begun and lines(tmp_path / "run") == begun

    def test_a_folder_with_other_things_in_it_is_left_alone(self, toy: Benchmark, tmp_path: Path) -> None:
        (tmp_path / "thesis.tex").write_text("x")

        with pytest.raises(UsageError, match=r"is not empty \(.*\) and not a run"):
            here(toy, tmp_path)

    # E09 of tests/reliability.md
    def test_a_second_run_on_a_folder_is_refused_while_the_first_is_alive(self, toy: Benchmark, tmp_path: Path) -> None:
        def evaluation(**options: Any) -> Evaluation:
            return toy_runs.evaluation(toy, tmp_path / "run", model=toy_runs.model(), **options)

        with evaluation(shard="1/2"):
            for shard in ("1/2", "1/1", "1/3"):
                with pytest.raises(RunError, match=rf"in use by process {os.getpid()} on "), evaluation(shard=shard):
                    pass
            with evaluation(shard="2/2") as other:
                other.run()
        for shard in ("1/2", "2/2", "1/1", "1/1"):  # locks that nobody holds any more
            with evaluation(shard=shard):
                pass

    # E09 of tests/reliability.md
    def test_a_worker_of_an_earlier_run_that_is_still_alive_is_noticed(self, toy: Benchmark, tmp_path: Path) -> None:
        here(toy, tmp_path / "run", shard="1/2")
        orphan = disk.new_file(tmp_path / "run" / "records-w9-host-1-0.jsonl")
        assert orphan is not None

        with pytest.raises(RunError, match=r"still writes .*records-w9"):
            here(toy, tmp_path / "run")
        os.close(orphan)
        here(toy, tmp_path / "run")


class Watching(Disk):
    """Remembers what was done."""

    def __init__(self) -> None:
        self.kinds: list[str] = []

    def write(self, descriptor: int, content: bytes) -> int:
        self.kinds.append("write")
        return super().write(descriptor, content)

    def sync(self, descriptor: int) -> None:
        self.kinds.append("sync")
        super().sync(descriptor)

    def replace(self, source: Path, target: Path) -> None:
        self.kinds.append("replace")
        super().replace(source, target)


class Fatal(Disk):
    """Kills its process at the n-th thing it does to the disk: before it, or in the middle of a write."""

    def __init__(self, at: int, *, half: bool) -> None:
        self.left, self.half = at, half

    def _count(self) -> bool:
        self.left -= 1
        if self.left == 0 and not self.half:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.left == 0

    def write(self, descriptor: int, content: bytes) -> int:
        if self._count():
            super().write(descriptor, content[: len(content) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return super().write(descriptor, content)

    def sync(self, descriptor: int) -> None:
        self._count()
        super().sync(descriptor)

    def replace(self, source: Path, target: Path) -> None:
        self._count()
        super().replace(source, target)


def in_fork(work: Callable[[], object]) -> int:
    """The status of a process that does the work; a signal is negative."""
    process = os.fork()
    if not process:
        try:
            work()
        finally:
            os._exit(0)
    try:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    except BaseException:  # the test took too long
        os.kill(process, signal.SIGKILL)
        raise


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def resumed(benchmark: Benchmark, out: Path) -> None:
    """Resume a run that was killed. What it was just starting holds its lock, too, until it is a program of its own."""

    def ended() -> bool:
        try:
            here(benchmark, out)
        except RunError as error:
            assert "is in use by" in str(error)
            return False
        return True

    wait_until(ended)


class TestKilled:
    # E01 of tests/reliability.md
    @pytest.mark.parametrize("half", [False, True], ids=["before", "in the middle"])
    def test_at_every_single_step_to_the_disk_and_resumed(
        self, toy: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, half: bool
    ) -> None:
        watch = Watching()
        monkeypatch.setattr(disk, "DISK", watch)
        here(toy, tmp_path / "whole")
        monkeypatch.setattr(disk, "DISK", Disk())
        steps = [step for step, kind in enumerate(watch.kinds, start=1) if kind == "write" or not half]
        for step in steps:
            out, calls = tmp_path / f"run{step}", tmp_path / f"calls{step}"
            monkeypatch.setenv(toy_runs.CALLS, str(calls))

            def fatal(out: Path = out, step: int = step) -> None:
                disk.DISK = Fatal(step, half=half)
                here(toy, out)

            status = in_fork(fatal)
            safe = set(lines(out)) if out.exists() else set()
            asked = toy_runs.calls()
            resumed(toy, out)

            assert told(out) == told(tmp_path / "whole")
            assert lines(out) == Counter(ids(toy))
            again = toy_runs.calls() - asked
            assert not safe & set(again), "what was on the disk is not asked again"
            assert sum(toy_runs.calls().values()) <= len(toy.items) + 2, "at most those of the video in the works are"
            assert status == -signal.SIGKILL
        assert len(steps) > 2 * len(toy.items)

    # E03 of tests/reliability.md
    def test_and_killed_again_while_resuming(self, toy: Benchmark, tmp_path: Path) -> None:
        here(toy, tmp_path / "whole")
        for step in range(1, 12):

            def fatal(step: int = step) -> None:
                disk.DISK = Fatal(10 + step, half=step % 2 == 0)
                here(toy, tmp_path / "run")

            in_fork(fatal)
        here(toy, tmp_path / "run")

        assert told(tmp_path / "run") == told(tmp_path / "whole")
        assert lines(tmp_path / "run") == Counter(ids(toy))

    # E04 of tests/reliability.md
    def test_a_torn_line_at_every_byte_is_asked_again_and_nothing_else(self, tmp_path: Path) -> None:
        toy = toy_benchmark(tmp_path / "data", videos=1, questions=2)
        here(toy, tmp_path / "whole")
        (file,) = (tmp_path / "whole").glob("records-*.jsonl")
        content, expected = file.read_bytes(), told(tmp_path / "whole")
        start = content.index(b"\n") + 1
        for cut in range(start, len(content), 41):
            file.write_bytes(content[:cut])
            before = toy_runs.calls()
            here(toy, tmp_path / "whole")
            assert toy_runs.calls() - before == Counter(["v0-q1"])
            assert told(tmp_path / "whole") == expected and file.read_bytes() == content[:cut]
            for other in set((tmp_path / "whole").glob("records-*.jsonl")) - {file}:
                other.unlink()


class Full(Disk):
    """Takes so many records, and then none."""

    def __init__(self, kind: str, code: int, takes: int) -> None:
        self.kind, self.code, self.takes = kind, code, takes
        self.records = 0

    def write(self, descriptor: int, content: bytes) -> int:
        self.records += content.startswith(b'{"schema": "gridprobe.record/2"')
        if self.kind == "write" and self.records > self.takes:
            raise OSError(self.code, os.strerror(self.code))
        return super().write(descriptor, content)

    def sync(self, descriptor: int) -> None:
        if self.kind == "sync" and self.records > self.takes:
            raise OSError(self.code, os.strerror(self.code))
        super().sync(descriptor)


# E07 of tests/reliability.md
@pytest.mark.parametrize(("kind", "code"), [("write", errno.ENOSPC), ("sync", errno.EIO)])
@pytest.mark.parametrize("takes", range(6))
def test_a_full_or_failing_disk_ends_the_run_and_it_goes_on_when_there_is_room(
    toy: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, code: int, takes: int
) -> None:
    monkeypatch.setattr(disk, "DISK", Full(kind, code, takes))
    with pytest.raises(RunError, match=rf"^cannot write .*: {os.strerror(code)}; what was recorded before is safe"):
        here(toy, tmp_path / "run")
    assert summary(tmp_path / "run")["all"]["missing"] == len(toy.items) - takes
    monkeypatch.setattr(disk, "DISK", Disk())
    here(toy, tmp_path / "run")
    here(toy, tmp_path / "whole")

    assert told(tmp_path / "run") == told(tmp_path / "whole")
    assert lines(tmp_path / "run") == Counter(ids(toy))


def several_writers(folder: Path, gate: toy_runs.Gate, workers: int) -> Callable[[], bool]:
    """Whether two workers have each written a record; they wait for each other, and are let on one by one."""
    asked, done, let = toy_runs.calls().total(), lines(folder).total(), 0
    old = set(folder.glob("records-*.jsonl"))

    def true() -> bool:
        nonlocal let
        if toy_runs.calls().total() < asked + workers or lines(folder).total() < done + let:
            return False
        writers = [file for file in set(folder.glob("records-*.jsonl")) - old if file.stat().st_size]
        if len(writers) < 2:
            gate.let(1)
            let += 1
        return len(writers) >= 2

    return true


class TestWorkers:
    # M14 of tests/reliability.md
    def test_many_workers_give_what_one_gives(self, tmp_path: Path) -> None:
        toy = toy_benchmark(tmp_path / "data", videos=5)
        here(toy, tmp_path / "here")
        here(toy, tmp_path / "again")
        pool(toy, tmp_path / "pool", 2)

        assert told(tmp_path / "here") == told(tmp_path / "again") == told(tmp_path / "pool")
        assert timeless(tmp_path / "here") == timeless(tmp_path / "again") == timeless(tmp_path / "pool")
        assert lines(tmp_path / "pool") == Counter(ids(toy))

    # E12 of tests/reliability.md
    def test_a_killed_run_is_resumed_with_other_numbers_of_workers(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        toy = toy_benchmark(tmp_path / "data", videos=12, questions=1)
        here(toy, tmp_path / "whole")
        monkeypatch.setenv(toy_runs.CALLS, str(tmp_path / "calls2"))
        monkeypatch.setenv(toy_runs.GATE, str(tmp_path / "gate"))
        with closing(toy_runs.Gate(tmp_path / "gate")) as gate:
            for workers in (3, 2):
                kill_when(several_writers(tmp_path / "run", gate, workers), tmp_path, workers)
        safe = lines(tmp_path / "run")
        asked = toy_runs.calls()
        assert set(safe.values()) == {1} and 4 <= len(safe) < len(toy.items)
        monkeypatch.delenv(toy_runs.GATE)
        pool(toy, tmp_path / "run", 1)

        assert told(tmp_path / "run") == told(tmp_path / "whole")
        assert lines(tmp_path / "run") == Counter(ids(toy))
        assert not set(safe) & set(toy_runs.calls() - asked)

    def test_a_question_that_kills_its_worker_twice_fails_and_the_others_do_not(self, tmp_path: Path) -> None:
        toy = toy_benchmark(tmp_path / "data", words={"v1-q0": "dies"})

        result = pool(toy, tmp_path / "run", 2)

        assert result["errors"] == {"WorkerDied": 1} and result["all"]["answered"] == 5
        record = read_records(tmp_path / "run").best["v1-q0"]
        assert record["attempt"] == 2 and "2 workers were lost" in record["error"]["message"]
        assert lines(tmp_path / "run") == Counter(ids(toy)) and set(toy_runs.calls().values()) == {1}

    # E02 of tests/reliability.md
    @pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.release), 2])
    def test_a_worker_killed_at_a_write_is_replaced_and_nothing_is_asked_twice_or_lost(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
    ) -> None:
        toy = toy_benchmark(tmp_path / "data", videos=8, questions=1)
        here(toy, tmp_path / "whole")
        monkeypatch.setenv(toy_runs.CALLS, str(tmp_path / "calls2"))

        pool(toy, tmp_path / "run", workers, model=toy_runs.FragileModel())

        assert told(tmp_path / "run") == told(tmp_path / "whole")
        assert lines(tmp_path / "run") == Counter(ids(toy))
        deaths = (tmp_path / "deaths").read_text().split()
        assert len(deaths) == 3 or (workers == 2 and deaths)  # of two, one may have little to do
        after = deaths.count("after")  # died when the record was on the disk but nobody had been told
        assert sum(toy_runs.calls().values()) == len(toy.items) + len(deaths) - after

    def test_a_model_that_cannot_be_loaded_is_one_sentence(self, toy: Benchmark, tmp_path: Path) -> None:
        with pytest.raises(RunError, match=r"^no worker is left: worker w\d: .*there is no config\.json in it"):
            started(toy, tmp_path / "run", model=LazyModel(str(tmp_path)), workers=2)

    def test_a_disk_that_fails_in_a_worker_ends_the_run(self, toy: Benchmark, tmp_path: Path) -> None:
        with pytest.raises(RunError, match="No space left on device; what was recorded before is safe"):
            pool(toy, tmp_path / "run", 2, model=toy_runs.FullDiskModel())
        pool(toy, tmp_path / "run", 0)

        assert lines(tmp_path / "run") == Counter(ids(toy))

    def test_too_many_failures_end_it_for_all_workers(self, tmp_path: Path) -> None:
        words = {f"v{v}-q{q}": "fails" for v in range(3) for q in range(2)}
        toy = toy_benchmark(tmp_path / "data", words=words)

        with pytest.raises(RunError, match=r"^2 of 6 questions failed"):
            pool(toy, tmp_path / "run", 2, max_failures=1)

    @pytest.mark.parametrize(("cores", "workers", "threads"), [(2, 1, 2), (2, 2, 1), (64, 8, 8), (2, 3, 1)])
    def test_workers_share_the_cores(
        self, cores: int, workers: int, threads: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(cores), raising=False)

        job = WorkerJob(tmp_path, Method(toy_runs.toy_setup()))
        assert ProcessPool(job, workers=workers).threads == threads

    def test_a_worker_takes_the_gpu_of_its_place_unless_a_device_was_named(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        loaded: list[dict[str, Any]] = []

        def load(name: str, **options: Any) -> Model:
            loaded.append(options)
            return toy_runs.model()

        monkeypatch.setattr("gridprobe_eval.worker._gpu", lambda place: f"cuda:{place}")
        monkeypatch.setattr("gridprobe.models.load_model", load)
        for model in (LazyModel("m/m"), LazyModel("m/m", (("device", "cpu"),))):
            worker.load(Options().resolve(model=model), 3)

        assert loaded == [{"device": "cuda:3"}, {"device": "cpu"}]

    def test_a_loaded_model_does_not_travel(self, toy: Benchmark, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="a loaded model cannot travel"):
            here(toy, tmp_path / "run", workers=2)
        with pytest.raises(UsageError, match="both models by name, or both loaded"):
            here(toy, tmp_path / "run", answer_model="embedded")


def test_there_are_no_more_workers_than_videos_to_ask_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker without work would load its models for nothing."""
    sizes: list[int] = []

    class Counting:
        def __init__(self, folder: Path, queue: Any, pool: ProcessPool, **_: Any) -> None:
            sizes.append(queue.workers)

        def run(self) -> None:
            """Ask nothing."""

    monkeypatch.setattr(importlib.import_module("gridprobe_eval.runner"), "Supervisor", Counting)
    for videos in (1, 3, 9):
        started(toy_benchmark(tmp_path / f"data{videos}", videos=videos), tmp_path / f"run{videos}", workers=5)

    assert sizes == [1, 3, 5]
