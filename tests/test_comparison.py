"""compare(): which rows there are, how many frames each keeps, and that the views show what the answers say."""

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gridprobe import MockModel, Question
from gridprobe.cli import cli
from gridprobe.errors import UsageError
from gridprobe.models import Request
from gridprobe.options import Options
from gridprobe_selectors.compare import (
    Compared,
    cells,
    compare,
    comparison_dict,
    comparison_view,
    marks,
    render_comparison,
)
from videos import numbered_video
from videos_of_arrays import gray_pool, levels

QUESTION = Question("Where is the needle?", ["here", "there", "nowhere"])
SMALL = Options(k=4)


def eyes() -> MockModel:
    """Sure of B when frame 5 is shown."""

    def answer(request: Request) -> dict[str, float]:
        found = any(5 in levels(group.frames) for group in request.groups)
        return {label: 0.96 if found and label == "B" else 0.02 for label in request.labels}

    return MockModel(answer)


def rows(*selectors: str, settings: Options = SMALL, **more: Any) -> list[Compared]:
    return compare(gray_pool(16), QUESTION, selectors=selectors, model=eyes(), settings=settings, **more)


def test_the_controls_are_there_unless_told_otherwise() -> None:
    found = rows("frag", "uniform", settings=SMALL.changed(frames=3))

    assert [(row.selector, row.control) for row in found] == [("frag", False), ("uniform", False), ("all-small", True)]
    assert [row.selector for row in rows("frag", controls=False)] == ["frag"]


def test_uniform_keeps_as_many_frames_as_the_number_or_the_first_that_decides() -> None:
    given = rows("all", "uncertainty", settings=SMALL.changed(frames=5))
    decided = rows("all", "gridprobe", "uncertainty")

    assert {row.selector: row.answer.selection.kept for row in given} == {
        "all": 16,
        "uncertainty": 5,
        "all-small": 16,
        "uniform": 5,
    }
    kept = {row.selector: row.answer.selection.kept for row in decided}
    assert kept["uniform"] == kept["gridprobe"] < 16


def test_a_number_is_needed_where_nobody_decides() -> None:
    with pytest.raises(UsageError, match="'uniform' needs a number of frames"):
        rows("all")
    with pytest.raises(UsageError, match="did you mean 'frag'"):
        rows("frg")
    with pytest.raises(UsageError, match="at least one selector"):
        rows(controls=False)


def test_no_row_pays_less_because_of_another() -> None:
    together = {row.selector: row.answer.cost for row in rows("uncertainty", "frag", settings=SMALL.changed(frames=2))}
    alone = rows("frag", settings=SMALL.changed(frames=2), controls=False)[0].answer.cost

    assert together["frag"] == alone


def test_marks_say_how_frames_were_shown() -> None:
    found = {row.selector: marks(row.answer) for row in rows("q-frame", "uniform", settings=SMALL.changed(frames=1))}

    assert set(found["all-small"].values()) == {"small"} and len(found["all-small"]) == 16
    assert set(found["uniform"].values()) == {"native"} and len(found["uniform"]) == 1
    assert sorted(found["q-frame"].values()) == ["native", *["small"] * 10]  # 1, then 2 and 8
    context = rows("uniform", settings=SMALL.changed(frames=1, context="small"), controls=False)
    assert sorted(marks(context[0].answer).values()) == ["native", *["small"] * 15]
    quick = rows("gridprobe", settings=SMALL.changed(effort="quick"), controls=False)
    assert {*marks(quick[0].answer).values()} == {"seen", "small"}


def test_the_bill_by_hand() -> None:
    (row,) = rows("uniform", settings=SMALL.changed(frames=2), controls=False)  # frames 4 and 12, at 40 and 120 s
    words = cells(row, [(35.0, 45.0), (50.0, 60.0)])

    assert words["answer"] == "A. here" and words["frames"] == "2" and words["passes"] == "1"
    assert (words["covered"], words["precision"]) == ("50%", "50%")
    assert "covered" not in cells(row, [])


def test_as_json() -> None:
    found = comparison_dict(rows("uniform", settings=SMALL.changed(frames=2)), [(35.0, 45.0)])

    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert [row["selector"] for row in found["rows"]] == ["uniform", "all-small"]
    assert found["rows"][0]["evidence"] == {
        "precision": 0.5,
        "recall": 1.0,
        "f1": pytest.approx(2 / 3),
        "distance": 37.5,
    }
    assert found["schema"] == "gridprobe.comparison/1"
    assert found["rows"][0]["answer"]["schema"] == "gridprobe.answer/3" and found["evidence"] == [[35.0, 45.0]]


