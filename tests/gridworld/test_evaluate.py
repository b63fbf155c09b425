"""The evaluation: records as they come, runs that go on where they stopped, tables at the end."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from gridprobe.backends import ScoreRequest, Scripted
from gridprobe.errors import DataError, ModelError, UsageError, VideoError
from gridprobe.gridworld import evaluate as module
from gridprobe.gridworld.dataset import Item, items
from gridprobe.gridworld.evaluate import CROSS, WAYS, Evaluation, Frames, evaluate, main, read_records

NAMES = [way.name for way in WAYS]
COSTS = ("kept", "tflops", "tflops_paper", "baseline_tflops", "baseline_tflops_paper", "seconds", "covered", "sigma")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen small frames instead of 144 large ones."""
    monkeypatch.setattr(module, "K", 4)
    monkeypatch.setattr(module, "SIDE", 64)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """A model this small gains nothing from threads and loses much where cores are shared."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def brightness(request: ScoreRequest) -> Mapping[str, float]:
    """An opinion that depends on the frames, so that maps are not flat."""
    level = float(request.frames.pixels.mean()) / 255
    return {label: 1.0 + level * i for i, label in enumerate(request.labels)}


def run(
    out: Path, chosen: list[Item], *, model: Any = None, selector: Any = None, **options: Any
) -> list[dict[str, Any]]:
    frames = Frames(options.pop("source", "rendered"), device="cpu", videos=out.parent / "videos")
    evaluate(Evaluation(model or Scripted(brightness), selector, **options), chosen, frames, out=out)
    return read_records(out)


def timeless(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without times."""
    return [{key: value for key, value in record.items() if key != "seconds"} for record in records]


def alike(records: list[dict[str, Any]]) -> Any:
    """Without times, numbers nearly the same: what the engine kept from before decides how sums are rounded."""
    text = json.dumps(timeless(records))
    return json.loads(text, parse_float=lambda number: pytest.approx(float(number), rel=1e-4, abs=2e-6))


