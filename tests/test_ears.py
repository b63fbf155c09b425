"""What is said in a video: files next to it, text tracks inside it, and what the question makes of the lines."""

import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import gridprobe as gp
from gridprobe.cli import cli
from gridprobe.errors import UsageError
from gridprobe.models import Request
from gridprobe.options import Options
from gridprobe.report.terminal import short_view
from gridprobe.video import Video, VideoLimits, decode
from gridprobe.video.sampling import DecodeIn
from gridprobe.video.subtitles import (
    Ears,
    Segment,
    Subtitles,
    Track,
    interleave,
    language_code,
    matching_frames,
    most_telling,
    tokens_of,
)
from speech import with_tracks
from videos import numbered_video

LINES = [(0.4, 0.9, "Good morning"), (1.0, 1.5, "The red car turns left"), (3.0, 3.5, "Good night")]
SRT = "1\n00:00:00,400 --> 00:00:00,900\n{}\n"
QUESTION = gp.Question("Where does the car turn?", ["left", "right"])


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return numbered_video(tmp_path_factory.mktemp("ears") / "plain.mp4", 100)


@pytest.fixture
def talk(plain: Path, tmp_path: Path) -> Path:
    (tmp_path / "talk.mp4").write_bytes(plain.read_bytes())
    return tmp_path / "talk.mp4"


def hear(
    path: Path, language: str = "", subtitles: str | Path = "auto", *, decode_in: DecodeIn = "process"
) -> Subtitles:
    return Ears(subtitles, language).hear(Video(path, num_frames=4, decode_in=decode_in))


def beside(talk: Path, name: str, text: str | bytes = "Hello") -> Path:
    path = talk.with_name(name)
    path.write_bytes(text if isinstance(text, bytes) else SRT.format(text).encode())
    return path


def listener(said: list[Sequence[str]]) -> gp.MockModel:
    """A model that notes the texts between the frames, and is never sure."""

    def answer(request: Request) -> dict[str, float]:
        said.append(request.between)
        return {"A": 0.6, "B": 0.4}

    return gp.MockModel(answer)


# Files next to the video.


@pytest.mark.parametrize("name", ["talk.srt", "talk.SRT", "talk.en.vtt", "talk.pt-BR.srt", "talk.en.sdh.srt"])
def test_a_file_next_to_the_video_is_found(name: str, talk: Path) -> None:
    beside(talk, name)

    heard = hear(talk)

    assert (heard.source, heard.segments, heard.notes) == (name, (Segment(0.4, 0.9, "Hello"),), ())


@pytest.mark.parametrize("name", ["talk2.srt", "talk.part2.srt", "talk.json", "other.srt", "talk.srt.bak", "talk"])
def test_a_file_of_another_name_is_not_its_own(name: str, talk: Path) -> None:
    beside(talk, name)

    assert hear(talk) == Subtitles(())


@pytest.mark.parametrize(
    ("language", "source"),
    [("", "talk.srt (1 of 4)"), ("en", "talk.eng.srt (1 of 4)"), ("de-AT", "talk.de.srt (1 of 4)")],
)
def test_the_language_chooses(language: str, source: str, talk: Path) -> None:
    for name in ("talk.eng.srt", "talk.de.srt", "talk.srt", "talk.de.forced.srt"):
        beside(talk, name, name)

    heard = hear(talk, language)

    assert heard.source == source and heard.segments[0].text == source.split()[0]


def test_without_that_language_a_file_that_names_none_is_taken_and_the_note_says_what_there_is(talk: Path) -> None:
    beside(talk, "talk.en.srt")
    assert hear(talk, "fr").segments == ()

    beside(talk, "talk.srt", "Bonjour")
    heard = hear(talk, "fr")

    assert heard.segments[0].text == "Bonjour"
    assert heard.notes == ("no subtitles say that they are in 'fr'; there are: not named (talk.srt), en (talk.en.srt)",)


@pytest.mark.parametrize("code", ["english", "e", "12", "en_", "en/../x"])
def test_what_is_no_language_is_refused(code: str) -> None:
    with pytest.raises(UsageError, match="a language is a code such as en, eng or pt-BR, got"):
        Ears("auto", code)


@pytest.mark.parametrize(
    ("code", "two"), [("eng", "en"), ("GER", "de"), ("zh-Hans", "zh"), ("und", ""), ("nds", "nds")]
)
def test_codes_of_two_and_of_three_letters_are_the_same(code: str, two: str) -> None:
    assert language_code(code) == two


