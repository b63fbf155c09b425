"""The index: incremental, whole after any interruption, and plain about what is wrong with it."""

import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gridprobe.errors import DataError, RunError, UsageError
from gridprobe_find import index as index_module
from gridprobe_find.build import IndexReport, build, meta_of
from gridprobe_find.index import LibraryIndex, open_index, read_meta
from library_kit import ColourEncoder, painted

ENCODER = ColourEncoder()


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("films")
    painted(folder / "a.mp4", [("green", 8), ("red", 8), ("green", 8)])
    painted(folder / "b.mp4", [("blue", 12)])
    return folder


@pytest.fixture
def library(films: Path, tmp_path: Path) -> Path:
    shutil.copytree(films, tmp_path / "films")
    return tmp_path / "films"


def opened(folder: Path) -> LibraryIndex:
    return open_index(folder, meta_of("colours", ENCODER))


def filled(folder: Path, library: Path) -> IndexReport:
    return build(opened(folder), sorted(library.glob("*.mp4")), ENCODER, roots=[library])


def rows(folder: Path) -> Counter[str]:
    """How many frames each video has, also those that no reader would see."""
    table = opened(folder)._tables["frames"].to_arrow()
    return Counter(table["key"].to_pylist())


def consistent(folder: Path) -> bool:
    """Every video has all its frames, and there are no others."""
    return rows(folder) == {video.key: video.frames for video in opened(folder).videos()}


def test_only_what_is_new_is_read_and_what_is_gone_is_dropped(library: Path, tmp_path: Path) -> None:
    folder = tmp_path / "index"

    assert filled(folder, library).new == 2
    again = filled(folder, library)
    painted(library / "b.mp4", [("red", 6)])
    shutil.copy2(library / "a.mp4", library / "c.mp4")
    (library / "a.mp4").unlink()
    changed = filled(folder, library)

    assert (again.new, again.same) == (0, 2)
    assert (changed.new, changed.same, changed.dropped) == (2, 0, 1)
    assert [(Path(video.path).name, video.frames) for video in opened(folder).videos()] == [("b.mp4", 3), ("c.mp4", 12)]
    assert consistent(folder)


def test_a_copy_is_read_once_and_stays_when_the_first_goes(library: Path, tmp_path: Path) -> None:
    folder = tmp_path / "index"
    filled(folder, library)
    shutil.copy2(library / "a.mp4", library / "copy.mp4")

    assert (filled(folder, library).new, filled(folder, library).same) == (0, 3)
    (library / "a.mp4").unlink()
    filled(folder, library)

    assert [Path(video.path).name for video in opened(folder).videos()] == ["b.mp4", "copy.mp4"]
    assert consistent(folder)


def test_a_folder_that_is_not_there_loses_nothing(library: Path, tmp_path: Path) -> None:
    filled(tmp_path / "index", library)
    library.rename(tmp_path / "unmounted")

    report = build(opened(tmp_path / "index"), [], ENCODER, roots=[library])

    assert (report.dropped, len(opened(tmp_path / "index").videos())) == (0, 2)


def test_a_file_that_vanishes_or_is_broken_is_a_sentence_and_the_rest_is_indexed(library: Path, tmp_path: Path) -> None:
    (library / "broken.mp4").write_bytes(b"not a video" * 100)
    (library / "b.srt").write_text("no line with times\n")

    report = build(opened(tmp_path / "index"), [library / "gone.mp4", *sorted(library.glob("*.mp4"))], ENCODER)

    assert report.new == 1
    assert [problem.partition(str(library))[2].partition(":")[0] for problem in report.problems] == [
        *("/gone.mp4", "/b.mp4", "/broken.mp4")
    ]


STEPS = ("_pend", "_add_rows", "_upsert", "_settle")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_an_interruption_at_any_step_leaves_no_half_video(
    step: str, when: str, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "index"
    filled(folder, library)
    before = {video.path: video.frames for video in opened(folder).videos()}
    painted(library / "b.mp4", [("red", 6)])
    original: Callable[..., Any] = getattr(LibraryIndex, step)
    pended: list[bool] = []

    def interrupt(self: LibraryIndex, *arguments: Any) -> Any:
        if step == "_settle" and not (self.folder / index_module.PENDING).exists():
            return original(self, *arguments)
        if when == "after":
            original(self, *arguments)
        pended.append(True)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(LibraryIndex, step, interrupt)
        with pytest.raises(KeyboardInterrupt):
            filled(folder, library)
    between = {video.path: video.frames for video in opened(folder).videos()}
    filled(folder, library)

    assert pended
    assert between in (before, {**before, str(library / "b.mp4"): 3})
    assert {Path(video.path).name: video.frames for video in opened(folder).videos()} == {"a.mp4": 12, "b.mp4": 3}
    assert consistent(folder)


PROGRAM = """
import sys
from pathlib import Path
sys.path[:0] = {paths!r}
from library_kit import ColourEncoder
from gridprobe_find.build import build, meta_of
from gridprobe_find.index import LibraryIndex, open_index
original = LibraryIndex._upsert
def slow(self, videos):
    print("rows are there", flush=True)
    sys.stdin.read()
    original(self, videos)
LibraryIndex._upsert = slow
encoder = ColourEncoder()
build(open_index(Path({folder!r}), meta_of("colours", encoder)), sorted(Path({films!r}).glob("*.mp4")), encoder)
"""


@pytest.mark.release
def test_a_killed_process_loses_no_row_and_gives_its_lock_back(library: Path, tmp_path: Path) -> None:
    folder, paths = tmp_path / "index", [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "src")]
    program = PROGRAM.format(paths=paths, folder=str(folder), films=str(library))
    child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stdout.readline() == "rows are there\n"
    child.send_signal(signal.SIGKILL)
    child.communicate()

    assert sum(rows(folder).values()) == 12 and not opened(folder).videos()  # rows that no reader sees
    filled(folder, library)
    assert len(opened(folder).videos()) == 2
    assert consistent(folder)