@pytest.mark.parametrize("width", [40, 60, 80, 200])
@pytest.mark.parametrize("unicode", [True, False])
def test_the_terminal_view_fits(width: int, unicode: bool) -> None:
    text = comparison_view(
        rows("gridprobe", "q-frame", settings=SMALL.changed(frames=1)),
        evidence=[(40.0, 60.0)],
        width=width,
        color=False,
        unicode=unicode,
    ).plain

    assert max(map(len, text.splitlines())) <= width and (unicode or text.isascii())
    assert all(name in text for name in ("gridprobe", "q-frame", "all-small", "uniform", "evidence", "compute"))
    assert ("seconds" in text) == (width == 200)


def test_evidence_and_frames_stand_above_each_other() -> None:
    found = rows("uniform", settings=SMALL.changed(frames=2), controls=False)
    text = comparison_view(found, evidence=[(40.0, 41.0)], width=80, color=False, unicode=False).plain
    evidence, strip = (next(line for line in text.splitlines() if line.startswith(n)) for n in ("evidence", "uniform "))

    assert strip.index("#") == evidence.index("=") and strip.count("#") == 2


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_the_page_shows_every_frame_and_the_evidence() -> None:
    found = rows("q-frame", settings=SMALL.changed(frames=1))
    page = Page(render_comparison(found, evidence=[(40.0, 60.0)]))
    kinds = [attributes.get("class") for tag, attributes in page.tags if tag == "rect"]

    assert (kinds.count("gold"), kinds.count("native")) == (3, 2)  # a band for each row; q-frame and uniform keep one
    assert kinds.count("small") == 10 + 16
    assert sum(tag == "img" for tag, _ in page.tags) == 1 + 16 + 1
    assert not any(tag == "script" for tag, _ in page.tags)
    loads = [attributes.get("src") for tag, attributes in page.tags if "src" in attributes]
    assert all(source and source.startswith("data:image/jpeg") for source in loads)
    assert not any("href" in attributes for _, attributes in page.tags)


def test_text_is_escaped() -> None:
    evil = Question('<script>alert("q")</script>', ['"><img src=x>', "b & <i>"])
    found = compare(
        gray_pool(16),
        evil,
        selectors=["uniform"],
        model=MockModel(lambda request: dict.fromkeys(request.labels, 1.0), name="<m>"),
        settings=SMALL.changed(frames=1),
    )
    text = render_comparison(found)

    assert "<script" not in text and "<i>" not in text and text.count("src=x") == text.count("&lt;img src=x&gt;")
    assert "&lt;script&gt;" in text and "&lt;m&gt;" in text


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("compare") / "clip.mp4"
    numbered_video(path, 60)
    return path


def run(*arguments: object) -> Result:
    return CliRunner(env={"GRIDPROBE_MODEL": "", "COLUMNS": "80"}).invoke(cli, ["compare", *map(str, arguments)])


def test_the_command(clip: Path, tiny_checkpoint: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    asked = (clip, "Which?", "-o", "a", "-o", "b", "--k", 3, "-m", tiny_checkpoint, "--evidence", "0.5-1")
    shown = run(*asked, "--selectors", "uncertainty,random", "--frames", 2, "--html", page)
    printed = run(*asked, "--selectors", "uncertainty", "--frames", 2, "--no-controls", "--json")

    assert shown.exit_code == 0, shown.output
    assert all(name in shown.stdout for name in ("uncertainty", "random", "all-small", "uniform", "covered"))
    assert "random" in page.read_text(encoding="utf-8")
    assert [row["selector"] for row in json.loads(printed.stdout)["rows"]] == ["uncertainty"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--evidence", "15-12"), "such as 12-15"),
        (("--evidence", "x"), "such as 12-15"),
        (("--evidence", "1-inf"), "such as 12-15"),
        (("--selectors", "clp"), "unknown selector 'clp'"),
        (("--html", "/nowhere/x.html"), "does not exist"),
        (("--selectors", "all"), "needs a number of frames"),
    ],
)
def test_mistakes_are_one_sentence(clip: Path, tiny_checkpoint: Path, more: tuple[str, ...], message: str) -> None:
    result = run(clip, "Which?", "-o", "a", "-o", "b", "-m", tiny_checkpoint, *more)

    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr and "Traceback" not in result.stderr
