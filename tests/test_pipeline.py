"""From a real file to an answer: pixels prove which frames the backend received, markers prove at what times."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import gridprobe as gp
from gridprobe.backends import ScoreRequest, Scripted
from gridprobe.errors import UsageError, VideoError
from gridprobe.selectors import GridProbe, Selection, UniformLike
from gridprobe.settings import PRESETS, Settings
from gridprobe.video import NATIVE, FramePool, Limits, sample
from gridprobe.video.decode import FileClip
from gridprobe.video.frames import Found, Pixels
from videos import numbered_video, patched, read_number, remux
from videos_of_arrays import gray_pool, levels

QUESTION = gp.Question("When does it happen?", ["early", "late", "never"])
FPS = 25
SCHEMA = json.loads((Path(gp.__file__).parent / "schemas" / "answer-1.json").read_text())


@pytest.fixture(scope="session")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 seconds at 25 fps; every frame shows its own number."""
    path = tmp_path_factory.mktemp("pipeline") / "numbered.mp4"
    numbered_video(path, 1000, fps=FPS)
    return path


def numbers(pool: FramePool) -> list[int]:
    return [read_number(frame) for frame in pool.pixels]


def eyes(first: int, last: int) -> Scripted:
    """Sure of B when a frame from first…last is really among the pixels shown."""

    def answer(request: ScoreRequest) -> dict[str, float]:
        seen = any(first <= number <= last for number in numbers(request.frames))
        return {"A": 0.03, "B": 0.94, "C": 0.03} if seen else {"A": 1.0, "B": 1.0, "C": 1.0}

    return Scripted(answer)


def test_the_whole_chain_finds_the_event_from_pixels_alone(numbered: Path) -> None:
    model = eyes(430, 440)

    answer = gp.ask(numbered, QUESTION, model=model, k=12)

    focus = model.requests[-1]
    assert (answer.choice, answer.text) == ("B", "late")
    assert answer.confidence == pytest.approx(0.94)
    assert len(model.requests) == 25  # 12 rows, 12 columns, one focused pass
    assert answer.selection.kept == len(focus.frames) < 40
    assert any(430 <= number <= 440 for number in numbers(focus.frames))
    assert not answer.warnings


def test_the_backend_gets_the_frames_displayed_at_the_sampled_times(numbered: Path) -> None:
    model = eyes(430, 440)

    gp.ask(numbered, QUESTION, model=model, k=12, precision="exact")

    middles = [(i + 0.5) * 40.0 / 144 for i in range(144)]
    expected = [int(time * FPS + 1e-9) for time in middles]
    rows, columns = model.requests[:12], model.requests[12:24]
    assert [numbers(row.frames) for row in rows] == [expected[r * 12 : r * 12 + 12] for r in range(12)]
    assert [numbers(column.frames) for column in columns] == [expected[c::12] for c in range(12)]
    for request in model.requests:
        assert request.times == pytest.approx([number / FPS for number in numbers(request.frames)], abs=1e-6)


def test_the_paper_preset_is_the_published_method(numbered: Path) -> None:
    model = eyes(430, 440)

    answer = gp.ask(numbered, QUESTION, model=model, preset="paper")

    expected = np.round(np.linspace(0, 999, 144)).astype(int).tolist()
    assert [n for row in model.requests[:12] for n in numbers(row.frames)] == expected
    probe, focus = model.requests[0], model.requests[-1]
    assert probe.pixels.fit(1920, 1080) == (224, 224)
    assert (probe.packing, probe.timestamps, focus.packing, focus.timestamps) == ("pairs", "paper", "pairs", "paper")
    assert "(A) early" in probe.prompt
    assert answer.settings == PRESETS["paper"] and answer.settings.ties == "earliest"


def test_order_is_time_unless_importance_is_asked_for() -> None:
    def graded(request: ScoreRequest) -> dict[str, float]:
        return {"A": 1.0 + max(levels(request.frames)), "B": 1.0, "C": 1.0}

    by_time, by_importance = Scripted(graded), Scripted(graded)
    gp.ask(gray_pool(16), QUESTION, model=by_time, k=4, frames=5)
    gp.ask(gray_pool(16), QUESTION, model=by_importance, k=4, frames=5, order="importance")

    assert levels(by_time.requests[-1].frames) == sorted(levels(by_importance.requests[-1].frames))
    assert levels(by_importance.requests[-1].frames)[0] == 15
    assert by_importance.requests[-1].times[0] == 150.0  # the time goes with the frame


