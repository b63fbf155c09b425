"""From a real file to an answer: pixels prove which frames the backend received, markers prove at what times."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any, Literal

import jsonschema
import numpy as np
import pytest

import gridprobe as gp
from gridprobe import MockModel
from gridprobe._util import ProgressEvent, listening
from gridprobe.errors import UsageError, VideoError
from gridprobe.importance import Fixed
from gridprobe.models import Model, Request, View
from gridprobe.options import PRESETS, Options
from gridprobe.selectors import GridProbe, Selection, UniformLike
from gridprobe.video import NATIVE, FramePool, Video, VideoLimits, sample
from gridprobe.video.decode import FileStream
from gridprobe.video.decoder_pool import ChildDecoder
from gridprobe.video.frames import Pixels
from gridprobe.video.pictures import FolderStream
from gridprobe.video.sampling import FrameIndex
from gridprobe.video.subtitles import Between, Segment
from videos import numbered_video, patched, read_number, remux
from videos_of_arrays import gray_pool, levels
from ways import PUBLISHED

QUESTION = gp.Question("When does it happen?", ["early", "late", "never"])
FPS = 25
SCHEMA = json.loads((Path(gp.__file__).parent / "schemas" / "answer.json").read_text())


@pytest.fixture(scope="session")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 seconds at 25 fps; every frame shows its own number."""
    path = tmp_path_factory.mktemp("pipeline") / "numbered.mp4"
    numbered_video(path, 1000, fps=FPS)
    return path


def ask(video: Any, question: gp.Question, **options: Any) -> gp.Answer:
    """The published method, unless the options say otherwise; tests/test_method.py is about ours."""
    return gp.ask(video, question, **{**PUBLISHED, **options})


def numbers(pool: FramePool) -> list[int]:
    return [read_number(frame) for frame in pool.pixels]


def eyes(first: int, last: int) -> MockModel:
    """Sure of B when a frame from first…last is really among the pixels shown."""

    def answer(request: Request) -> dict[str, float]:
        seen = any(first <= number <= last for number in numbers(request.frames))
        return {"A": 0.03, "B": 0.94, "C": 0.03} if seen else {"A": 1.0, "B": 1.0, "C": 1.0}

    return MockModel(answer)


def test_the_whole_chain_finds_the_event_from_pixels_alone(numbered: Path) -> None:
    model = eyes(430, 440)

    answer = ask(numbered, QUESTION, model=model, k=12)

    focus = model.requests[-1]
    assert (answer.choice, answer.text) == ("B", "late")
    assert answer.confidence == pytest.approx(0.94)
    assert len(model.requests) == 25  # 12 rows, 12 columns, one focused pass
    assert answer.selection.kept == len(focus.frames) < 40
    assert any(430 <= number <= 440 for number in numbers(focus.frames))
    assert answer.warnings == ("this took 1.8 times what one pass over all frames at full size would have",), "so small"


# D01, D04 of tests/reliability.md
def test_the_backend_gets_the_frames_displayed_at_the_sampled_times(numbered: Path) -> None:
    model = eyes(430, 440)

    ask(numbered, QUESTION, model=model, k=12, precision="exact")

    middles = [(i + 0.5) * 40.0 / 144 for i in range(144)]
    expected = [int(time * FPS + 1e-9) for time in middles]
    rows, columns = model.requests[:12], model.requests[12:24]
    assert [numbers(row.frames) for row in rows] == [expected[r * 12 : r * 12 + 12] for r in range(12)]
    assert [numbers(column.frames) for column in columns] == [expected[c::12] for c in range(12)]
    for request in model.requests:
        assert request.frames.times == pytest.approx([number / FPS for number in numbers(request.frames)], abs=1e-6)


