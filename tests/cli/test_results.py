"""score and report, as typed."""

import csv
import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from evaluation_runs import item, record, selection, spec_of, staged, write_run
from gridprobe._util import printable
from gridprobe.cli import cli
from gridprobe_eval.benchmarks import Metric
from gridprobe_eval.metrics import summary
from gridprobe_eval.report.tables import FORMATS, RunScores, people_tables

NAMES = ("v1-a", "v1-b", "v2-a", "v3-a")
MAPPED = selection((0.5, 0.9, 0.5), (0.4, 0.5, 0.8))


def gridprobe(*arguments: object, columns: int = 200) -> Result:
    return CliRunner(env={"COLUMNS": str(columns)}).invoke(cli, [str(argument) for argument in arguments])


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    items = [item(name, bins={"duration": "long" if name == "v3-a" else "short", "level": "1"}) for name in NAMES]
    choices = {"all": "BCCB", "probe": "BBB-"}
    return [
        write_run(
            tmp_path / name,
            items,
            [record(n, None if c == "-" else c, selection=MAPPED) for n, c in zip(NAMES, letters, strict=True)],
            spec=spec_of("all" if name == "all" else "gridprobe"),
        )
        for name, letters in choices.items()
    ]


def test_the_short_table_shows_both_runs_and_their_difference(runs: list[Path]) -> None:
    result = gridprobe("score", *runs, columns=80)

    assert result.exit_code == 0, result.output
    table = [line.split() for line in result.stdout.splitlines()]
    assert table[2] == ["all", "4", "50.0", "11.6–88.4", "5.0", "50%"]
    assert table[3] == ["probe", "4", "1", "75.0", "23.9–96.6", "5.0", "50%", "+25.0", "1.000"]
    for absent in ("Official", "duration", "TFLOPs", "Wilson"):
        assert absent not in result.stdout
    assert "compute: of one pass over all frames" in result.stdout and "--all shows more" in result.stdout


def test_bins_are_in_the_short_table_on_request(runs: list[Path]) -> None:
    shown = gridprobe("score", *runs, "--by", "duration").stdout

    assert [line.split()[:3] for line in shown.splitlines()[2:8]] == [
        ["all", "all", "4"],
        ["probe", "all", "4"],
        *(["all", "duration:", "long"], ["probe", "duration:", "long"]),
        *(["all", "duration:", "short"], ["probe", "duration:", "short"]),
    ]


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "cp1252"])
@pytest.mark.parametrize("columns", [40, 80, 120])
@pytest.mark.parametrize("more", [(), ("--all",), ("--by", "all")])
def test_tables_fit_the_terminal(runs: list[Path], columns: int, encoding: str, more: tuple[str, ...]) -> None:
    long = runs[1].rename(runs[1].with_name("a-run-with-a-very-long-name-" * 3 + "-é−…"))
    result = CliRunner(env={"COLUMNS": str(columns)}, charset=encoding).invoke(
        cli, ["score", str(runs[0]), str(long), *more]
    )

    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= columns
    assert encoding == "utf-8" or result.stdout.isascii()
    rulers = [place for place, line in enumerate(lines) if line and set(line) == {"-"}]
    assert rulers and all(len(lines[place - 1]) <= len(lines[place]) for place in rulers)


def test_all_tables_show_both_runs_and_their_difference(runs: list[Path]) -> None:
    result = gridprobe("score", *runs, "--all")

    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["all", "all", "questions", "4", "0", "0", "50.0", "11.6", "…", "88.4", "3", "50.0"] in lines
    assert any(line[:8] == ["probe", "all", "questions", "4", "1", "0", "75.0", "23.9"] for line in lines)
    assert any(line[:7] == ["probe", "−", "all", "all", "questions", "4", "+25.0"] for line in lines)
    assert "duration: long" in result.stdout and "level" not in result.stdout
    assert "too few videos to resample for 8 of the intervals (fewer than 20, or fewer than 5" in result.stdout
    assert "honest: causal attention" in result.stdout and "published: all-pairs" in result.stdout


def test_a_table_that_is_too_wide_continues_below(runs: list[Path]) -> None:
    wide, narrow = (gridprobe("score", *runs, "--all", columns=columns).stdout for columns in (200, 60))

    assert "continued" not in wide and "Accuracy, continued" in narrow
    part = narrow[narrow.index("Accuracy, continued") :].splitlines()
    assert part[1].split()[:2] == ["run", "questions"] and part[3].split()[:3] == ["all", "all", "questions"]
    for words in ("95% interval", "McNemar p", "TFLOPs, published", "note"):
        assert (words in narrow) == (words in wide)


