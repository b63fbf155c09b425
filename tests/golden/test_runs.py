"""Run folders that gridprobe.record/1 wrote have the numbers that the code of that day gave, to the last digit."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from evaluation_runs import large_run
from gridprobe.cli import cli
from gridprobe_eval import summary
from gridprobe_eval.reader import read_runs
from gridprobe_eval.report.run_data import pack

HERE = Path(__file__).parent
NAMES = ("probes", "overview", "open", "staged", "large")
NUMBERS = HERE / "runs.json"


def numbers(folders: list[Path], *, by: tuple[str, ...] = (), packed: bool = True) -> dict[str, Any]:
    """What `score`, the summary and the page of these folders say."""
    options = [word for name in by for word in ("--by", name)]
    done = CliRunner().invoke(cli, ["score", "--format", "json", *options, *map(str, folders)])
    assert done.exit_code == 0, done.output
    page = {"page": page_of(folders)} if packed else {}
    scores = json.loads(done.stdout)
    for each in scores["runs"]:
        del each["path"]
    summaries = [{**summary(folder), "fingerprint": ""} for folder in folders]
    return {"score": scores, "summaries": summaries, **page}


def page_of(folders: list[Path]) -> Any:
    """The data of the page, without what the folders are too old to have: doubts of answers, and maps of when."""
    page = json.loads(json.dumps(pack(read_runs(folders))).replace(" %", "%"))
    assert page["fields"].pop() == "doubt" and page["maps"].pop("when")
    assert {result.pop() for run in page["results"] for result in run if isinstance(result, list)} == {""}
    return page


def of(name: str, folder: Path) -> dict[str, Any]:
    if name != "large":
        return numbers([HERE / "runs" / name], by=("length", "kind") if name in ("probes", "overview") else ())
    runs = [large_run(folder / selector, count=240, selector=selector) for selector in ("gridprobe", "all")]
    return numbers(runs, by=("duration",), packed=False)


@pytest.mark.parametrize("name", NAMES)
def test_an_old_folder_has_its_numbers(name: str, tmp_path: Path) -> None:
    found, expected = json.loads(json.dumps(of(name, tmp_path))), json.loads(NUMBERS.read_text())[name]

    for row, old in zip(found["score"]["rows"], expected["score"]["rows"], strict=True):
        assert row.pop("mcnemar", None) == pytest.approx(old.pop("mcnemar", None), abs=1e-12)  # was our own sum
    assert found == expected