def test_a_second_model_answers_and_is_priced_apart() -> None:
    small = Scripted(lambda r: {"A": 9.0 if 5 in levels(r.frames) else 1.0, "B": 1.0, "C": 1.0}, name="small")
    large = Scripted(lambda _: {"A": 0.0, "B": 0.1, "C": 0.9}, name="large")

    answer = gp.ask(gray_pool(16), QUESTION, model=small, answer_model=large, k=4)

    assert answer.choice == "C"
    assert (len(small.requests), len(large.requests)) == (8, 1)
    assert answer.models == ("scripted:small", "scripted:large")
    assert answer.cost.focus == large.estimate(large.requests[0])
    assert answer.cost.total == answer.cost.probe + answer.cost.focus


def test_the_baseline_is_one_pass_over_the_whole_pool_at_native_size() -> None:
    model = Scripted(lambda _: {"A": 1.0, "B": 2.0, "C": 1.0})

    everything = gp.ask(gray_pool(16), QUESTION, model=model, k=4, selector="all")

    assert everything.selection.kept == 16
    assert everything.cost.baseline == everything.cost.focus == everything.cost.total


def test_the_collage_is_one_picture_without_times() -> None:
    model = Scripted(lambda _: {"A": 1.0, "B": 2.0, "C": 1.0})

    gp.ask(gray_pool(16), QUESTION, model=model, k=4, frames=5, collage=True)

    focus = model.requests[-1]
    assert focus.frames.pixels.shape == (1, 2048, 2048, 3)
    assert focus.timestamps == "none"
    assert focus.pixels.fit(2048, 2048) == (2048, 2048)


# Two sizes.


