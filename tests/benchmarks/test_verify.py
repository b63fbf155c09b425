"""eval --check: what is missing or broken, told before a long run."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from benchmark_files import lvb_row, touch, v2_group, write_json, write_parquet
from gridprobe.cli import cli
from gridprobe_eval.benchmarks.verify import RELEASES, _row_count, released_rows
from videos import numbered_video


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["eval", *map(str, arguments), "--check"])


def found(*arguments: object) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(run(*arguments, "--json").stdout)
    return result


def kinds(report: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each["kind"], Path(each["where"]).name) for each in report["findings"]]


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("clip") / "clip.mp4"
    return numbered_video(path, 100, container_options={"movflags": "faststart"}).read_bytes()


@pytest.fixture
def own(tmp_path: Path, clip: bytes) -> Path:
    """A user's own benchmark in which all is well."""
    (tmp_path / "a.mp4").write_bytes(clip)
    (tmp_path / "a.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\nHello\n")
    row = {
        "id": "q1",
        "video": "a.mp4",
        "question": "Which?",
        "options": ["x", "y"],
        "answer": "A",
        "subtitles": "a.srt",
    }
    (tmp_path / "questions.jsonl").write_text(json.dumps(row) + "\n" + json.dumps(row | {"id": "q2"}) + "\n")
    return tmp_path


def test_all_is_well(own: Path) -> None:
    for more in ((), ("--deep",), ("--no-subtitles",)):
        result = run("jsonl", "--data", own, *more)
        assert result.exit_code == 0, result.output
        assert "2 rows, 2 questions, 1 videos" in result.stdout and "no problems found" in result.stdout


def test_json_says_what_was_looked_at(own: Path) -> None:
    report = found("jsonl", "--data", own)

    assert {key: value for key, value in report.items() if key != "version"} == {
        "schema": "gridprobe.data/1",
        "benchmark": "jsonl",
        "rows": 2,
        "released_rows": None,
        "questions": 2,
        "videos": 1,
        "without_subtitles": 0,
        "findings": [],
    }
    assert report["version"].startswith("jsonl-2-")


def test_broken_and_missing_files_and_rows_are_listed_each_once(own: Path) -> None:
    row = {"video": "gone.mp4", "question": "Which?", "options": ["x", "y"], "subtitles": "gone.srt"}
    with (own / "questions.jsonl").open("a") as stream:
        for more in ({}, {"video": "text.mp4", "subtitles": "text.srt"}, {"answer": "Z"}):
            stream.write(json.dumps(row | more) + "\n")
    (own / "text.mp4").write_text("not a video")
    (own / "text.srt").write_text("no subtitles")

    result, report = run("jsonl", "--data", own), found("jsonl", "--data", own)

    assert result.exit_code == 1
    assert kinds(report) == [
        ("row", "line 5 (5)"),
        ("missing video", "gone.mp4"),
        ("unreadable video", "text.mp4"),
        ("missing subtitles", "gone.srt"),
        ("unreadable subtitles", "text.srt"),
    ]
    for words in (
        "1 × missing videos",
        "gone.mp4: no such file",
        "the answer 'Z'",
        "holds no subtitle line",
    ):
        assert words in result.stdout
    assert "missing subtitles" not in dict(kinds(found("jsonl", "--data", own, "--no-subtitles")))