def test_official_scores_have_intervals(runs: list[Path]) -> None:
    table = gridprobe("score", *runs, "--all").stdout.split("Official scores\n")[1].splitlines()
    found = json.loads(gridprobe("score", *runs, "--format", "json").stdout)["runs"]
    one, other = (each["official"][0] for each in found)
    row, *_ = csv.DictReader(io.StringIO(gridprobe("score", *runs, "--format", "csv").stdout))

    assert table[0].split() == ["score", "all", "95%", "interval", "probe", "95%", "interval", "of"]
    assert table[2].split()[:8] == ["accuracy", "50.00", "11.6", "…", "88.4", "75.00", "23.9", "…"]
    assert (one["value"], one["interval"], one["count"]) == (50.0, "wilson", 4)
    assert (one["low"], one["high"]) == pytest.approx((11.586, 88.414), abs=0.001)
    assert other["low"] == pytest.approx(23.9, abs=0.1)
    assert set(one) == {"name", "value", "low", "high", "interval", "count", "note"}
    assert float(row["official:accuracy_low"]) == one["low"] and float(row["official:accuracy_high"]) == one["high"]


def test_one_video_has_no_interval_of_its_official_score(tmp_path: Path) -> None:
    alone = write_run(tmp_path / "r", [item("v1-a"), item("v1-b")], [record("v1-a"), record("v1-b")])
    (found,) = json.loads(gridprobe("score", alone, "--format", "json").stdout)["runs"][0]["official"]

    assert (found["value"], found["low"], found["high"], found["interval"]) == (100.0, None, None, None)
    assert ["accuracy", "100.00", "–", "2"] in [
        line.split()[:4] for line in gridprobe("score", alone, "--all").stdout.splitlines()
    ]


def test_official_scores_stand_side_by_side() -> None:
    one = [Metric("Non-Lin", 9.45, 800), Metric("level 1", 20.0, 203)]
    other = [Metric("Non-Lin", 8.39, 799, "1 of 800 groups are incomplete and not counted")]
    (table,) = people_tables(RunScores((), (), {"all": one, "probe": other}))

    assert list(table.head) == ["score", "all", "probe", "of", "note"] and table.left == 1
    assert [list(row) for row in table.rows] == [
        ["Non-Lin", "9.45", "8.39", "799–800", "probe: 1 of 800 groups are incomplete and not counted"],
        ["level 1", "20.00", "–", "203", ""],
    ]
    (plain,) = people_tables(RunScores((), (), {"all": one}))
    assert list(plain.head) == ["score", "all", "of"]
    (empty,) = people_tables(RunScores((), (), {"all": [Metric("Non-Lin", None, 0)]}))
    assert [list(row) for row in empty.rows] == [["Non-Lin", "–", "0"]]  # nothing asked is not 0.00


def test_score_says_how_answers_were_reached(tmp_path: Path) -> None:
    exit, focus = staged("v1-a", "B", "overview", overview="B"), staged("v1-b", "B", "focus", overview="C", focus="B")
    folder = write_run(tmp_path / "ours", [item("v1-a"), item("v1-b")], [exit, focus])
    shown = gridprobe("score", folder, "--all").stdout
    table = shown[shown.index("How answers were reached") :].splitlines()

    assert table[1].split("  ")[-1] == "they agree %"
    assert table[3].split() == ["ours", "all", "questions", "50.0", "0.0", "1.0", "1", "0.0"]
    (row, *_) = json.loads(gridprobe("score", folder, "--format", "json").stdout)["rows"]
    assert (row["reached_overview"], row["reached_both"], row["reached_agree"], row["kept"]) == (0.5, 1, 0.0, 1.0)


def test_runs_without_an_overview_have_no_such_table(runs: list[Path]) -> None:
    assert "How answers were reached" not in gridprobe("score", *runs, "--all").stdout


