"""Names, options and what all benchmarks have in common."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmark_files import touch
from gridprobe.cli.options import parse_options
from gridprobe.errors import DataError, UsageError
from gridprobe.video import FramePool, SampleSpec
from gridprobe_eval.benchmarks import BENCHMARKS, Item, load_benchmark, metrics
from gridprobe_eval.benchmarks.files import Media, find_files
from gridprobe_world.dataset import open_video


def test_an_unknown_name_suggests_the_near_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"unknown benchmark 'longvideobnch'; did you mean 'longvideobench'\?"):
        load_benchmark("longvideobnch", tmp_path)
    with pytest.raises(UsageError, match="'xyz'; choose one of egoschema, gridworld, jsonl, longvideobench"):
        metrics("xyz", [], {})


@pytest.mark.parametrize("name", list(BENCHMARKS))
def test_an_unknown_option_is_refused_by_every_one(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"unknown option 'zzz' of {name}"):
        load_benchmark(name, tmp_path, zzz=1)


@pytest.mark.parametrize("name", [name for name in BENCHMARKS if name != "gridworld"])
def test_an_empty_folder_is_an_error_that_says_what_was_looked_for(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"see docs/evaluation\.md"):
        load_benchmark(name, tmp_path)


@pytest.mark.parametrize("name", list(BENCHMARKS))
def test_scores_of_nothing_are_none_and_not_zero(name: str) -> None:
    assert {(metric.value, metric.count) for metric in metrics(name, [], {})} == {(None, 0)}


SPEC = SampleSpec(144)


def make(item: Item) -> Path | FramePool:
    return open_video(item, SPEC)


def test_options_of_the_command_line() -> None:
    assert parse_options(["split=test", "paper_subset=true", "count=40", "x=a=b", "y="]) == {
        "split": "test",
        "paper_subset": True,
        "count": 40,
        "x": "a=b",
        "y": "",
    }
    for wrong in ("split", "=test"):
        with pytest.raises(UsageError, match="NAME=VALUE"):
            parse_options([wrong])


def test_listing_the_benchmarks_loads_no_heavy_package() -> None:
    program = (
        "import sys, json; from gridprobe_eval.benchmarks import BENCHMARKS; "
        "print(json.dumps([name for name in ('pyarrow', 'pandas', 'av', 'torch') if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert json.loads(done.stdout) == []


def test_an_absent_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, "test.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    with pytest.raises(DataError, match=r"needs pyarrow; run: pip install 'gridprobe\[eval\]'"):
        load_benchmark("video-mme-v2", tmp_path)


def test_the_first_pattern_that_matches_wins_and_parts_come_in_order(tmp_path: Path) -> None:
    touch(tmp_path, "test-1.parquet", "test-0.parquet", "other.parquet")

    assert [path.name for path in find_files(tmp_path, "no-*.parquet", "test-*.parquet", "*.parquet")] == [
        "test-0.parquet",
        "test-1.parquet",
    ]


@pytest.mark.parametrize(
    ("files", "asked", "expected"),
    [
        (["videos/a.mp4", "a.mp4"], ("a.mp4",), "videos/a.mp4"),
        (["videos/a.mkv"], ("a.mp4",), "videos/a.mkv"),
        (["videos/x/a.mp4"], ("x/a.mp4",), "videos/x/a.mp4"),
        (["videos/x/a.mp4"], ("y/a.mp4", "a.mp4"), "videos/x/a.mp4"),
        (["videos/x/y/a.mp4"], ("a.mp4",), "videos/a.mp4"),
        (["other/a.mp4"], ("a.mp4",), "videos/a.mp4"),
        (["videos/a.mp4"], ("a.srt",), "videos/a.srt"),
        (["more/b.mp4"], ("a.mp4",), "more/a.mp4"),
    ],
)
def test_where_a_file_lies(tmp_path: Path, files: list[str], asked: tuple[str, ...], expected: str) -> None:
    touch(tmp_path, *files)

    assert Media(tmp_path, "videos", "more", ".").find(*asked) == tmp_path / expected


class TestGridworld:
    def test_items_are_the_same_every_time_and_do_not_depend_on_how_many(self, tmp_path: Path) -> None:
        twelve, four = load_benchmark("gridworld", tmp_path, count=12), load_benchmark("gridworld", tmp_path, count=4)

        assert load_benchmark("gridworld", tmp_path, count=12) == twelve
        assert twelve.items[:4] == four.items
        assert load_benchmark("gridworld", tmp_path, count=8, first=4).items == twelve.items[4:]
        assert len({twelve.version, four.version}) == 2 and twelve.version.startswith("gridworld-12-")
        assert list(tmp_path.iterdir()) == []

    def test_evidence_and_bins(self, tmp_path: Path) -> None:
        items = load_benchmark("gridworld", tmp_path, count=40).items

        for item in items:
            assert item.question.id == item.id and item.question.answer
            assert item.duration is not None
            assert all(0 <= start < end <= item.duration * 1.001 for start, end in item.extra["evidence"])
            assert item.bins["family"] in item.id
        assert json.loads(json.dumps(items[0].extra)) == items[0].extra
        assert {item.group for item in items} == {str(item.extra["seed"]) for item in items}

    def test_train_and_test_share_no_video(self, tmp_path: Path) -> None:
        groups = [
            {item.group for item in load_benchmark("gridworld", tmp_path, count=20, split=split).items}
            for split in ("test", "train")
        ]

        assert groups[0].isdisjoint(groups[1])

    @pytest.mark.parametrize(("name", "value"), [("count", 0), ("count", "4"), ("first", -1), ("split", "dev")])
    def test_options_are_checked(self, tmp_path: Path, name: str, value: Any) -> None:
        with pytest.raises(UsageError, match=f"{name} must be"):
            load_benchmark("gridworld", tmp_path, **{name: value})

    def test_a_video_is_made_once_and_whole(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from gridprobe.video import probe
        from gridprobe_world import render

        items = load_benchmark("gridworld", tmp_path / "videos", count=200).items
        item = min(items, key=lambda each: each.duration or 0.0)

        make(item)
        monkeypatch.setattr(render, "write_script", None)
        make(item)

        assert [path.name for path in (tmp_path / "videos").iterdir()] == [item.video.name]
        assert probe(item.video).duration == pytest.approx(item.duration)

    def test_a_failure_leaves_nothing_behind(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(script: object, path: Path, **_: object) -> None:
            path.write_bytes(b"half")
            raise OSError("disk full")

        monkeypatch.setattr("gridprobe_world.render.write_script", fail)
        item = load_benchmark("gridworld", tmp_path, count=1).items[0]

        with pytest.raises(OSError, match="disk full"):
            make(item)
        assert list(tmp_path.iterdir()) == []