def test_another_encoder_is_refused_by_name(library: Path, tmp_path: Path) -> None:
    filled(tmp_path / "index", library)
    other = ColourEncoder("shapes")

    with pytest.raises(UsageError, match=r"encoder:colours@1:float32, not with encoder:shapes.*--rebuild"):
        open_index(tmp_path / "index", meta_of("shapes", other))
    rebuilt = open_index(tmp_path / "index", meta_of("shapes", other), rebuild=True)
    assert (rebuilt.videos(), rebuilt.meta.encoder) == ([], "shapes")


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")

    with pytest.raises(UsageError, match="holds no index"):
        opened(tmp_path)
    with pytest.raises(UsageError, match="holds no index"):
        open_index(tmp_path, meta_of("colours", ENCODER), rebuild=True)
    with pytest.raises(UsageError, match="gridprobe index FOLDER"):
        open_index(tmp_path / "nothing")
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def damage_meta(folder: Path) -> None:
    (folder / "meta.json").write_text("{")


def lose_meta(folder: Path) -> None:
    (folder / "meta.json").unlink()


def lose_data(folder: Path) -> None:
    for file in (folder / "frames.lance" / "data").iterdir():
        file.unlink()


def cut_data(folder: Path) -> None:
    for file in (folder / "frames.lance" / "data").iterdir():
        os.truncate(file, file.stat().st_size // 2)


def scramble_manifests(folder: Path) -> None:
    for file in (folder / "videos.lance" / "_versions").iterdir():
        file.write_bytes(b"\xff" * file.stat().st_size)


@pytest.mark.parametrize(
    "damage", [damage_meta, lose_meta, lose_data, cut_data, scramble_manifests], ids=lambda each: each.__name__
)
def test_a_damaged_index_is_one_sentence_and_can_be_rebuilt(
    damage: Callable[[Path], None], library: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "index"
    filled(folder, library)
    damage(folder)

    with pytest.raises(DataError, match=r"cannot be read .*gridprobe index --rebuild") as caught:
        index = opened(folder)
        index.curves([video.key for video in index.videos()], ENCODER.texts(["red"])[0])
    open_index(folder, meta_of("colours", ENCODER), rebuild=True)
    filled(folder, library)

    assert "\n" not in str(caught.value)
    assert consistent(folder)


def test_a_full_disk_is_one_sentence_and_the_rest_is_safe(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "index"
    build(opened(folder), [library / "a.mp4"], ENCODER)

    def full(self: LibraryIndex, *_: Any) -> None:
        raise RuntimeError(
            "lance error: LanceError(IO): Generic LocalFileSystem error: No space left on device (os error 28)"
        )

    with monkeypatch.context() as patch:
        patch.setattr(LibraryIndex, "_add_rows", full)
        with pytest.raises(RunError, match="is full; what is in it is safe"):
            filled(folder, library)

    assert len(opened(folder).videos()) == 1
    assert filled(folder, library).new == 1
    assert consistent(folder)


def test_two_writers_take_turns(library: Path, tmp_path: Path) -> None:
    folder = tmp_path / "index"
    first, second = opened(folder), opened(folder)
    videos = sorted(library.glob("*.mp4"))

    build(first, videos[:1], ENCODER)
    build(second, videos, ENCODER)
    build(first, videos, ENCODER)

    assert len(opened(folder).videos()) == 2
    assert consistent(folder)


def test_spoken_lines_are_found_in_any_script(library: Path, tmp_path: Path) -> None:
    (library / "a.srt").write_text(
        "1\n00:00:01,000 --> 00:00:03,000\nA red wagon passes\n\n2\n00:00:05,000 --> 00:00:07,000\nкрасный вагон\n\n"
        "3\n00:00:09,000 --> 00:00:11,000\n東京へようこそ\n",
        encoding="utf-8",
    )
    filled(tmp_path / "index", library)
    index = opened(tmp_path / "index")

    for query, start in (("wagons", 1.0), ("Вагон", 5.0), ("東京", 9.0)):
        assert [line.start for _, line in index.spoken(query, most=5)] == [start]
    assert index.spoken('"; DROP (', most=5) == []
    assert read_meta(tmp_path / "index") is not None


def test_nearest_videos_by_the_vector_search_are_those_of_exact_comparison(library: Path, tmp_path: Path) -> None:
    filled(tmp_path / "index", library)
    index = opened(tmp_path / "index")
    names = {video.key: Path(video.path).name for video in index.videos()}

    best = index.nearest(ENCODER.texts(["blue"])[0], most=5)

    assert [names[key] for key in best] == ["b.mp4", "a.mp4"]
    only = {video.key: video for video in index.videos() if video.path.endswith("a.mp4")}
    assert [names[key] for key in index.nearest(ENCODER.texts(["blue"])[0], most=5, within=only)] == ["a.mp4"]
    curves = index.curves(list(best), ENCODER.texts(["blue"])[0])
    assert {key: pytest.approx(curve.scores.max(), abs=2e-3) for key, curve in curves.items()} == best