def test_csv_holds_every_number_in_full(runs: list[Path]) -> None:
    rows = list(csv.DictReader(io.StringIO(gridprobe("score", *runs, "--format", "csv").stdout)))

    assert [(row["run"], row["value"]) for row in rows[:3]] == [("all", ""), ("probe", ""), ("all", "long")]
    assert float(rows[1]["accuracy"]) == 0.75 and float(rows[1]["accuracy_of_answered"]) == 1.0
    assert (float(rows[1]["difference"]), rows[1]["gained"], rows[1]["lost"], rows[1]["versus"]) == (
        0.25,
        "2",
        "1",
        "all",
    )
    assert (
        float(rows[1]["mcnemar"]) == 1.0 and float(rows[1]["tflops"]) == 4.0 and float(rows[1]["tflops_paper"]) == 8.0
    )
    assert rows[0]["difference"] == "" and rows[2]["accuracy_low"] == ""  # one video has no interval


def test_json_says_the_same_as_csv(runs: list[Path]) -> None:
    whole = json.loads(gridprobe("score", *runs, "--format", "json", "--by", "all").stdout)

    assert whole["schema"] == "gridprobe.scores/1" and set(whole["conventions"]) >= {"tflops", "tflops_paper"}
    assert [run["selector"] for run in whole["runs"]] == ["all", "gridprobe"]
    assert {row["bin"] for row in whole["rows"]} == {"", "duration", "level"}
    assert whole["rows"][1]["difference"] == 0.25


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_is_the_same_twice(runs: list[Path], form: str) -> None:
    first, second = (gridprobe("score", *runs, "--format", form).stdout for _ in range(2))

    assert first == second and first.strip()


def test_markdown_escapes(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a_b&c|d%", [item("v1-a"), item("v2-a")], [record("v1-a"), record("v2-a")])

    assert r"a_b&c\|d%" in gridprobe("score", folder, "--format", "markdown").stdout


# A17 of tests/reliability.md
@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_a_text_that_looks_like_a_formula_is_quoted_in_csv(tmp_path: Path, name: str) -> None:
    folder = write_run(tmp_path / name, [item("v1-a")], [record("v1-a")])

    assert f"\n'{printable(name)}," in gridprobe("score", folder, "--format", "csv").stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["score", "nowhere"], "is not a run"),
        (["score", "RUN", "RUN"], "named twice"),
        (["score", "RUN", "--by", "colour"], "no question has a bin 'colour'; choose among duration, level"),
        (["score", "RUN", "OTHER"], "runs of different benchmark versions cannot be compared"),
        (["report", "RUN", "OTHER", "-o", "OUT"], "runs of different benchmark versions cannot be compared"),
        (["report", "RUN", "-o", "/nowhere/r.html"], "does not exist"),
        (["score", "RUN", "--keyframes", "/nowhere/k.json"], "does not exist"),
    ],
)
def test_a_mistake_is_one_sentence(runs: list[Path], tmp_path: Path, arguments: list[str], words: str) -> None:
    other = write_run(tmp_path / "other", [item("v1-a")], [record("v1-a")], benchmark_version="toy-9-xyz")
    places = {"RUN": runs[0], "OTHER": other, "OUT": tmp_path / "r.html"}

    result = gridprobe(*(places.get(argument, argument) for argument in arguments))

    assert result.exit_code == 2 and words in result.stderr and result.stderr.count("\n") == 1


def test_report_writes_a_page(runs: list[Path], tmp_path: Path) -> None:
    result = gridprobe("report", *runs, "-o", tmp_path / "r.html")

    assert result.exit_code == 0, result.output
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "What happens in v3-a?" in page and "videos have no thumbnails" in page  # they are not on this disk
    assert gridprobe("report", *runs, "-o", tmp_path / "n.html", "--no-thumbnails").exit_code == 0
    assert "no thumbnails" not in (tmp_path / "n.html").read_text(encoding="utf-8")


def test_runs_of_other_questions_come_with_a_warning_and_are_drawn_over_the_common_ones(tmp_path: Path) -> None:
    """A run that has only been asked the easy half so far must not look like the better method."""
    items = [item(name) for name in NAMES]
    whole = write_run(tmp_path / "whole", items, [record(n, c) for n, c in zip(NAMES, "BBCC", strict=True)])
    half = write_run(tmp_path / "half", items, [record(name) for name in NAMES[:2]])

    assert "not asked the same questions, 2 are common to all" in gridprobe("score", whole, half).stdout
    assert "not asked the same questions" not in gridprobe("score", whole).stdout
    assert gridprobe("report", whole, half, "-o", tmp_path / "r.html").exit_code == 0
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "whole: 100.0% at 4.00 TFLOPs; half: 100.0% at 4.00 TFLOPs" in page
    assert "Over the 2 questions that every run was asked" in page and "not asked the same questions" in page