# Q12 of tests/reliability.md
@pytest.mark.parametrize("kind", ["fifo", "huge", "binary", "empty", "folder", "unreadable times"])
def test_a_hostile_file_next_to_the_video_is_left_out_with_a_note(kind: str, talk: Path) -> None:
    path = talk.with_name("talk.srt")
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "huge":
        with path.open("wb") as file:
            file.truncate(17 << 20)
    elif kind == "folder":
        path.mkdir()
    else:
        path.write_bytes({"binary": bytes(range(256)) * 99, "empty": b"", "unreadable times": b"x --> y\nz"}[kind])
    beside(talk, "talk.en.srt", "the next one")

    heard = hear(talk)

    assert [line.text for line in heard.segments] == ["the next one"]
    assert [note.startswith("talk.srt was not used: ") for note in heard.notes] == [kind != "empty"] * (kind != "empty")


def test_a_link_out_of_the_folder_is_read_only_where_the_user_names_it(talk: Path, tmp_path: Path) -> None:
    secret = tmp_path / "elsewhere" / "secret.srt"
    secret.parent.mkdir()
    secret.write_text(SRT.format("secret"))
    link = talk.with_name("talk.srt")
    link.symlink_to(secret)

    found, named = hear(talk), hear(talk, subtitles=link)

    assert found.segments == ()
    assert found.notes == ("talk.srt was not read: it is a link to another folder; name it with --subtitles",)
    assert named.segments[0].text == "secret"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp1252"])
def test_other_encodings_are_read(encoding: str, talk: Path) -> None:
    beside(talk, "talk.srt", SRT.format("Grüße, ein Café").encode(encoding))

    heard = hear(talk)

    assert heard.segments[0].text == "Grüße, ein Café"
    assert len(heard.notes) == (encoding in ("utf-16-le", "utf-16-be", "cp1252"))


# Text tracks inside the video.


@pytest.mark.parametrize("decode_in", ["process", "child"])
@pytest.mark.parametrize(
    ("suffix", "codec"), [("mp4", "mov_text"), ("mkv", "subrip"), ("mkv", "ass"), ("mkv", "webvtt")]
)
def test_a_text_track_is_read(suffix: str, codec: str, decode_in: DecodeIn, tmp_path: Path) -> None:
    video = with_tracks(tmp_path / f"talk.{suffix}", [(codec, "eng", LINES)])

    heard = hear(video, decode_in=decode_in)

    assert [(round(line.start, 2), round(line.end, 2), line.text) for line in heard.segments] == LINES
    assert "en)" in heard.source and heard.notes == ()


def test_markup_of_tracks_is_not_text(tmp_path: Path) -> None:
    lines = [(0.5, 1.0, r"{\an8\i1}up\Nhere, now"), (1.0, 1.5, r"{\p1}m 0 0 l 10 10"), (2.0, 2.5, "a, b")]
    video = with_tracks(tmp_path / "talk.mkv", [("ass", "eng", lines)])

    assert [line.text for line in hear(video).segments] == ["up here, now", "a, b"]


def test_the_language_chooses_a_track_and_a_file_comes_before_tracks(tmp_path: Path) -> None:
    video = with_tracks(
        tmp_path / "talk.mkv", [("subrip", "ger", [(0.5, 1.0, "Hallo")]), ("subrip", "eng", [(0.5, 1.0, "Hello")])]
    )

    assert [hear(video, code).segments[0].text for code in ("en", "de")] == ["Hello", "Hallo"]
    assert hear(video, "en").source.endswith("(1 of 2)")

    beside(video, "talk.srt", "from the file")
    assert hear(video).segments[0].text == "from the file"


def test_times_of_tracks_and_files_count_from_the_first_frame(tmp_path: Path) -> None:
    video = with_tracks(tmp_path / "late.mp4", [("mov_text", "eng", [(1.0, 2.0, "from the track")])], late=0.6)

    inside = hear(video).segments[0]
    beside(video, "late.srt", "from the file")
    (outside,) = hear(video).segments

    assert (inside.text, round(inside.start, 2)) == ("from the track", 0.4)
    assert (outside.text, round(outside.start, 2), round(outside.end, 2)) == ("from the file", -0.2, 0.3)


def test_pictures_are_no_text_and_a_track_that_cannot_be_read_is_named(
    talk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Video, "tracks", lambda self: [Track("stream 1", codec="dvd_subtitle", number=1)])
    assert hear(talk).notes == ("its subtitles are pictures (dvd_subtitle), which are not read",)

    monkeypatch.setattr(Video, "tracks", lambda self: [Track("stream 7 (subrip)", codec="subrip", number=7)])
    (note,) = hear(talk).notes
    assert note.startswith("stream 7 (subrip) was not used: ") and "stream 7 cannot be read" in note


