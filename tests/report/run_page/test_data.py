"""What the run page knows of questions without options."""

from pathlib import Path

from evaluation_runs import item, record, write_run
from gridprobe.evaluation.reader import read_runs
from gridprobe.report.run_page.data import RESULT, pack


def test_texts_stand_in_place_of_options_with_the_right_one_first(tmp_path: Path) -> None:
    asked = [item("v1-a", options=[], answer="red car"), item("v2-b")]
    one = record("v1-a", "The red car.", right=True, confidence=0.75, logprobs={"The red car.": -0.1, "a bus": -2.0})
    other = record("v1-a", "a bus", right=False, confidence=0.5, logprobs={"a bus": -0.7})
    runs = [
        write_run(tmp_path / "one", asked, [one, record("v2-b")]),
        write_run(tmp_path / "other", asked, [other, record("v2-b")]),
    ]

    data = pack(read_runs(runs))

    question, closed = data["questions"]
    assert (list(question[2]), question[3]) == (["red car", "a bus"], 0)
    assert (list(closed[2]), closed[3]) == (["a bird sings", "a car stops", "it rains"], 1)
    choice, shares = RESULT.index("choice"), RESULT.index("shares")
    assert [run[0][choice] for run in data["results"]] == [0, 1]
    assert [run[0][shares] for run in data["results"]] == [[750, 135], [0, 500]]