def test_the_paper_preset_is_the_published_method(numbered: Path) -> None:
    model = eyes(430, 440)

    answer = ask(numbered, QUESTION, model=model, preset="paper")

    expected = np.round(np.linspace(0, 999, 144)).astype(int).tolist()
    assert [n for row in model.requests[:12] for n in numbers(row.frames)] == expected
    probe, focus = (request.groups[0].view for request in (model.requests[0], model.requests[-1]))
    assert probe.pixels.fit(1920, 1080) == (224, 224)
    assert (probe.packing, probe.timestamps, focus.packing, focus.timestamps) == ("pairs", "paper", "pairs", "paper")
    assert "(A) early" in model.requests[0].prompt
    assert answer.settings["preset"] == "paper" and answer.settings["selector"]["ties"] == "earliest"


def test_order_is_time_unless_importance_is_asked_for() -> None:
    def graded(request: Request) -> dict[str, float]:
        return {"A": 1.0 + max(levels(request.frames)), "B": 1.0, "C": 1.0}

    by_time, by_importance = MockModel(graded), MockModel(graded)
    ask(gray_pool(16), QUESTION, model=by_time, k=4, frames=5)
    ask(gray_pool(16), QUESTION, model=by_importance, k=4, frames=5, show="importance")

    assert levels(by_time.requests[-1].frames) == sorted(levels(by_importance.requests[-1].frames))
    assert levels(by_importance.requests[-1].frames)[0] == 15
    assert by_importance.requests[-1].units[0].time == 150.0  # the time goes with the frame


def test_a_second_model_answers_and_is_priced_apart() -> None:
    small = MockModel(lambda r: {"A": 9.0 if 5 in levels(r.frames) else 1.0, "B": 1.0, "C": 1.0}, name="small")
    large = MockModel(lambda _: {"A": 0.0, "B": 0.1, "C": 0.9}, name="large")

    answer = ask(gray_pool(16), QUESTION, model=small, answer_model=large, k=4)

    assert answer.choice == "C"
    assert (len(small.requests), len(large.requests)) == (8, 1)
    assert answer.models == (("scripted:small",), "scripted:large")
    assert answer.cost.focus == large.cost(large.requests[0])
    assert answer.cost.total == answer.cost.probe + answer.cost.focus


def test_the_baseline_is_one_pass_over_the_whole_pool_at_native_size() -> None:
    model = MockModel(lambda _: {"A": 1.0, "B": 2.0, "C": 1.0})

    everything = ask(gray_pool(16), QUESTION, model=model, k=4, selector="all")

    assert everything.selection.kept == 16
    assert everything.cost.baseline == everything.cost.focus == everything.cost.total


def test_a_collage_has_what_is_said_before_the_question() -> None:
    model = MockModel(lambda _: {"A": 1, "B": 1, "C": 1})
    said = Between((Segment(0.0, 200.0, "hello there"),))

    ask(gray_pool(16), replace(QUESTION, spoken=said), model=model, k=4, frames=5, show="collage")

    assert model.requests[-1].prompt == f"hello there\n{QUESTION.prompt}"


def test_the_collage_is_one_picture_without_times() -> None:
    model = MockModel(lambda _: {"A": 1.0, "B": 2.0, "C": 1.0})

    ask(gray_pool(16), QUESTION, model=model, k=4, frames=5, show="collage")

    focus = model.requests[-1]
    assert focus.frames.pixels.shape == (1, 2048, 2048, 3)
    assert focus.groups[0].view.timestamps == "none"
    assert focus.groups[0].view.pixels.fit(2048, 2048) == (2048, 2048)


# Two sizes.