class Passes:
    """What was read from video files: the size, and how many frames were wanted (None: the whole plan)."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read: list[tuple[tuple[int, int], int | None]] = []
        original = FileClip.read

        def spy(
            reel: FileClip, size: tuple[int, int], ticks: Sequence[int] | None = None, *, whole: bool = False
        ) -> tuple[Found, Pixels]:
            self.read.append((size, None if ticks is None else len(ticks)))
            return original(reel, size, ticks, whole=whole)

        monkeypatch.setattr(FileClip, "read", spy)


SMALL, LARGE = (224, 64), (256, 64)


def test_the_pool_is_decoded_small_and_what_is_kept_once_more(numbered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passes, model = Passes(monkeypatch), eyes(430, 440)

    answer = gp.ask(numbered, QUESTION, model=model, k=12)

    focus = model.requests[-1].frames
    assert passes.read == [(SMALL, None), (LARGE, answer.selection.kept)]
    assert {(r.frames.width, r.frames.height) for r in model.requests[:-1]} == {SMALL}
    native = sample(numbered, cells=144, precision="auto")
    assert focus.times == answer.selection.timestamps == tuple(native.times[i] for i in answer.selection.indices)
    assert np.array_equal(focus.pixels, native.pixels[list(answer.selection.indices)])
    assert focus.keys[0] == (native.source, focus.times[0], *LARGE)
    assert answer.pool.keys[0] == (native.source, native.times[0], *SMALL)


def test_the_paper_preset_decodes_one_pool_at_native_size(numbered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passes, model = Passes(monkeypatch), eyes(430, 440)

    gp.ask(numbered, QUESTION, model=model, preset="paper")

    assert passes.read == [(LARGE, None)]
    native = sample(numbered, cells=144, sampling="linspace", size=PRESETS["paper"].native_pixels)
    for row, request in enumerate(model.requests[:12]):
        assert np.array_equal(request.frames.pixels, native.pixels[12 * row : 12 * row + 12])
    assert (model.requests[-1].frames.width, model.requests[-1].frames.height) == LARGE


def test_a_session_decodes_nothing_twice(numbered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = Passes(monkeypatch)
    with gp.Session(numbered, model=eyes(100, 120), k=4, frames=3) as session:
        first = session.ask(QUESTION)
        again = session.ask(QUESTION)

    assert passes.read == [(SMALL, None), (LARGE, 3)]
    assert first.pool.pixels is again.pool.pixels
    assert again.seconds.decode < first.seconds.decode


def test_a_second_question_decodes_only_frames_it_has_not_got(numbered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passes, chosen = Passes(monkeypatch), iter([(1, 4, 7), (2, 4, 5, 7)])

    class Fixed:
        def select(self, pool: FramePool, question: gp.Question) -> Selection:
            return Selection.of("fixed", pool, next(chosen))

    model = eyes(0, 0)
    with gp.Session(numbered, model=model, selector=Fixed(), k=4) as session:
        session.ask(QUESTION)
        second = session.ask(QUESTION)

    assert passes.read == [(SMALL, None), (LARGE, 3), (LARGE, 2)]
    shown = model.requests[-1].frames
    assert numbers(shown) == [round(time * FPS) for time in second.selection.timestamps]


def test_memory_is_bounded(numbered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passes, limits = Passes(monkeypatch), Limits(memory=20 * 256 * 64 * 3)
    with gp.Session(numbered, model=eyes(0, 0), selector="uniform", frames=12, k=4, limits=limits) as session:
        session.ask(QUESTION)
        session.settings = session.settings.changed(native_pixels=gp.FrameSize(max_side=224))
        session.ask(QUESTION)
        assert session._footage._shelf.bytes <= limits.memory
        session.settings = session.settings.changed(native_pixels=NATIVE)
        session.ask(QUESTION)

    assert passes.read == [(LARGE, 12), (SMALL, 12), (LARGE, 12)]


@pytest.mark.parametrize(("selector", "kept"), [("uniform", 6), ("random", 6), ("all", 25)])
def test_blind_selectors_decode_only_what_they_keep(
    numbered: Path, monkeypatch: pytest.MonkeyPatch, selector: str, kept: int
) -> None:
    passes, model = Passes(monkeypatch), eyes(0, 0)
    frames = "auto" if selector == "all" else kept

    answer = gp.ask(numbered, QUESTION, model=model, selector=selector, k=5, frames=frames, precision="exact")

    assert passes.read == [(LARGE, kept)]
    exact = sample(numbered, cells=25)
    assert answer.pool.times == exact.times
    assert np.array_equal(model.requests[-1].frames.pixels, exact.pixels[list(answer.selection.indices)])
    assert [round(time * FPS) for time in exact.times] == numbers(answer.pool)  # decoded now that it is looked at
    assert passes.read == [(LARGE, kept), (LARGE, None), (SMALL, 25)]  # the second is this test's own


def test_the_baseline_decodes_nothing(numbered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = eyes(0, 0)
    everything = gp.ask(numbered, QUESTION, model=model, selector="all", k=5)
    passes = Passes(monkeypatch)

    some = gp.ask(numbered, QUESTION, model=model, selector="uniform", k=5, frames=2)

    assert some.cost.baseline == everything.cost.focus
    assert passes.read == [(LARGE, 2)]


def test_decoding_seconds_count_both_passes(numbered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = FileClip.read

    def slow(reel: FileClip, *arguments: Any, **options: Any) -> tuple[Found, Pixels]:
        time.sleep(0.3)
        return original(reel, *arguments, **options)

    monkeypatch.setattr(FileClip, "read", slow)
    answer = gp.ask(numbered, QUESTION, model=eyes(0, 0), k=4)

    assert answer.seconds.decode > 0.6 > answer.seconds.probe


def test_a_selector_may_say_what_size_it_wants(numbered: Path) -> None:
    model = eyes(430, 440)

    gp.ask(numbered, QUESTION, model=model, selector=GridProbe(model, pixels=gp.FrameSize(max_side=128)), k=3)
    gp.ask(numbered, QUESTION, model=model, selector=UniformLike(GridProbe(model, pixels=gp.FrameSize(square=64))), k=3)

    assert {(r.frames.width, r.frames.height) for r in model.requests} == {(128, 32), (64, 64), LARGE}


@pytest.mark.parametrize("selector", ["uniform", "all", "gridprobe"])
def test_a_damaged_video_gives_the_same_frames_at_both_sizes(tmp_path: Path, selector: str) -> None:
    whole = numbered_video(tmp_path / "whole.mp4", 750, gop=25, options={"sc_threshold": "0"})
    path = patched(
        remux(whole, tmp_path / "front.mp4", movflags="faststart"), tmp_path / "d.mp4", start=0.5, length=0.1
    )
    model = eyes(0, 750)
    frames = 20 if selector == "uniform" else "auto"

    answer = gp.ask(path, QUESTION, model=model, selector=selector, k=6, frames=frames, precision="exact")

    shown = model.requests[-1].frames
    assert "damaged and replaced" in answer.warnings[0]
    assert shown.times == answer.selection.timestamps == tuple(answer.pool.times[i] for i in answer.selection.indices)
    assert numbers(shown) == [round(time * FPS) for time in shown.times]
    assert numbers(answer.pool) == [round(time * FPS) for time in answer.pool.times]


@pytest.mark.parametrize("frames", [1, 2, 3, 7])
def test_a_video_shorter_than_the_grid_still_answers(tmp_path: Path, frames: int) -> None:
    path = tmp_path / "short.mp4"
    numbered_video(path, frames, fps=FPS)
    model = eyes(0, 0)

    answer = gp.ask(path, QUESTION, model=model)

    assert answer.selection.pool == frames and answer.choice == "B"
    assert any(f"{frames} distinct" in warning for warning in answer.warnings)
    jsonschema.validate(answer.to_dict(), SCHEMA)


@pytest.mark.parametrize("selector", ["gridprobe", "uniform", "random", "all", "uniform-like"])
def test_every_answer_validates_against_the_schema(numbered: Path, selector: str) -> None:
    frames = 6 if selector in ("uniform", "random") else "auto"

    answer = gp.ask(numbered, QUESTION, model=eyes(1, 500), selector=selector, k=5, frames=frames)

    plain = json.loads(json.dumps(answer.to_dict(), allow_nan=False))
    jsonschema.validate(plain, SCHEMA)
    assert plain["selection"]["selector"] == selector
    assert plain["video"]["frames"] == 1000 and plain["video"]["width"] == 256


def test_warnings_of_question_and_video_reach_the_answer(tmp_path: Path) -> None:
    path = tmp_path / "short.mp4"
    numbered_video(path, 5, fps=FPS)

    answer = gp.ask(path, gp.Question("?", ["same", "Same"]), model=Scripted(lambda _: {"A": 1.0, "B": 1.0}))

    assert "5 distinct" in answer.warnings[0]
    assert answer.warnings[1] == "options A and B are the same text; their probabilities are not merged"


def test_any_object_with_select_is_a_selector() -> None:
    class Last:
        def select(self, pool: FramePool, question: gp.Question) -> Selection:
            return Selection.of("last", pool, (len(pool) - 1,))

    model = Scripted(lambda _: {"A": 1.0, "B": 2.0, "C": 1.0})
    answer = gp.ask(gray_pool(9), QUESTION, model=model, selector=Last(), k=3)

    assert answer.selection.selector == "last" and levels(model.requests[0].frames) == [8]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"selector": "clever"}, "unknown selector 'clever'; choose one of gridprobe"),
        ({"selector": "uniform"}, "needs a number of frames"),
        ({"selector": "all", "frames": 3}, "keeps every frame"),
        ({"preset": "fast"}, "unknown preset 'fast'; choose one of default, paper"),
        ({"k": 0}, "k must be a whole number from 1 to 64, got 0"),
        ({"k": 10**6}, "k must be a whole number"),
        ({"k": True}, "k must be a whole number"),
        ({"k": 2.5}, "k must be a whole number"),
        ({"frames": 0}, 'frames must be "auto" or a whole number of at least 1, got 0'),
        ({"frames": "many"}, "frames must be"),
        ({"gamma0": -1}, "gamma0 must be"),
        ({"gamma0": float("nan")}, "gamma0 must be"),
        ({"orderr": "time"}, "unknown setting 'orderr'; did you mean 'order'?"),
        ({"order": "random"}, "order must be one of time, importance, got 'random'"),
        ({"packing": "triples"}, "packing must be one of single, pairs"),
    ],
)
def test_impossible_arguments_are_refused_in_one_sentence(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message) as error:
        gp.ask(gray_pool(4), QUESTION, model=Scripted(lambda _: {"A": 1, "B": 1, "C": 1}), **arguments)
    assert "\n" not in str(error.value)


def test_a_missing_video_is_a_video_error(tmp_path: Path) -> None:
    with pytest.raises(VideoError, match=r"nothing\.mp4"):
        gp.ask(tmp_path / "nothing.mp4", QUESTION, model=eyes(1, 2))


def test_settings_round_trip_into_the_record() -> None:
    settings = Settings.from_preset("paper", k=8, frames=4).to_dict()

    assert settings["preset"] == "paper" and settings["k"] == 8 and settings["frames"] == 4
    assert settings["probe_pixels"]["square"] == 224


def test_the_tiny_model_runs_the_whole_chain(numbered: Path, tiny_model: object) -> None:
    answer = gp.ask(numbered, QUESTION, model=tiny_model, k=3)

    jsonschema.validate(answer.to_dict(), SCHEMA)
    assert 1 <= answer.selection.kept <= 9
    assert answer.cost.total.calls == 7
