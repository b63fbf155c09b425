"""The frame cache: a hit gives the bytes of a miss, and whatever happens to the folder, an answer comes."""

import errno
import hashlib
import multiprocessing
import os
import stat
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gridprobe as gp
from gridprobe.errors import VideoError
from gridprobe.video import FrameCache, FrameSize, Video, VideoLimits, cache_folder, decode, open_cache, reader, sample
from gridprobe.video.decode import FileStream
from gridprobe.video.sampling import FrameIndex
from videos import Pixels, numbered_video, patched

SMALL = FrameSize(max_side=128)
CAP = 50_000_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def entries(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def no_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on no video may be opened."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a decoder was opened")

    for place in ("gridprobe.video.decode.open_video", "gridprobe.video.source.open_video"):
        monkeypatch.setattr(place, refuse)
    monkeypatch.setattr("av.open", refuse)


# What is found again.


# D05 of tests/reliability.md
@pytest.mark.parametrize("precision", ["exact", "auto"])
@pytest.mark.parametrize("sampling", ["middle", "linspace"])
def test_a_second_process_opens_no_decoder_and_sees_the_same_bytes(
    clip: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, sampling: str, precision: str
) -> None:
    wish = {"num_frames": 20, "sampling": sampling, "precision": precision}
    first = Video(clip, **wish, cache=FrameCache(folder, CAP))  # type: ignore[arg-type]
    small, large = first.pool(SMALL), first.frames([3, 9])
    no_decoder(monkeypatch)

    second = Video(clip, **wish, cache=FrameCache(folder, CAP))  # type: ignore[arg-type]

    for one, other in ((small, second.pool(SMALL)), (large, second.frames([3, 9]))):
        assert one.keys == other.keys and one.info == other.info and one.warnings == other.warnings
        assert np.array_equal(one.pixels, other.pixels)
    assert second.lazy().times == small.times
    with pytest.raises(AssertionError, match="a decoder was opened"):
        second.frames([4])