@pytest.mark.usefixtures("one_thread")
def test_a_checkpoint_from_end_to_end_and_on_after_a_crash(
    tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "deep" / "records.jsonl"
    command = ["--model", str(tiny_checkpoint), "--selector-model", str(tiny_checkpoint), "--count", "2"]
    command += ["--out", str(out), "--device", "cpu", "--calibration"]

    main(command)
    whole = read_records(out)
    torn = out.read_bytes()[: int(0.6 * out.stat().st_size)]
    assert not torn.endswith(b"\n")
    out.write_bytes(torn)
    main(command)

    assert timeless(read_records(out)) == alike(whole)
    ways = Counter((record["id"], record["way"]) for record in whole)
    assert all(ways[item.id, name] == 1 for item in items(2) for name in (*NAMES, "cross"))
    assert "2/2 items" in capsys.readouterr().err

    main(command)
    assert len(read_records(out)) == len(whole), "nothing is asked twice"
    main(["--table", str(out)])
    printed = capsys.readouterr().out
    for word in ("### Accuracy", "gridprobe M=8", "cross − all", "### Calibration on subsets", "rendered frames"):
        assert word in printed


def test_a_record_says_what_was_asked_and_answered_and_spent(tmp_path: Path) -> None:
    (item,) = items(1)
    records = run(tmp_path / "r.jsonl", [item])

    assert [record["way"] for record in records] == NAMES
    for record in records:
        assert (record["id"], record["seed"], record["family"]) == (item.id, item.seed, item.family)
        assert (record["outcome"], record["answer"]) == ("ok", item.asked.question.answer)
        assert record["options"] == len(record["posterior"]) == len(item.asked.question.options)
        assert record["right"] == (record["choice"] == record["answer"])
        assert record["confidence"] == max(record["posterior"].values())
        assert set(COSTS) <= set(record)
    by_way = {record["way"]: record for record in records}
    assert by_way["all"]["kept"] == 16 and by_way["all"]["sigma"] is None
    assert by_way["all"]["tflops"] == by_way["all"]["baseline_tflops"]
    assert by_way["gridprobe"]["kept"] == by_way["uniform-like"]["kept"]
    assert by_way["gridprobe M=8"]["kept"] == by_way["uniform M=8"]["kept"] == 8
    assert by_way["uniform-like"]["tflops"] > by_way["uniform M=8"]["tflops"], "its probes are paid for"


def test_ways_share_their_probes_but_not_their_seconds(tmp_path: Path) -> None:
    model = Scripted(brightness)
    records = {record["way"]: record for record in run(tmp_path / "r.jsonl", items(1), model=model)}

    probes = [request for request in model.requests if len(request.frames) == 4]
    assert len(probes) == 8, "four rows and four columns, once"
    assert records["uniform-like"]["seconds"]["probe"] > 0.5 * records["gridprobe"]["seconds"]["probe"]


def test_the_selector_model_probes_and_the_other_answers(tmp_path: Path) -> None:
    large, small = Scripted(brightness, name="large"), Scripted(brightness, name="small")
    records = run(tmp_path / "r.jsonl", items(1), model=large, selector=small)

    assert [record["way"] for record in records] == [*NAMES, CROSS.name]
    assert (records[-1]["model"], records[-1]["selector"]) == ("scripted:large", "scripted:small")
    assert len(small.requests) == 8


def test_covered_is_the_share_of_evidence_that_was_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "K", 12)
    chosen = items(8)
    records = run(tmp_path / "r.jsonl", chosen)

    evidence = {item.id: item.asked.evidence for item in chosen}
    for record in records:
        if not evidence[record["id"]]:
            assert record["covered"] is None
        elif record["way"] == "all":
            assert record["covered"] == 1.0
        elif record["way"] == "uniform M=8":
            kept = [(2 * i + 1) * 144 // 16 for i in range(8)]
            times = [(place + 0.5) / 144 for place in kept]
            hit = [any(a <= t < b for t in times) for a, b in evidence[record["id"]]]
            assert record["covered"] == pytest.approx(sum(hit) / len(hit))


def test_subsets_are_seeded_and_the_blind_ones_see_no_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "K", 12)
    chosen = [item for item in items(12) if item.family in ("needle", "holistic")][:2]
    model = Scripted(brightness)
    records = [r for r in run(tmp_path / "a.jsonl", chosen, model=model, calibration=True) if r["way"] == "subset"]
    again = [r for r in run(tmp_path / "b.jsonl", chosen, calibration=True) if r["way"] == "subset"]

    assert timeless(records) == alike(again)
    sizes = {(r["family"], r["kind"]): [] for r in records}
    for r in records:
        sizes[r["family"], r["kind"]].append(r["kept"])
        assert r["chance"] == 1 / r["options"]
        assert r["has_evidence"] is (r["family"] == "holistic" or (r["has_evidence"] and r["kind"] == "random"))
    expected = [("needle", "random"), ("needle", "blind"), ("holistic", "random")]
    assert sizes == {each: [1, 2, 4, 8, 16, 36] for each in expected}


def test_a_subset_cut_off_in_the_middle_is_completed(tmp_path: Path) -> None:
    out, chosen = tmp_path / "r.jsonl", items(2)
    whole = run(out, chosen, calibration=True)
    lines = out.read_text().splitlines(keepends=True)
    out.write_text("".join(lines[:-2]))

    assert timeless(run(out, chosen, calibration=True)) == alike(whole)


def test_an_item_that_fails_is_recorded_as_wrong_and_the_run_goes_on(tmp_path: Path) -> None:
    def moody(request: ScoreRequest) -> Mapping[str, float]:
        if len(request.frames) == 16:
            raise ModelError("too much for me")
        return brightness(request)

    chosen = items(2)
    records = run(tmp_path / "r.jsonl", chosen, model=Scripted(moody), calibration=True)

    failed = [record for record in records if record["outcome"] == "failed"]
    assert {record["id"] for record in failed if record["way"] == "all"} == {item.id for item in chosen}
    assert all(record["right"] is False and record["error"] == "ModelError: too much for me" for record in failed)
    assert {record["outcome"] for record in records if record["way"] == "uniform M=8"} == {"ok"}
    assert {record["outcome"] for record in records if record["way"] == "subset"} == {"failed"}, "16 frames are in it"