class Passes:
    """What was read from video files: the size, and how many frames were wanted (None: the whole plan)."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read: list[tuple[tuple[int, int], int | None]] = []
        original = ChildDecoder.read

        def spy(
            decoder: ChildDecoder,
            stream: FileStream | FolderStream,
            size: tuple[int, int],
            pts_list: Sequence[int] | None = None,
            *,
            whole: bool = False,
        ) -> tuple[FrameIndex, Pixels]:
            self.read.append((size, None if pts_list is None else len(pts_list)))
            return original(decoder, stream, size, pts_list, whole=whole)

        monkeypatch.setattr(ChildDecoder, "read", spy)


SMALL, LARGE = (224, 64), (256, 64)


def test_the_pool_is_decoded_small_and_what_is_kept_once_more(numbered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passes, model = Passes(monkeypatch), eyes(430, 440)

    answer = ask(numbered, QUESTION, model=model, k=12)

    focus = model.requests[-1].frames
    assert passes.read == [(SMALL, None), (LARGE, answer.selection.kept)]
    assert {(r.frames.width, r.frames.height) for r in model.requests[:-1]} == {SMALL}
    native = sample(numbered, num_frames=144, precision="auto", size=NATIVE.rounded_to(32))
    assert focus.times == answer.selection.timestamps == tuple(native.times[i] for i in answer.selection.indices)
    assert np.array_equal(focus.pixels, native.pixels[list(answer.selection.indices)])
    assert focus.keys[0] == (native.source, focus.times[0], *LARGE)
    assert answer.pool.keys[0] == (native.source, native.times[0], *SMALL)


def test_the_paper_preset_decodes_one_pool_at_native_size(numbered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passes, model = Passes(monkeypatch), eyes(430, 440)

    ask(numbered, QUESTION, model=model, preset="paper")

    enlarged = (736, 192)  # 260×64 or so: fewer than the 128 tokens that the published chain shows at least
    assert passes.read == [(enlarged, None)]
    native = sample(numbered, num_frames=144, sampling="linspace", size=PRESETS["paper"].full.rounded_to(32))
    for row, request in enumerate(model.requests[:12]):
        assert np.array_equal(request.frames.pixels, native.pixels[12 * row : 12 * row + 12])
    assert (model.requests[-1].frames.width, model.requests[-1].frames.height) == enlarged
    assert model.requests[-1].groups[0].size(32) == enlarged, "it is not sized again"


def test_a_session_decodes_nothing_twice(numbered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = Passes(monkeypatch)
    with gp.Session(numbered, model=eyes(100, 120), k=4, **{**PUBLISHED, "frames": 3}) as session:
        first = session.ask(QUESTION)
        again = session.ask(QUESTION)

    assert passes.read == [(SMALL, None), (LARGE, 3)]
    assert first.pool.pixels is again.pool.pixels


def test_a_frame_has_the_same_bytes_in_every_request(numbered: Path) -> None:
    """D06: in a row, in a column and for the next question."""
    model = eyes(430, 440)
    session = gp.Session(numbered, model=model, **{**PUBLISHED, "k": 4})
    for text in ("First?", "Second?"):
        session.ask(gp.Question(text, ["early", "late", "never"]))

    shown: dict[tuple[Any, ...], list[bytes]] = {}
    for request in model.requests:
        for key, frame in zip(request.frames.keys, request.frames.pixels, strict=True):
            shown.setdefault(key, []).append(frame.tobytes())

    assert len(shown) >= 16 and all(len(copies) >= 2 for copies in shown.values())
    assert all(len(set(copies)) == 1 for copies in shown.values())


def test_a_second_question_decodes_only_frames_it_has_not_got(numbered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passes, chosen = Passes(monkeypatch), iter([(1, 4, 7), (2, 4, 5, 7)])

    class Fixed(gp.Selector):
        name = "fixed"
        input_size = gp.FrameSize(max_side=224, multiple=32)

        def select(self, pool: FramePool, question: gp.Question) -> Selection:
            return Selection.of("fixed", pool, next(chosen))

    model = eyes(0, 0)
    with gp.Session(numbered, model=model, selector=Fixed(), k=4, **PUBLISHED) as session:
        session.ask(QUESTION)
        second = session.ask(QUESTION)

    assert passes.read == [(SMALL, None), (LARGE, 3), (LARGE, 2)]
    shown = model.requests[-1].frames
    assert numbers(shown) == [round(time * FPS) for time in second.selection.timestamps]


def test_memory_is_bounded(numbered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passes, limits = Passes(monkeypatch), VideoLimits(memory=20 * 256 * 64 * 3)
    with gp.Session(
        numbered, model=eyes(0, 0), selector="uniform", k=4, limits=limits, **{**PUBLISHED, "frames": 12}
    ) as session:
        session.ask(QUESTION)
        small = replace(session.setup.view, pixels=gp.FrameSize(max_side=224))
        native, session.setup = session.setup, replace(session.setup, view=small)
        session.ask(QUESTION)
        assert isinstance(session._footage, Video) and session._footage.memory_used <= limits.memory
        session.setup = native
        session.ask(QUESTION)

    assert passes.read == [(LARGE, 12), (SMALL, 12), (LARGE, 12)]


@pytest.mark.parametrize(("selector", "kept"), [("uniform", 6), ("random", 6), ("all", 25)])
def test_blind_selectors_decode_only_what_they_keep(
    numbered: Path, monkeypatch: pytest.MonkeyPatch, selector: str, kept: int
) -> None:
    passes, model = Passes(monkeypatch), eyes(0, 0)
    frames: int | Literal["auto"] = "auto" if selector == "all" else kept

    answer = ask(numbered, QUESTION, model=model, selector=selector, k=5, frames=frames, precision="exact")

    assert passes.read == [(LARGE, kept)]
    exact = sample(numbered, num_frames=25, size=NATIVE.rounded_to(32))
    assert answer.pool.times == exact.times
    assert np.array_equal(model.requests[-1].frames.pixels, exact.pixels[list(answer.selection.indices)])
    assert [round(time * FPS) for time in exact.times] == numbers(answer.pool)  # decoded now that it is looked at
    missing = [(LARGE, 25 - kept)] if kept < 25 else []
    assert passes.read == [(LARGE, kept), *missing]  # this test's own pass is not in a child


def test_the_baseline_decodes_nothing(numbered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = eyes(0, 0)
    everything = ask(numbered, QUESTION, model=model, selector="all", k=5)
    passes = Passes(monkeypatch)

    some = ask(numbered, QUESTION, model=model, selector="uniform", k=5, frames=2)

    assert some.cost.baseline == everything.cost.focus
    assert passes.read == [(LARGE, 2)]


class Clock:
    """A clock that stands still unless it is moved."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr("gridprobe.concurrency.time.perf_counter", lambda: self.now)