def test_asking_again_after_a_restart_decodes_nothing(
    clip: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRIDPROBE_CACHE", str(folder))
    monkeypatch.setattr("gridprobe.options.DECODE_IN", "process")
    question = gp.Question("Which?", ["this", "that"])

    def ask() -> tuple[gp.Answer, gp.MockModel]:
        model = gp.MockModel(lambda request: {"A": 99.0, "B": float(request.groups[0].frames.pixels[..., 0].mean())})
        return gp.ask(clip, question, model=model, k=5, effort="full"), model

    answer, model = ask()
    no_decoder(monkeypatch)
    again, other = ask()

    assert again.posterior == answer.posterior and again.selection.timestamps == answer.selection.timestamps
    for one, two in zip(model.requests, other.requests, strict=True):
        for mine, theirs in zip(one.groups, two.groups, strict=True):
            assert mine.frames.keys == theirs.frames.keys
            assert np.array_equal(mine.frames.pixels, theirs.frames.pixels)
    assert len(model.requests[-1].groups) == 2, "the kept frames, and all others"
    with pytest.raises(AssertionError):
        gp.ask(clip, question, model=model, k=5, effort="full", limits=VideoLimits(cache=0))
    assert (folder / "frames").is_dir()


def test_damage_is_remembered(faststart: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = patched(faststart, tmp_path / "damaged.mp4", start=0.5, length=0.05)
    first = Video(path, num_frames=100, cache=FrameCache(folder, CAP)).pool(SMALL)
    no_decoder(monkeypatch)
    again = Video(path, num_frames=100, cache=FrameCache(folder, CAP)).pool(SMALL)
    assert "damaged and replaced" in first.warnings[0]
    assert again.warnings == first.warnings and again.times == first.times


# V23 of tests/reliability.md
def test_a_copy_under_another_name_is_the_same_video_but_a_changed_file_is_not(
    clip: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "copy.mp4"
    path.write_bytes(clip.read_bytes())
    os.utime(path, ns=(clip.stat().st_mtime_ns,) * 2)
    Video(clip, num_frames=9, cache=FrameCache(folder, CAP)).pool(SMALL)
    with monkeypatch.context() as patch:
        no_decoder(patch)
        known = Video(path, num_frames=9, cache=FrameCache(folder, CAP))
        assert known.pool(SMALL).info.path == str(path)  # type: ignore[union-attr]
    other = numbered_video(tmp_path / "other.mp4", 200)
    path.write_bytes(other.read_bytes())
    assert Video(path, num_frames=9, cache=FrameCache(folder, CAP)).pool(SMALL).info.frames == 200  # type: ignore[union-attr]
    with pytest.raises(VideoError, match="changed while it was in use"):
        known.frames([1])


# D03 of tests/reliability.md
@pytest.mark.parametrize("change", ["num_frames", "precision", "decoder", "format", "limits"])
def test_another_wish_or_another_decoder_is_another_entry(
    clip: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    Video(clip, num_frames=9, cache=FrameCache(folder, CAP)).pool(SMALL)
    wish: dict[str, object] = {"num_frames": 9}
    if change == "num_frames":
        wish["num_frames"] = 16
    elif change == "precision":
        wish["precision"] = "auto"
    elif change == "limits":
        wish["limits"] = VideoLimits(max_duration=5.0)
    elif change == "decoder":
        monkeypatch.setattr("gridprobe.video.video.decoder_version", lambda: "PyAV 99")
    else:
        monkeypatch.setattr("gridprobe.video.cache.FORMAT", 99)
    reads: list[object] = []
    original = FileStream.read

    def spy(*given: Any, **options: Any) -> tuple[FrameIndex, Pixels]:
        reads.append(given)
        return original(*given, **options)

    monkeypatch.setattr(FileStream, "read", spy)
    if change == "limits":  # what was allowed once is still forbidden now
        with pytest.raises(VideoError, match="longer than 5 s"):
            Video(clip, **wish, cache=FrameCache(folder, CAP))  # type: ignore[arg-type]
        return
    Video(clip, **wish, cache=FrameCache(folder, CAP)).pool(SMALL)  # type: ignore[arg-type]
    assert len(reads) == 1


@pytest.mark.parametrize("stage", ["make_plan", "expected_pts", "read_plan"])
def test_a_file_replaced_while_it_is_read_leaves_nothing(
    clip: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    path = tmp_path / "video.mp4"
    path.write_bytes(clip.read_bytes())
    module = reader if stage == "expected_pts" else decode
    original = getattr(module, stage)

    def replaced(*arguments: object, **options: object) -> object:
        found = original(*arguments, **options)
        path.write_bytes(clip.read_bytes()[:-1])
        return found

    monkeypatch.setattr(module, stage, replaced)
    with pytest.raises(VideoError, match="changed while it was in use"):
        video = Video(path, num_frames=9, cache=FrameCache(folder, CAP))
        video.lazy(SMALL) if stage == "expected_pts" else video.pool(SMALL)
    assert entries(folder) == []


# What goes wrong.


# E21 of tests/reliability.md
@pytest.mark.parametrize("what", ["frames", "plan"])
@pytest.mark.parametrize("fault", ["half", "longer", "flipped", "empty", "swapped", "junk"])
def test_a_bad_entry_counts_as_absent_and_is_removed(clip: Path, folder: Path, fault: str, what: str) -> None:
    truth = sample(clip, num_frames=9, size=SMALL)
    Video(clip, num_frames=9, cache=FrameCache(folder, CAP)).pool(SMALL)
    contents = {path: path.read_bytes() for path in entries(folder)}
    frames = [path for path, whole in contents.items() if b'"plan"' not in whole]
    assert len(frames) == 9 and len(contents) == 10
    for place, path in enumerate(frames if what == "frames" else set(contents) - set(frames)):
        whole = contents[path]
        bad = {
            "half": whole[: len(whole) // 2],
            "longer": whole + b" ",
            "flipped": whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:],
            "empty": b"",
            "swapped": contents[frames[place - 1]],
            "junk": os.urandom(1000),
        }[fault]
        path.write_bytes(bad)

    store = FrameCache(folder, CAP)
    again = Video(clip, num_frames=9, cache=store).pool(SMALL)

    assert again.keys == truth.keys and np.array_equal(again.pixels, truth.pixels)
    assert {path: path.read_bytes() for path in entries(folder)} == contents and store.warning is None  # made anew


# E21 of tests/reliability.md
def test_a_bad_entry_is_removed_also_if_nothing_takes_its_place(folder: Path) -> None:
    store = FrameCache(folder, CAP)
    store.write([("key", b"content")])
    entries(folder)[0].write_bytes(b"gridprobe-cache-1\n")
    assert store.read("key") is None and entries(folder) == []


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"info": 3}', b"\xff", b"[" * 5000])
def test_a_plan_that_makes_no_sense_is_made_anew(
    clip: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.setattr(FileStream, "to_json", lambda *_: content)
    Video(clip, num_frames=9, cache=FrameCache(folder, CAP)).pool(SMALL)
    monkeypatch.undo()
    assert len(Video(clip, num_frames=9, cache=FrameCache(folder, CAP)).pool(SMALL)) == 9


def fails_with(number: int) -> object:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT])
@pytest.mark.parametrize("call", ["tempfile.mkstemp", "os.replace"])
def test_what_cannot_be_written_is_a_warning(
    clip: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    store = FrameCache(folder, CAP)
    monkeypatch.setattr(call, fails_with(number))
    video = Video(clip, num_frames=9, cache=store)
    assert np.array_equal(video.pool(SMALL).pixels, sample(clip, num_frames=9, size=SMALL).pixels)
    assert video.warnings == (f"the frame cache {folder} cannot be written ({os.strerror(number)})",)
    assert entries(folder) == []  # not even a temporary file


def test_trouble_reaches_the_answer(clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "file"
    place.write_text("not a folder")
    monkeypatch.setenv("GRIDPROBE_CACHE", str(place))
    answer = gp.ask(clip, gp.Question("?", ["a", "b"]), model=gp.MockModel(lambda _: {"A": 1.0, "B": 2.0}), k=3)
    assert answer.choice == "B" and "frame cache" in answer.warnings[-1] and "\n" not in answer.warnings[-1]


def test_a_cache_that_can_only_be_read_is_read(clip: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Video(clip, num_frames=9, cache=FrameCache(folder, CAP)).pool(SMALL)
    for call in ("tempfile.mkstemp", "os.utime", "os.unlink"):
        monkeypatch.setattr(call, fails_with(errno.EROFS))
    no_decoder(monkeypatch)
    video = Video(clip, num_frames=9, cache=FrameCache(folder, CAP))
    assert len(video.pool(SMALL)) == 9 and video.warnings == ()


@pytest.mark.parametrize("fault", ["owner", "link owner", "open to all", "a file"])
def test_a_folder_that_others_can_fill_is_not_used(
    clip: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    Video(clip, num_frames=9, cache=FrameCache(folder, CAP)).pool(SMALL)
    place = folder
    if fault == "owner":
        monkeypatch.setattr(os, "getuid", lambda: folder.stat().st_uid + 1)
    elif fault == "link owner":
        place = tmp_path / "link"
        place.symlink_to(folder)
        os.lchown(place, 12345, -1) if os.geteuid() == 0 else pytest.skip("only root gives a link away")
    elif fault == "open to all":
        folder.chmod(0o777)
    else:
        place = tmp_path / "file"
        place.touch()
    before = entries(folder)
    store = FrameCache(place, CAP)
    reason = {
        "owner": "it belongs to another user",
        "link owner": "it belongs to another user",
        "open to all": "everybody can write to it",
        "a file": "it is not a folder",
    }[fault]
    assert store.warning == f"the frame cache {place} is not used: {reason}"
    assert len(Video(clip, num_frames=4, cache=store).pool(SMALL)) == 4
    assert entries(folder) == before and store.size() == (0, 0)


def test_a_link_of_ones_own_is_followed(clip: Path, folder: Path, tmp_path: Path) -> None:
    folder.mkdir()
    link = tmp_path / "link"
    link.symlink_to(folder)
    store = FrameCache(link, CAP)
    Video(clip, num_frames=9, cache=store).pool(SMALL)
    assert store.warning is None and len(entries(folder)) == 10


def test_the_folder_is_for_the_user_alone(folder: Path) -> None:
    FrameCache(folder, CAP).write([("key", b"content")])
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.rglob("*"))}
    assert modes == {0o700, 0o600}


# E20 of tests/reliability.md
def test_it_may_be_deleted_at_any_time(folder: Path) -> None:
    store = FrameCache(folder, CAP)
    for number in range(3):
        store.write([(f"{number}", b"content")])
        for path in (*entries(folder), *sorted(folder.iterdir()), folder):
            path.unlink() if path.is_file() else path.rmdir()
        assert store.read(f"{number}") is None
    store.write([("key", b"content")])
    assert store.read("key") == b"content" and store.warning is None


# The cap.


def test_what_was_used_longest_ago_goes_first(folder: Path) -> None:
    store = FrameCache(folder, 10_000)
    for number in range(9):
        store.write([(f"{number}", bytes(1000))])  # 50 bytes more each with the header
        os.utime(store._path(f"{number}"), (number, number))
    assert store.read("0") == bytes(1000)  # used just now
    store.write([("new", bytes(1000))])
    kept = [key for key in (*map(str, range(9)), "new") if store.read(key) is not None]
    assert kept == ["0", "3", "4", "5", "6", "7", "8", "new"]  # down to nine tenths of the cap


def test_the_cap_holds_and_only_entries_are_removed(folder: Path) -> None:
    folder.mkdir()
    (folder / "ab").mkdir()
    strangers = [folder / "notes.txt", folder / "ab" / "notes.txt", folder / "ab" / ("f" * 63)]
    for path in strangers:
        path.write_bytes(bytes(50_000))
        os.utime(path, (1, 1))
    store = FrameCache(folder, 20_000)
    store.write((f"{number}", bytes(900)) for number in range(200))
    count, size = store.size()
    assert size <= 20_000 and count >= 15
    assert all(path.stat().st_size == 50_000 for path in strangers)


def test_links_inside_the_folder_are_left_alone(folder: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / ("0" * 64)).write_bytes(bytes(5000))
    folder.mkdir()
    (folder / "00").symlink_to(precious)
    (folder / "11").mkdir()
    (folder / "11" / ("1" * 64)).symlink_to(precious / ("0" * 64))
    store = FrameCache(folder, 1000)
    store.write((f"{number}", bytes(400)) for number in range(20))
    assert (precious / ("0" * 64)).stat().st_size == 5000 and store.size()[1] <= 1000


def test_only_old_temporary_files_go(folder: Path) -> None:
    store = FrameCache(folder, 1000)
    store.write([("key", b"x")])
    shelf = entries(folder)[0].parent
    young, old = shelf / "tmpyoung", shelf / "tmpold"
    for path in (young, old):
        path.write_bytes(bytes(2000))
    os.utime(old, (time.time() - 7200,) * 2)
    store.write([("other", bytes(900))])
    assert young.exists() and not old.exists()


# E22 of tests/reliability.md
def test_a_file_being_read_is_not_taken_away(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FrameCache(folder, 10_000)
    store.write([("key", b"precious")])
    with store._path("key").open("rb") as reader:
        FrameCache(folder, 10_000).write((f"{number}", bytes(2000)) for number in range(20))
        assert b"precious" in reader.read()
    store.write([("key", b"precious")])
    real = Path.read_bytes

    def gone(path: Path) -> bytes:
        path.unlink()  # between finding the name and opening the file
        return real(path)

    monkeypatch.setattr(Path, "read_bytes", gone)
    assert store.read("key") is None and store.warning is None


def hammer(folder: str, seed: int, failures: "multiprocessing.Queue[str]") -> None:
    """Write and read the same 40 entries in a cache that has room for 12 of them."""
    store = FrameCache(Path(folder), 12 * 3000)
    draw = np.random.default_rng(seed)
    for number in draw.integers(0, 40, 400).tolist():
        content = hashlib.sha256(b"%d" % number).digest() * 90
        found = store.read(f"{number}")
        if found is None:
            store.write([(f"{number}", content)])
        elif found != content:
            failures.put(f"{number} is wrong")
    if store.warning:
        failures.put(store.warning)


# E22 of tests/reliability.md
def test_processes_share_it_without_a_lock(folder: Path) -> None:
    context = multiprocessing.get_context("fork")
    failures = context.Queue()
    workers = [context.Process(target=hammer, args=(str(folder), seed, failures), daemon=True) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 4
    assert failures.empty()
    assert FrameCache(folder, CAP).size()[1] <= 12 * 3000 + 4 * 4500  # each may be an eighth of the cap ahead
    assert not [path for path in entries(folder) if path.name.startswith("tmp")]


# Where it is.


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({"GRIDPROBE_CACHE": "/data/cache"}, "/data/cache/frames"),
        ({"GRIDPROBE_CACHE": "off"}, None),
        ({"GRIDPROBE_CACHE": "OFF"}, None),
        ({"GRIDPROBE_CACHE": "Off "}, None),
        ({"XDG_CACHE_HOME": "/xdg"}, "/xdg/gridprobe/frames"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/home/me"}, "/home/me/.cache/gridprobe/frames"),
        ({"XDG_CACHE_HOME": "", "GRIDPROBE_CACHE": "", "HOME": "/home/me"}, "/home/me/.cache/gridprobe/frames"),
        ({"GRIDPROBE_CACHE": "/data/cache", "XDG_CACHE_HOME": "/xdg"}, "/data/cache/frames"),
    ],
)
def test_the_place(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], place: str | None) -> None:
    for name in ("GRIDPROBE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == (Path(place) if place else None)
    found = open_cache(CAP)
    assert (found and (found.folder, found.cap)) == ((Path(place), CAP) if place else None)
    assert open_cache(0) is None


def test_without_a_home_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRIDPROBE_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", fails_home)
    assert cache_folder() is None and open_cache(CAP) is None


def fails_home() -> Path:
    raise RuntimeError("no home")


def test_sample_uses_no_cache(clip: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRIDPROBE_CACHE", str(folder))
    sample(clip, num_frames=4, size=SMALL)
    assert not folder.exists()