@pytest.mark.parametrize(("name", "limit"), [("MAX_LINES", 2), ("MAX_BYTES", 30)])
def test_a_track_with_more_text_than_subtitles_is_not_read_to_its_end(
    name: str, limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    video = with_tracks(tmp_path / "talk.mkv", [("subrip", "eng", LINES)])
    monkeypatch.setattr(decode, name, limit)

    heard = hear(video)

    assert heard.segments == () and "holds more text than subtitles do" in heard.notes[0]


def test_a_track_is_read_once_and_then_comes_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRIDPROBE_CACHE", str(tmp_path / "cache"))
    video = with_tracks(tmp_path / "talk.mkv", [("subrip", "eng", LINES)])
    plan = Options(k=2).resolve(model=listener([]))
    first = Ears("auto").hear(plan.open(video))
    monkeypatch.setattr("gridprobe.video.decoder_pool.ChildDecoder.text", None)
    monkeypatch.setattr("gridprobe.video.decoder_pool.ChildDecoder.tracks", None)

    assert Ears("auto").hear(plan.open(video)) == first and len(first.segments) == 3


# What a question makes of them.


def test_the_lines_stand_between_the_frames_and_the_answer_says_which(talk: Path) -> None:
    beside(talk, "talk.en.srt", "a car turns left")
    said: list[Sequence[str]] = []

    answer = gp.ask(talk, QUESTION, model=listener(said), k=2, limits=VideoLimits(cache=0))

    assert all([line for line in between if line] == ["a car turns left"] for between in said if between) and said[0]
    assert answer.to_dict()["settings"]["subtitles"] == {"source": "talk.en.srt", "lines": 1, "shown": 1}
    view = short_view(answer, width=80, color=False, unicode=True).plain
    assert "with the subtitles of talk.en.srt, 1 line" in view


@pytest.mark.parametrize(
    "settings",
    [{"subtitles": "none"}, {"preset": "paper"}, {"preset": "authors"}, {"subtitle_language": "fr"}],
    ids=str,
)
def test_nobody_listens_where_that_is_declined_or_published(settings: dict[str, Any], talk: Path) -> None:
    beside(talk, "talk.en.srt")
    said: list[Sequence[str]] = []

    answer = gp.ask(talk, QUESTION, model=listener(said), k=2, limits=VideoLimits(cache=0), **settings)

    assert not any(said) and "subtitles" not in answer.settings


def test_a_ready_made_plan_as_of_a_run_or_a_server_reads_no_neighbours_of_a_video(talk: Path) -> None:
    beside(talk, "talk.srt")
    said: list[Sequence[str]] = []
    plan = Options(k=2, limits=VideoLimits(cache=0)).resolve(model=listener(said))

    with gp.Session(talk, setup=plan) as session:
        session.ask(QUESTION)

    assert said and not any(said)


def test_published_presets_show_a_named_file_as_their_block_of_text(talk: Path) -> None:
    path = beside(talk, "mine.srt", "spoken words")
    prompts: list[str] = []

    def answer(request: Request) -> dict[str, float]:
        prompts.append(request.prompt)
        return {"A": 0.6, "B": 0.4}

    gp.ask(talk, QUESTION, model=gp.MockModel(answer), preset="paper", k=2, subtitles=path)

    assert prompts and all("spoken words" in prompt for prompt in prompts)


def test_a_question_with_subtitles_of_its_own_keeps_them(talk: Path) -> None:
    beside(talk, "talk.srt")
    said: list[Sequence[str]] = []

    gp.ask(talk, gp.Question("Which?", ["a", "b"], subtitles="mine"), model=listener(said), k=2)

    assert not any(said)


def test_every_line_stands_once_also_if_no_frame_is_shown_while_it_is_spoken() -> None:
    lines = [Segment(0.0, 1.0, "a"), Segment(4.0, 5.0, "b"), Segment(5.0, 6.0, "c"), Segment(90.0, 91.0, "d")]

    assert interleave([2.0, 10.0], lines, rule="every") == ("a", "b\nc", "d")
    assert interleave([2.0, 10.0], lines) == ("", "", "")


def transcript(count: int, **special: str) -> list[Segment]:
    words = ("the weather is fine today", "we go on with the show", "let us see what comes")
    texts = [special.get(f"at{i}", words[i % 3]) for i in range(count)]
    return [Segment(10.0 * i, 10.0 * i + 5, text) for i, text in enumerate(texts)]


TIMES = [10.0 * i for i in range(100)]


def test_a_line_with_the_questions_rare_words_makes_its_frames_candidates() -> None:
    lines = transcript(100, at40="the lighthouse was built by sailors", at60="a sailor shows the weather")

    scores = matching_frames("Who built the lighthouse? the sailors the king", lines, TIMES)

    assert [place for place, score in enumerate(scores) if score] == [40] and scores[40] == 1.0


@pytest.mark.parametrize(
    "question",
    ["What is shown in the video?", "How is the weather today?", "Which submarine surfaces?", ""],
    ids=["only common words", "words that are everywhere", "words that are never said", "nothing"],
)
def test_words_that_do_not_say_where_raise_nothing(question: str) -> None:
    assert not any(matching_frames(question, transcript(100), TIMES))
    assert not any(matching_frames(question, [], TIMES)) and matching_frames(question, transcript(3), []) == ()


def test_forms_of_a_word_and_scripts_without_spaces_match() -> None:
    lines = transcript(100, at7="She arrived with two rings", at9="灯台は海の近くに建てられました")

    assert matching_frames("When does the ring arrive?", lines, TIMES)[7] == 1.0
    assert matching_frames("灯台はどこですか", lines, TIMES)[9] == 1.0


def test_matching_frames_are_at_the_top_of_the_map_and_the_answer_says_so(talk: Path) -> None:
    """The model looks at the last frame; the speaker names what is asked at the first."""
    beside(talk, "talk.srt", "the lighthouse")

    def answer(request: Request) -> dict[str, float]:
        late = max(time for group in request.groups for time in group.frames.times) > 3.5
        return {"A": 0.8, "B": 0.2} if late else {"A": 0.55, "B": 0.45}

    def kept(words: str) -> gp.Answer:
        question = gp.Question(words, ["left", "right"])
        return gp.ask(talk, question, model=gp.MockModel(answer), k=4, frames=2, effort="full", probes="attention")

    silent, heard = kept("Which boat?"), kept("Which lighthouse?")

    assert silent.selection.timestamps[0] > 1.5 and heard.selection.timestamps[0] < 1.0
    assert heard.selection.timestamps[-1] > 3.0
    assert [note for note in heard.selection.notes if "words of the question are said" in note]
    assert not [note for note in silent.selection.notes if "words of the question are said" in note]


def test_a_long_transcript_is_cut_to_what_matches_and_an_even_sample_and_says_so(talk: Path) -> None:
    lines = [Segment(i / 1000, (i + 1) / 1000, f"line number {i} of a long talk that goes on") for i in range(4000)]
    lines[3333] = Segment(3.333, 3.334, "the lighthouse stands here")

    chosen = most_telling(lines, "Where is the lighthouse?", tokens=500)

    assert sum(tokens_of(line.text) for line in chosen) <= 500 < sum(tokens_of(line.text) for line in lines)
    assert lines[3333] in chosen and list(chosen) == sorted(chosen, key=lambda line: line.start)
    gaps = [b.start - a.start for a, b in pairwise(chosen) if lines[3333] not in (a, b)]
    assert max(gaps) < 3 * min(gaps) and most_telling(lines[:5], "?") == tuple(lines[:5])
    text = "\n".join(
        f"00:00:0{i / 1000:.3f} --> 00:00:0{(i + 1) / 1000:.3f}\n{line.text}\n" for i, line in enumerate(lines)
    )
    talk.with_name("talk.srt").write_text(text)
    answer = gp.ask(talk, "Where is the lighthouse?", options=["a", "b"], model=listener([]), k=2)
    (note,) = [warning for warning in answer.warnings if "lines of subtitles are shown" in warning]
    assert f"{answer.settings['subtitles']['shown']} of 4000 lines" in note and "8192 tokens at most" in note


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), "auto"),
        (("--subtitles", "none"), "none"),
        (("--preset", "paper"), "none"),
        (("--preset", "paper", "--subtitles", "auto"), "auto"),
    ],
    ids=str,
)
def test_the_command_line_listens_by_itself_but_not_for_a_published_method(
    options: tuple[str, ...], expected: str, talk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Any] = []

    def noted(videos: object, questions: object, **settings: Any) -> list[Any]:
        heard.append(settings)
        return []

    monkeypatch.setattr("gridprobe.cli.ask.ask_many", noted)
    monkeypatch.setattr("gridprobe.options.Plan.loaded", lambda self: self)
    monkeypatch.setattr("gridprobe.cli.ask.introduce", lambda *models: None)
    more = ("--subtitle-language", "en", "--transcribe", "small")

    done = CliRunner().invoke(cli, ["ask", str(talk), "Who?", "-m", "x/y", *options, *more])

    assert done.exit_code == 0, done.output
    assert [heard[0][name] for name in ("subtitles", "subtitle_language", "transcribe")] == [expected, "en", "small"]