def test_only_a_deep_look_finds_a_file_that_was_cut_short(own: Path, clip: bytes) -> None:
    (own / "a.mp4").write_bytes(clip[: len(clip) // 2])

    assert kinds(found("jsonl", "--data", own)) == []
    assert kinds(found("jsonl", "--data", own, "--deep")) == [("unreadable video", "a.mp4")]


def test_subtitle_entries_that_are_no_lines_are_counted(own: Path) -> None:
    (own / "a.srt").write_text('[{"start": 1, "end": 2, "line": "ok"}, {"start": "x", "end": 2, "line": "?"}]')

    assert found("jsonl", "--data", own)["findings"][0]["what"] == "1 entries are not timed lines"


def test_another_number_of_rows_than_the_release_is_said(tmp_path: Path, clip: bytes) -> None:
    write_json(tmp_path / "lvb_val.json", [lvb_row("a_0", "a")])
    write_json(tmp_path / "subtitles" / "a_en.json", [{"start": 1, "end": 2, "line": "x"}])
    touch(tmp_path, "videos/a.mp4")
    (tmp_path / "videos" / "a.mp4").write_bytes(clip)

    result = run("longvideobench", "--data", tmp_path)

    assert result.exit_code == 1
    assert "1 rows (as released: 1337)" in result.stdout
    assert "1 questions; the official release has 1337" in result.stdout.replace("\n", " ")
    assert found("longvideobench", "--data", tmp_path, "--with", "paper_subset=true")["released_rows"] == 1202


def test_archives_that_were_not_unpacked_are_pointed_at(tmp_path: Path) -> None:
    write_parquet(tmp_path / "test.parquet", v2_group("001"))
    touch(tmp_path, "videos/part_01.zip")

    findings = found("video-mme-v2", "--data", tmp_path)["findings"]

    assert [each["kind"] for each in findings] == ["rows", "missing video", "missing subtitles"]
    assert findings[1]["what"] == "no such file; part_01.zip in the same folder may need unpacking"
    assert findings[2]["what"] == f"there is no folder {tmp_path / 'subtitle'}"


def test_parts_of_an_archive_are_pointed_at_with_the_command_that_joins_them(tmp_path: Path) -> None:
    write_json(tmp_path / "lvb_val.json", [lvb_row("a_0", "a")])
    touch(tmp_path, "videos.tar.part.aa", "videos.tar.part.ab", "subtitles.tar")

    found_here = {each["kind"]: each["what"] for each in found("longvideobench", "--data", tmp_path)["findings"]}

    nothing = f"there is no folder {tmp_path}"
    assert found_here["missing video"] == (
        f"{nothing}/videos; videos.tar is still in 2 parts; run: cat videos.tar.part.* | tar -x -C {tmp_path} -f -"
    )


def test_a_video_of_another_length_than_annotated_is_found(tmp_path: Path, clip: bytes) -> None:
    """The clip is four seconds long."""
    rows = [lvb_row("a_0", "a", duration=4.5), lvb_row("b_0", "b", duration=300.5)]
    write_json(tmp_path / "lvb_val.json", rows)
    touch(tmp_path, "videos/a.mp4", "videos/b.mp4")
    for name in "ab":
        (tmp_path / "videos" / f"{name}.mp4").write_bytes(clip)

    report = found("longvideobench", "--data", tmp_path, "--no-subtitles")

    assert kinds(report)[1:] == [("other length", "b.mp4")]
    assert report["findings"][1]["what"] == "4.0 s long; the annotation says 300.5 s"


def test_the_rows_of_another_split_are_recognised() -> None:
    assert _row_count("egoschema", 500, 5031) == (
        "500 questions; the official release has 5031, but 500 without any option"
    )
    assert _row_count("longvideobench", 5341, 1337).endswith("has 1337, but 5341 with split=test")
    assert _row_count("longvideobench", 7, 1337) == "7 questions; the official release has 1337"


def test_long_lists_are_cut_on_the_terminal_but_not_in_json(tmp_path: Path) -> None:
    write_parquet(tmp_path / "test.parquet", [row for i in range(1, 26) for row in v2_group(f"{i:03d}")])

    result = run("video-mme-v2", "--data", tmp_path, "--no-subtitles")

    assert "25 × missing videos" in result.stdout and "… and 15 more; --json lists all" in result.stdout
    assert len(found("video-mme-v2", "--data", tmp_path, "--no-subtitles")["findings"]) == 26


def test_videos_that_are_made_on_demand_need_not_be_there(tmp_path: Path) -> None:
    assert run("gridworld", "--data", tmp_path / "new", "--with", "count=4").exit_code == 0


def test_names_from_files_cannot_move_the_cursor(own: Path) -> None:
    row = {"video": "evil\x1b[2J\n.mp4", "question": "Which?", "options": ["x", "y"]}
    (own / "questions.jsonl").write_text(json.dumps(row))

    assert "\x1b" not in run("jsonl", "--data", own).stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nextq", "--data", "."], 2, "did you mean 'nextqa'?"),
        (["nextqa"], 2, "--data"),
        (["nextqa", "--data", "/nowhere"], 1, "nowhere does not exist"),
        (["nextqa", "--data", ".", "--with", "split"], 2, "NAME=VALUE"),
        (["nextqa", "--data", ".", "--with", "splt=val"], 2, "did you mean 'split'?"),
        (["nextqa", "--data", ".", "--with", "split=x"], 2, "split must be one of val, test"),
    ],
)
def test_mistakes_are_one_sentence(arguments: list[str], code: int, message: str) -> None:
    result = run(*arguments)

    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr and "Traceback" not in result.stderr


def test_what_the_releases_hold() -> None:
    assert {name: rows[""] for name, rows in RELEASES.items()} == {
        "video-mme-v2": 3200,
        "longvideobench": 1337,
        "video-mme": 2700,
        "mlvu": 2175,
        "lvbench": 1549,
        "egoschema": 500,
        "nextqa": 4996,
    }
    assert released_rows("nextqa", {"split": "test"}) == 8564
    assert released_rows("egoschema", {"answered": False}) == 5031
    assert released_rows("jsonl", {}) is None