def test_keyframes_are_exported(runs: list[Path], tmp_path: Path) -> None:
    result = gridprobe("score", runs[1], "--keyframes", tmp_path / "k.json")

    assert result.exit_code == 0, result.output
    assert "3 questions" in result.stderr and "1 were not answered" in result.stderr
    assert list(json.loads((tmp_path / "k.json").read_text())["questions"]) == ["v1-a", "v1-b", "v2-a"]


def withheld_run(folder: Path, benchmark: str, *names: str) -> Path:
    items = [item(name, answer=None) for name in (*names, "not-answered")]
    records = [record(name, choice, right=None) for name, choice in zip(names, "CAB", strict=False)]
    return write_run(folder, items, [*records, record("not-answered", None, right=None)], benchmark=benchmark)


def test_withheld_answers_give_no_accuracy(tmp_path: Path) -> None:
    folder = withheld_run(tmp_path / "test", "longvideobench", "a_0", "b_0", "c_0")

    shown = gridprobe("score", folder, "--all").stdout
    accuracy, official = shown[: shown.index("Official")], shown[shown.index("Official") : shown.index("Cost")]

    assert ["test", "all", "questions", "4", "1", "0", "–", "–", "–", "–"] in [x.split() for x in accuracy.splitlines()]
    assert "0.0" not in accuracy + official
    assert official.splitlines()[3:5] == ["accuracy     –   0", "accuracy: 4 with a withheld answer"]
    assert "test: the answers to 4 of 4 questions are withheld; these are in no accuracy." in shown
    assert (summary(folder)["all"]["accuracy"], summary(folder)["all"]["withheld"]) == (None, 4)


@pytest.mark.parametrize(
    ("benchmark", "expected"),
    [
        ("longvideobench", {"a": "C", "b": "A"}),
        ("lvbench", {"a": "C", "b": "A"}),
        ("egoschema", {"a": 2, "b": 0}),
    ],
)
def test_predictions_are_exported_in_the_benchmarks_format(
    tmp_path: Path, benchmark: str, expected: dict[str, object]
) -> None:
    folder = withheld_run(tmp_path / "run", benchmark, "a", "b")

    result = gridprobe("score", folder, "--predictions", tmp_path / "p.json")

    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "p.json").read_text()) == expected
    assert "predictions of 2 questions (1 left out)" in result.stderr


def test_predictions_of_next_qa_are_what_its_scorer_reads(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [item("4010_6")], [record("4010_6", "C")], benchmark="nextqa")

    assert gridprobe("score", folder, "--predictions", tmp_path / "p.json").exit_code == 0
    assert json.loads((tmp_path / "p.json").read_text()) == {"4010_6": {"prediction": 2, "answer": 1}}


def test_predictions_need_a_known_format_and_an_answer(runs: list[Path], tmp_path: Path) -> None:
    unknown = gridprobe("score", runs[0], "--predictions", tmp_path / "p.json")
    assert unknown.exit_code == 2 and "no submission format is known for toy, only for longvideobench" in unknown.stderr
    empty = gridprobe("score", withheld_run(tmp_path / "none", "longvideobench"), "--predictions", tmp_path / "p.json")
    assert empty.exit_code == 1 and "holds no answered question" in empty.stderr


def test_no_terminal_code_of_a_run_reaches_the_terminal(tmp_path: Path) -> None:
    """A18: `score --format csv` is for files, but also printed."""
    items = [item("a-1", bins={"kind": "\x1b[31mred\nline"}), item("b-1")]
    path = write_run(tmp_path / "run", items, [record("a-1"), record("b-1")])

    for form in ("csv", "markdown", "json", "table"):
        result = CliRunner().invoke(cli, ["score", str(path), "--by", "kind", "--format", form])
        assert result.exit_code in (0, 2) and "\x1b" not in result.output, form
    assert (
        "\\x1b[31mred\\nline" in CliRunner().invoke(cli, ["score", str(path), "--by", "all", "--format", "csv"]).output
    )


def test_no_terminal_code_of_a_folder_reaches_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A18."""
    (tmp_path / "models--me--Qwen3-VL-\x1b[31m").mkdir()
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))

    listed = CliRunner().invoke(cli, ["list", "models"]).output

    assert "\x1b" not in listed and "me/Qwen3-VL-\\x1b[31m" in listed