def test_decoding_seconds_count_both_passes(numbered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original, clock = ChildDecoder.read, Clock(monkeypatch)

    def slow(decoder: ChildDecoder, *arguments: Any, **options: Any) -> tuple[FrameIndex, Pixels]:
        clock.now += 0.25
        return original(decoder, *arguments, **options)

    monkeypatch.setattr(ChildDecoder, "read", slow)
    answer = ask(numbered, QUESTION, model=eyes(0, 0), k=4)

    assert (answer.seconds.decode, answer.seconds.probe, answer.seconds.focus) == (0.5, 0.0, 0.0)


def test_a_selector_may_say_what_size_it_wants(numbered: Path) -> None:
    model = eyes(430, 440)

    ask(numbered, QUESTION, model=model, selector=GridProbe(model, small_view=View(gp.FrameSize(max_side=128))), k=3)
    square = GridProbe(model, small_view=View(gp.FrameSize(square=64)))
    ask(numbered, QUESTION, model=model, selector=UniformLike(square), k=3)

    assert {(r.frames.width, r.frames.height) for r in model.requests} == {(128, 32), (64, 64), LARGE}


@pytest.mark.parametrize("selector", ["uniform", "all", "gridprobe"])
def test_a_damaged_video_gives_the_same_frames_at_both_sizes(tmp_path: Path, selector: str) -> None:
    whole = numbered_video(tmp_path / "whole.mp4", 750, gop=25, options={"sc_threshold": "0"})
    path = patched(
        remux(whole, tmp_path / "front.mp4", movflags="faststart"), tmp_path / "d.mp4", start=0.5, length=0.1
    )
    model = eyes(0, 750)
    frames: int | Literal["auto"] = 20 if selector == "uniform" else "auto"

    answer = ask(path, QUESTION, model=model, selector=selector, k=6, frames=frames, precision="exact")

    shown = model.requests[-1].frames
    assert "damaged and replaced" in answer.warnings[0]
    assert shown.times == answer.selection.timestamps == tuple(answer.pool.times[i] for i in answer.selection.indices)
    assert numbers(shown) == [round(time * FPS) for time in shown.times]
    assert numbers(answer.pool) == [round(time * FPS) for time in answer.pool.times]


# V09 of tests/reliability.md
@pytest.mark.parametrize("frames", [1, 2, 3, 7])
def test_a_video_shorter_than_the_grid_still_answers(tmp_path: Path, frames: int) -> None:
    path = tmp_path / "short.mp4"
    numbered_video(path, frames, fps=FPS)
    model = eyes(0, 0)

    answer = ask(path, QUESTION, model=model)

    assert answer.selection.pool == frames and answer.choice == "B"
    assert len(set(answer.selection.indices)) == len(answer.selection.indices) <= frames
    assert any(f"{frames} distinct" in warning for warning in answer.warnings)
    jsonschema.validate(answer.to_dict(), SCHEMA)


# V09 of tests/reliability.md
@pytest.mark.parametrize("frames", [1, 3])
def test_qwen_reads_a_video_of_fewer_frames_than_the_grid(tmp_path: Path, tiny_model: Model, frames: int) -> None:
    path = numbered_video(tmp_path / "short.mp4", frames, fps=FPS)

    answer = ask(path, QUESTION, model=tiny_model, k=3)

    assert answer.selection.pool == frames and len(answer.selection.indices) <= frames
    assert sum(answer.posterior.shares) == pytest.approx(1)


@pytest.mark.parametrize("selector", ["gridprobe", "uniform", "random", "all", "uniform-like"])
def test_every_answer_validates_against_the_schema(numbered: Path, selector: str) -> None:
    frames: int | Literal["auto"] = 6 if selector in ("uniform", "random") else "auto"

    answer = ask(numbered, QUESTION, model=eyes(1, 500), selector=selector, k=5, frames=frames)

    plain = json.loads(json.dumps(answer.to_dict(), allow_nan=False))
    jsonschema.validate(plain, SCHEMA)
    assert plain["selection"]["selector"] == selector
    assert plain["video"]["frames"] == 1000 and plain["video"]["width"] == 256


def test_warnings_of_question_and_video_reach_the_answer(tmp_path: Path) -> None:
    path = tmp_path / "short.mp4"
    numbered_video(path, 5, fps=FPS)

    answer = ask(path, gp.Question("?", ["same", "Same"]), model=MockModel(lambda _: {"A": 1.0, "B": 1.0}))

    assert "5 distinct" in answer.warnings[0]
    assert answer.warnings[1] == "options A and B are the same text; their probabilities are not merged"


def test_anybody_can_write_a_selector() -> None:
    class Last(gp.Selector):
        name = "last"

        def select(self, pool: FramePool, question: gp.Question) -> Selection:
            return Selection.of("last", pool, (len(pool) - 1,))

    model = MockModel(lambda _: {"A": 1.0, "B": 2.0, "C": 1.0})
    answer = ask(gray_pool(9), QUESTION, model=model, selector=Last(), k=3)

    assert answer.selection.selector == "last" and levels(model.requests[0].frames) == [8]
    assert answer.settings["selector"] == {"name": "last"} and answer.models == ((), "scripted:scripted")


def test_an_object_that_is_no_selector_is_refused_with_the_way_out() -> None:
    with pytest.raises(UsageError, match=r"the selector object has no 'name'; derive it from gridprobe\.Selector"):
        ask(gray_pool(9), QUESTION, model=eyes(0, 0), selector=object())


def test_an_object_that_lacks_one_member_of_a_selector_is_refused() -> None:
    members = [name for name in vars(gp.Selector) if not name.startswith("_") and name != "view"]
    assert len(members) == 13

    with pytest.raises(UsageError, match="the selector SimpleNamespace has no 'view'"):
        ask(gray_pool(9), QUESTION, model=eyes(0, 0), selector=SimpleNamespace(**dict.fromkeys(members)))


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
        ({"frames": 0}, "frames must be auto, a whole number of at least 1 or a rule .*, got 0"),
        ({"frames": "many"}, "frames must be"),
        ({"frames": "shape:-1"}, "gamma0 must be a number of at least 0, got -1.0"),
        ({"frames": "shape:much"}, "gamma0 must be a number of at least 0, got 'much'"),
        ({"frames": "fixed"}, "the budget 'fixed' needs an argument: fixed:N"),
        ({"frames": "shaep"}, "frames must be auto, .*, got 'shaep'; did you mean 'shape'?"),
        ({"refine": 1}, "refine must be true or false, got 1"),
        ({"probs": "fresh"}, "unknown setting 'probs'; did you mean 'probes'?"),
        ({"show": "random"}, "show must be one of time, importance, collage, got 'random'"),
        ({"packing": "triples"}, "packing must be one of single, pairs"),
    ],
)
def test_impossible_arguments_are_refused_in_one_sentence(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as error:
        ask(gray_pool(4), QUESTION, model=MockModel(lambda _: {"A": 1, "B": 1, "C": 1}), **arguments)
    assert "\n" not in str(error.value)


def test_a_missing_video_is_a_video_error(tmp_path: Path) -> None:
    with pytest.raises(VideoError, match=r"nothing\.mp4"):
        ask(tmp_path / "nothing.mp4", QUESTION, model=eyes(1, 2))


def test_settings_round_trip_into_the_record() -> None:
    settings = Options.from_preset("paper", k=8, frames=4)
    recorded = settings.resolve(model=eyes(0, 0)).describe()

    assert recorded["preset"] == "paper" and recorded["sampling"]["k"] == 8
    assert recorded["selector"]["budget"] == {"name": "fixed", "frames": 4}
    assert recorded["selector"]["view"]["pixels"]["square"] == 224
    assert json.loads(json.dumps(recorded)) == recorded


# The cheap baseline, and frames of two sizes in one pass.


def test_all_small_shows_every_frame_once_at_the_size_of_the_probes(
    numbered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes, model = Passes(monkeypatch), eyes(430, 440)

    answer = ask(numbered, QUESTION, model=model, selector="all-small", k=5)

    (request,) = model.requests
    assert passes.read == [(SMALL, 25)] and (request.frames.width, request.frames.height) == SMALL
    assert answer.settings["view"]["pixels"]["max_side"] == 224 and answer.selection.kept == 25
    native = MockModel(lambda _: {"A": 1, "B": 1, "C": 1})
    assert answer.cost.baseline == ask(numbered, QUESTION, model=native, selector="all", k=5).cost.focus
    assert answer.cost.focus.flops < answer.cost.baseline.flops


def test_the_next_question_to_all_small_reuses_the_pass(numbered: Path, tiny_model: Model) -> None:
    with gp.Session(numbered, model=tiny_model, selector="all-small", k=3, **PUBLISHED) as session:
        first, second = session.ask(QUESTION), session.ask(gp.Question("And then?", ["x", "y"]))

    assert first.cost.tflops_computed == first.cost.tflops
    assert second.cost.tflops_computed < 0.7 * second.cost.tflops


def test_context_shows_all_frames_in_time_order_the_kept_ones_large(
    numbered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = Passes(monkeypatch)
    model = MockModel(lambda r: {"A": 9.0 if any(4 in g.frames.times for g in r.groups) else 1.0, "B": 1.0, "C": 1.0})

    answer = ask(numbered, QUESTION, model=model, k=4, frames=3, context="small")

    kept, others = model.requests[-1].groups
    assert passes.read == [(SMALL, None), (LARGE, 3)], "the small frames are those of the probes"
    assert kept.frames.times == answer.selection.timestamps and len(others.frames) == 13
    assert (kept.frames.width, others.frames.width) == (LARGE[0], SMALL[0])
    times = [unit.time for unit in model.requests[-1].units]
    assert times == sorted((*kept.frames.times, *others.frames.times)) and len(set(times)) == 16
    assert answer.settings["context"]["pixels"]["max_side"] == 224 and answer.frames.times == kept.frames.times


def test_a_selection_of_everything_has_no_context() -> None:
    model = MockModel(lambda _: {"A": 1, "B": 1, "C": 1})
    ask(gray_pool(9), QUESTION, model=model, k=3, context="small", selector="all")

    assert len(model.requests[-1].groups) == 1


@pytest.mark.parametrize("options", [{"show": "collage"}, {"show": "importance"}, {"preset": "paper"}])
def test_context_refuses_what_would_break_the_order_of_time(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="context=small"):
        ask(gray_pool(9), QUESTION, model=eyes_anywhere(), context="small", **options)


# A record cannot say anything else than what was done.


def test_open_footage_that_was_sampled_otherwise_is_refused(numbered: Path) -> None:
    model = eyes(0, 0)
    footage = Options(k=12).resolve(model=model).open(numbered)

    with pytest.raises(UsageError, match="the open video was sampled with num_frames=144, but the settings say 16"):
        gp.Session(footage, model=model, k=4, **PUBLISHED)
    with pytest.raises(UsageError, match="sampled with sampling='middle', but the settings say 'linspace'"):
        gp.Session(footage, model=model, preset="paper", precision="auto")


def test_the_callers_frames_are_recorded_as_not_sampled() -> None:
    answer = ask(gray_pool(9), QUESTION, model=eyes_anywhere(), k=12)

    assert answer.settings["sampling"] is None and answer.to_dict()["selection"]["k"] == 3


def test_the_record_has_the_budget_of_the_selector_that_chose() -> None:
    model = eyes_anywhere()
    answer = ask(gray_pool(9), QUESTION, model=model, selector=GridProbe(model, budget=Fixed(3)))

    assert answer.settings["selector"]["budget"] == {"name": "fixed", "frames": 3}


def test_a_selector_with_a_model_of_its_own_keeps_it() -> None:
    own, answerer = MockModel(lambda _: {"A": 1, "B": 1, "C": 1}, name="own"), eyes_anywhere()
    answer = ask(gray_pool(9), QUESTION, model=answerer, selector=GridProbe(own))

    assert answer.models == (("scripted:own",), "scripted:scripted") and len(answerer.requests) == 1


def test_work_can_be_cancelled_from_another_thread(numbered: Path) -> None:
    stop, seen = Event(), []

    def listener(event: ProgressEvent) -> None:
        seen.append(event)
        if event.stage == "model":
            stop.set()

    with listening(listener, cancel=stop), pytest.raises(gp.Cancelled, match="cancelled while working on model"):
        ask(numbered, QUESTION, model=eyes(0, 0), k=4)
    assert [event.stage for event in seen].count("model") == 1


def eyes_anywhere() -> MockModel:
    return MockModel(lambda _: {"A": 1, "B": 2, "C": 1})


def test_the_tiny_model_runs_the_whole_chain(numbered: Path, tiny_model: Model) -> None:
    answer = ask(numbered, QUESTION, model=tiny_model, k=3)

    jsonschema.validate(answer.to_dict(), SCHEMA)
    assert 1 <= answer.selection.kept <= 9
    assert answer.cost.total.calls == 7