def test_a_video_that_cannot_be_read_fails_every_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise VideoError("no frames in it")

    monkeypatch.setattr(module, "pool_of", broken)
    records = run(tmp_path / "r.jsonl", items(1))

    assert [(record["way"], record["outcome"]) for record in records] == [(name, "failed") for name in NAMES]


def test_frames_can_come_from_files_that_are_kept(tmp_path: Path) -> None:
    chosen = [replace(item, duration=60.0) for item in items(2)]
    rendered = run(tmp_path / "r.jsonl", chosen)
    decoded = run(tmp_path / "d.jsonl", chosen, source="mp4")
    (video,) = (tmp_path / "videos").iterdir()
    made = video.stat().st_mtime_ns
    run(tmp_path / "e.jsonl", chosen, source="mp4")

    assert video.stat().st_mtime_ns == made
    for one, other in zip(rendered, decoded, strict=True):
        assert (one["way"], one["choice"]) == (other["way"], other["choice"])
        assert one["confidence"] == pytest.approx(other["confidence"], abs=0.01)
        assert other["source"] == "mp4"


@pytest.mark.parametrize("source", ["rendered", "mp4"])
def test_it_is_known_what_moment_a_frame_shows(source: Literal["rendered", "mp4"], tmp_path: Path) -> None:
    item = replace(items(1)[0], duration=60.0)
    frames = Frames(source, device="cpu", videos=tmp_path)
    moments = [(moment + frames.shift) / item.duration for moment in frames.of(item).times]

    # A file with four frames a second is right to an eighth of a second.
    assert moments == pytest.approx([(i + 0.5) / 16 for i in range(16)], abs=0.125 / 60 + 1e-9)


def test_records_of_another_model_are_not_mixed_in(tmp_path: Path) -> None:
    run(tmp_path / "r.jsonl", items(1))

    with pytest.raises(UsageError, match="scripted:scripted, not scripted:other"):
        run(tmp_path / "r.jsonl", items(1), model=Scripted(brightness, name="other"))


def test_probes_of_another_model_are_not_mixed_in(tmp_path: Path) -> None:
    small, other = Scripted(brightness, name="small"), Scripted(brightness, name="other")
    whole = run(tmp_path / "r.jsonl", items(1), selector=small)

    with pytest.raises(UsageError, match="scripted:small, not scripted:other"):
        run(tmp_path / "r.jsonl", items(1), selector=other)
    assert run(tmp_path / "r.jsonl", items(1)) == whole, "without a selector model the records are left as they are"


def test_frames_of_another_source_are_not_mixed_in(tmp_path: Path) -> None:
    run(tmp_path / "r.jsonl", items(1))

    with pytest.raises(UsageError, match="source rendered, not mp4"):
        run(tmp_path / "r.jsonl", items(1), source="mp4")


def test_a_broken_line_in_the_middle_is_named(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text('{"id": 1}\n{"id":\n{"id": 2}\n')

    with pytest.raises(DataError, match="line 2"):
        read_records(tmp_path / "r.jsonl")


def test_it_needs_a_model_or_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--count", "3"])
    assert "--table" in capsys.readouterr().err


def test_rendered_frames_need_no_video_library(tmp_path: Path) -> None:
    program = f"""
import sys
from pathlib import Path
sys.modules.update(dict.fromkeys(("av", "rich", "click", "torch"), None))
from gridprobe.backends import Scripted
from gridprobe.gridworld.dataset import items
from gridprobe.gridworld.evaluate import Evaluation, Frames, evaluate
model = Scripted(lambda request: dict.fromkeys(request.labels, 1.0))
frames = Frames("rendered", device="cpu", videos=Path())
evaluate(Evaluation(model), items(1), frames, out=Path({str(tmp_path / "r")!r}))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "r").read_text().splitlines()) == len(WAYS)
    assert all(json.loads(line)["outcome"] == "ok" for line in (tmp_path / "r").read_text().splitlines())
