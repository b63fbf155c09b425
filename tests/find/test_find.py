"""From a query to moments: all of them, with their borders, or plainly none."""

import importlib
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gridprobe import MockModel
from gridprobe.errors import UsageError, VideoError
from gridprobe_find.build import build, meta_of
from gridprobe_find.find import FindOptions, FindResult, FindWork, LibraryMoment, find_moments, joined, says
from gridprobe_find.give import as_edl, as_lines, as_otio, as_page, as_parquet, check_file_name, find_dict, save_clips
from gridprobe_find.index import LibraryIndex, open_index
from gridprobe_find.propose import Proposal
from gridprobe_find.verify import question_about, weighed
from library_kit import ColourEncoder, painted, plan_of, sees_red

ENCODER = ColourEncoder()


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Red twice in the first one, a look-alike in the second, words in the third."""
    folder = tmp_path_factory.mktemp("films")
    painted(folder / "a.mp4", [("green", 9), ("red", 7.5), ("green", 12), ("red", 4), ("green", 5)])
    painted(folder / "b.mp4", [("blue", 10), ("pink", 6), ("blue", 8)])
    painted(folder / "c.mp4", [("blue", 14)])
    (folder / "c.srt").write_text("1\n00:00:04,000 --> 00:00:06,000\nThe red lorry leaves\n")
    return folder


@pytest.fixture(scope="module")
def index(films: Path, tmp_path_factory: pytest.TempPathFactory) -> LibraryIndex:
    made = open_index(tmp_path_factory.mktemp("index"), meta_of("colours", ENCODER))
    build(made, sorted(films.glob("*.mp4")), ENCODER)
    return made


def search(index: LibraryIndex, query: str, model: MockModel | None = None, **options: Any) -> FindResult:
    plan = plan_of(model or MockModel(sees_red))
    return find_moments(index, query, encoder=ENCODER, plan=plan, options=FindOptions(**options))


def places(result: FindResult) -> list[tuple[str, float, float]]:
    return sorted((Path(each.video).name, each.start, each.end) for each in result.moments)


def test_all_moments_are_found_with_borders_and_look_alikes_are_not(index: LibraryIndex) -> None:
    result = search(index, "something red")

    assert [name for name, _, _ in places(result)] == ["a.mp4", "a.mp4"]
    ends = [second for _, *moment in places(result) for second in moment]
    assert ends == pytest.approx([9.0, 16.5, 28.5, 32.5], abs=0.51)
    assert [each.probability for each in result.moments] == [pytest.approx(0.9)] * 2
    assert (result.work.videos, result.work.checked) == (3, result.work.model.calls)
    assert result.work.encoded > 0


def test_similarity_alone_takes_the_look_alike(index: LibraryIndex) -> None:
    alone = find_moments(index, "red", encoder=ENCODER, plan=None, options=FindOptions(verify=False))

    assert {name for name, _, _ in places(alone)} >= {"a.mp4", "b.mp4"}
    assert {each.probability for each in alone.moments} == {None}


def test_what_the_model_denies_is_not_found(index: LibraryIndex) -> None:
    denying = MockModel(lambda request: {"A": 0.2, "B": 0.8})

    result = search(index, "something red", denying)

    assert (result.not_found, result.work.checked) == (True, result.work.segments)
    unsure = MockModel(lambda request: {"A": 0.6, "B": 0.4} if sees_red(request)["A"] > 0.5 else {"A": 0, "B": 1})
    assert search(index, "something red", unsure, threshold=0.61).not_found
    assert search(index, "something red", MockModel(sees_red), threshold=0.61).moments


@pytest.mark.parametrize(
    ("similarities", "chances", "kept"),
    [
        ([0.3, 0.2, 0.1, -0.1], [0.0, 0.0, 0.01, 0.77], []),
        ([0.31, 0.30, 0.30, 0.1], [1.0, 0.4, 0.99, 0.01], [0, 1, 2]),
        ([0.3, 0.29, 0.28, 0.27], [0.05, 0.95, 0.05, 0.95], [1, 3]),
        ([0.3], [0.9], [0]),
        ([0.3, 0.3], [0.45, 0.7], [0, 1]),
        ([0.0, 0.0], [0.9, 0.1], [0]),
        ([], [], []),
    ],
    ids=["a yes below denials", "lukewarm among yes", "looks alike", "one", "as similar", "only said", "none"],
)
def test_both_the_model_and_the_similarity_count(
    similarities: list[float], chances: list[float], kept: list[int]
) -> None:
    segments = [Proposal(str(place), 0, 1, similarity) for place, similarity in enumerate(similarities)]

    for order in (slice(None), slice(None, None, -1)):
        both = weighed(list(zip(segments, chances, strict=True))[order])
        assert sorted(int(each.key) for each, chance in both if chance >= 0.5) == kept
    assert all(0 <= chance <= 1 for _, chance in both)
    assert [chance for _, chance in both] == pytest.approx(chances) if len(both) == 1 else True


def test_what_is_said_needs_no_model(index: LibraryIndex) -> None:
    result = search(index, "red lorry", MockModel(lambda request: {"A": 0.0, "B": 1.0}))

    assert places(result) == [("c.mp4", 4.0, 6.0)]
    assert (result.moments[0].text, result.moments[0].probability) == ("The red lorry leaves", None)
    assert says("A wagon, RED", "a red wagon") is False and says("a RED wagon", "red a wagon")


def test_the_model_is_asked_about_small_frames_of_each_segment(index: LibraryIndex) -> None:
    model = MockModel(sees_red)

    search(index, "a red wall", model, frames=4)

    assert {len(request.frames) for request in model.requests} == {4}
    assert all("Is there a red wall in the video?" in request.prompt for request in model.requests)
    assert question_about("Does it rain?").text == "Does it rain?"
    with pytest.raises(UsageError, match="where the query goes"):
        question_about("rain", asked="Is it there?")


def test_what_is_left_unchecked_is_said(index: LibraryIndex) -> None:
    result = search(index, "something red", checks=1)

    assert result.work.checked == 1
    assert any(re.search(r"less similar segments were not checked; --checks \d", each) for each in result.problems)


def test_a_video_that_is_gone_since_is_a_problem_and_not_an_end(
    index: LibraryIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gridprobe_find.build import sampled

    def gone(path: str, *arguments: Any, **options: Any) -> Any:
        if path.endswith("a.mp4"):
            raise VideoError(f"{path}: no such file")
        return sampled(path, *arguments, **options)

    monkeypatch.setattr("gridprobe_find.verify.sampled", gone)
    result = search(index, "something red")

    assert result.not_found
    assert any("a.mp4: no such file" in each for each in result.problems)


@pytest.mark.parametrize("query", ["красный", "東京", "x" * 5000, '"; DROP TABLE videos; --', "%s {query} {{ 7 }}"])
def test_any_text_may_be_looked_for(index: LibraryIndex, query: str) -> None:
    assert search(index, query, MockModel(lambda request: {"A": 0.0, "B": 1.0})).not_found


def test_an_empty_query_and_impossible_limits_are_refused(index: LibraryIndex) -> None:
    with pytest.raises(UsageError, match="query is empty"):
        search(index, "  ")
    with pytest.raises(UsageError, match="threshold must be from 0 to 1, got 2"):
        FindOptions(threshold=2)
    with pytest.raises(UsageError, match="no model was given"):
        find_moments(index, "red", encoder=ENCODER, plan=None)


def moment(start: float, end: float, **values: Any) -> LibraryMoment:
    return LibraryMoment(
        **{"video": "/v/a.mp4", "start": start, "end": end, "probability": 0.9, "similarity": 0.3, **values}
    )


def test_moments_that_touch_after_refining_are_one() -> None:
    parts = [moment(10, 20), moment(50, 60, text="hello"), moment(19, 30, text="a"), moment(10, 20, video="/v/b.mp4")]

    together = joined(parts)

    assert [(each.video, each.start, each.end, each.text) for each in together] == [
        *(("/v/a.mp4", 10, 30, "a"), ("/v/a.mp4", 50, 60, "hello"), ("/v/b.mp4", 10, 20, ""))
    ]


HOSTILE = "</style><script>alert(1)</script>\x1b[31m\n* FROM CLIP NAME: other"


@pytest.fixture
def result(films: Path) -> FindResult:
    video = str(films / "a.mp4")
    moments = (moment(9, 16.5, video=video, fps=30.0), moment(3725.5, 3726, video=video, fps=30.0, text=HOSTILE))
    return FindResult(HOSTILE, moments, FindWork(videos=3), (HOSTILE,))


def test_every_form_holds_the_moments(result: FindResult, films: Path, tmp_path: Path) -> None:
    import opentimelineio as otio
    import pyarrow.parquet as pq

    (tmp_path / "m.parquet").write_bytes(as_parquet(result))
    timeline = otio.adapters.read_from_string(as_otio(result).decode(), "otio_json")
    lines = [json.loads(line) for line in as_lines(result).splitlines()]
    table = pq.read_table(tmp_path / "m.parquet").to_pylist()

    assert [row["start"] for row in lines] == [row["start"] for row in table] == [9, 3725.5]
    assert [clip.source_range.duration.to_seconds() for clip in timeline.find_clips()] == [7.5, 0.5]
    assert find_dict(result)["found"] is True
    json.dumps(find_dict(result), allow_nan=False)


def test_the_edit_list_has_timecodes_and_no_line_of_others(result: FindResult) -> None:
    lines = as_edl(result).decode().splitlines()

    assert lines[3].split()[-4:] == ["00:00:09:00", "00:00:16:15", "00:00:00:00", "00:00:07:15"]
    assert lines[6].split()[-4:] == ["01:02:05:15", "01:02:06:00", "00:00:07:15", "00:00:08:00"]
    assert [line for line in lines if line.startswith("* FROM")] == ["* FROM CLIP NAME: a.mp4"] * 2
    slow = FindResult("q", (moment(1, 2, fps=4.0),), FindWork())
    assert "00:00:01:00 00:00:02:00" in as_edl(slow).decode()


def test_the_page_plays_the_moments_and_escapes_what_others_wrote(result: FindResult, films: Path) -> None:
    page = as_page(result, films).decode()

    assert 'src="a.mp4#t=9.00,16.50"' in page
    assert "<script>" not in page and "&lt;script&gt;" in page
    assert page.count('poster="data:image/jpeg') == 2
    assert "default-src 'none'" in page


def test_clips_are_cut_and_a_lost_video_is_said(result: FindResult, tmp_path: Path) -> None:
    lost = FindResult("q", (result.moments[0], moment(1, 2, video="/nowhere/x.mp4")), FindWork())

    problems = save_clips(lost, tmp_path / "clips")

    assert [file.name for file in (tmp_path / "clips").iterdir()] == ["001-a-9.0-16.5.mp4"]
    assert len(problems) == 1 and "/nowhere/x.mp4" in problems[0]
    with pytest.raises(UsageError, match=r"must end in \.jsonl, \.parquet"):
        check_file_name(tmp_path / "moments.doc")


command = importlib.import_module("gridprobe_find.command")


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch, films: Path, tmp_path: Path) -> Iterator[Any]:
    """The commands with the encoder of colours, and a model that sees red."""
    from gridprobe.models import LazyModel

    monkeypatch.setattr(command, "load_encoder", lambda name, **_: ENCODER)
    monkeypatch.setattr(LazyModel, "load", lambda self, **_: MockModel(sees_red))
    shutil.copytree(films, tmp_path / "films")

    def run(verb: str, *words: object) -> Result:
        values = [*map(str, words), "--index", str(tmp_path / "index")]
        values += ["--model", "mock"] if verb == "find" else []
        return CliRunner(env={"COLUMNS": "100"}).invoke(getattr(command, verb), values, catch_exceptions=True)

    yield run


def test_find_indexes_what_is_new_and_prints_moments(runner: Any, tmp_path: Path) -> None:
    first = runner("find", "something red", tmp_path / "films", "--save", tmp_path / "m.html")
    second = runner("find", "something red", "--json")
    stats = runner("index", "--stats")

    assert first.exit_code == 0, first.output
    assert "2 moments in 1 video" in first.stdout and "90% yes" in first.stdout
    assert "3 videos indexed" in first.stderr and "model call" in first.stderr
    lines = [json.loads(line) for line in second.stdout.splitlines()]
    assert [line["type"] for line in lines] == ["moment", "moment", "summary"]
    assert lines[-1]["work"]["videos"] == 3 and (tmp_path / "m.html").is_file()
    assert "3 videos" in stats.stdout and "encoder:colours" in stats.stdout


def test_watching_indexes_what_comes_until_it_is_interrupted(
    runner: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            raise KeyboardInterrupt
        painted(tmp_path / "films" / "late.mp4", [("red", 4)])

    monkeypatch.setattr(command, "sleep", wait)
    result = runner("index", tmp_path / "films", "--watch", 7)

    assert waits == [7, 7]
    assert "3 videos indexed" in result.stderr and "1 videos indexed" in result.stderr


def test_a_large_library_is_searched_by_its_index_first(index: LibraryIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gridprobe_find.find.EXACT_NUMBERS", 0)
    monkeypatch.setattr("gridprobe_find.find.MOST_VIDEOS", 1)

    result = search(index, "something red")

    assert [name for name, _, _ in places(result)] == ["a.mp4", "a.mp4"]
    assert result.work.vectors < result.work.frames


@pytest.mark.release
def test_the_library_of_the_demo_is_searched_with_the_models_of_the_package(tmp_path: Path) -> None:
    from gridprobe.options import Options
    from gridprobe.selectors.base import load_encoder
    from gridprobe_world.demo import write_library

    things = write_library(tmp_path, 3)
    encoder = load_encoder("embedded", cache=False)
    library = open_index(tmp_path / "index", meta_of("embedded", encoder))
    build(library, sorted(tmp_path.glob("*.mp4")), encoder)
    plan = Options.from_preset("gridworld", effort="quick").resolve(model="embedded").loaded()
    often = max(things, key=lambda name: things[name])
    several = find_moments(library, f"a {often}", encoder=encoder, plan=plan)
    shape = often.split()[1]
    absent = next(f"a {colour} {shape}" for colour in ("white", "green", "cyan") if f"{colour} {shape}" not in things)

    assert len(several.moments) == things[often] > 1
    assert find_moments(library, absent, encoder=encoder, plan=plan).not_found
    assert [file for file in tmp_path.iterdir() if file.name.startswith(".")] == []


def test_not_found_is_an_answer(runner: Any, tmp_path: Path) -> None:
    runner("index", tmp_path / "films")

    result = runner("find", "something pink", "--threshold", 0.95, "-q")

    assert (result.exit_code, result.stdout.strip()) == (0, "not found: nothing in 3 videos shows or says it")


def test_an_empty_folder_and_a_missing_index_are_a_sentence(runner: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    missing = runner("find", "red")
    empty = runner("find", "red", tmp_path / "empty")
    nothing = runner("index")

    for outcome, words in (
        (missing, "there is no index"),
        (empty, "there is no video to search"),
        (nothing, "name videos or folders"),
    ):
        assert isinstance(outcome.exception, UsageError) and words in str(outcome.exception)
    assert "there is no video in" in empty.stderr
