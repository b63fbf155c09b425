"""Video-MME, LVBench, EgoSchema, NExT-QA and a user's own file."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmark_files import by_id, reasons, touch, write_json, write_parquet
from gridprobe.errors import DataError
from gridprobe_eval.benchmarks import Benchmark, load_benchmark, metrics


def values(name: str, benchmark: Benchmark, wrong: set[str]) -> dict[str, float]:
    found = metrics(name, benchmark.items, {item.id: item.id not in wrong for item in benchmark.items})
    return {metric.name: round(metric.value or 0.0, 2) for metric in found}


class TestVideoMme:
    def row(self, name: str, **changes: Any) -> dict[str, Any]:
        return {
            "video_id": name[:3],
            "duration": "short",
            "domain": "Knowledge",
            "sub_category": "Astronomy",
            "url": "https://www.youtube.com/watch?v=fFjv93ACGo8",
            "videoID": f"fFjv93ACGo{name[2]}",
            "question_id": name,
            "task_type": "Counting Problem",
            "question": "How many planets are shown?",
            "options": ["A. One.", "B. Vitamin D.", "C. A. Milne.", "D. Four."],
            "answer": "C",
            **changes,
        }

    def load(self, folder: Path, *rows: dict[str, Any]) -> Benchmark:
        write_parquet(folder / "videomme" / "test-00000-of-00001.parquet", rows)
        return load_benchmark("video-mme", folder)

    def test_a_row_becomes_an_item(self, tmp_path: Path) -> None:
        touch(tmp_path, "data/fFjv93ACGo1.MP4", "subtitle/fFjv93ACGo1.srt")

        item = self.load(tmp_path, self.row("001-1")).items[0]

        assert item.question.options == ("One.", "Vitamin D.", "A. Milne.", "Four.")
        assert (item.id, item.question.answer, item.group) == ("001-1", "C", "fFjv93ACGo1")
        assert item.video == tmp_path / "data" / "fFjv93ACGo1.MP4"
        assert item.subtitles == tmp_path / "subtitle" / "fFjv93ACGo1.srt"
        assert item.bins["duration"] == "short" and item.bins["sub_category"] == "Astronomy"
        assert item.question.prompt.endswith("C. A. Milne.\nD. Four.\nThe best answer is:")

    def test_the_prompt_is_the_official_one_to_the_character(self, tmp_path: Path) -> None:
        item = self.load(tmp_path, self.row("001-1", question="How many  planets? ")).items[0]

        assert item.question.prompt == (
            "Select the best answer to the following multiple-choice question based on the video. "
            "Respond with only the letter (A, B, C, or D) of the correct option.\n"
            "How many  planets? \nA. One.\nB. Vitamin D.\nC. A. Milne.\nD. Four.\nThe best answer is:"
        )

    def test_not_every_video_has_subtitles(self, tmp_path: Path) -> None:
        assert self.load(tmp_path, self.row("001-1")).items[0].subtitles is None

    def test_problems(self, tmp_path: Path) -> None:
        rows = [self.row("001-1"), self.row("001-2", answer="E"), self.row("001-3", options=["A. x", "C. y"])]

        benchmark = self.load(tmp_path, *rows, self.row("001-1"))

        assert [item.id for item in benchmark.items] == ["001-1"]
        found = reasons(benchmark)
        assert "the answer 'E'" in found["row 2 (001-2)"]
        assert "should start with 'B.'" in found["row 3 (001-3)"]
        assert "occurs a second time" in found["row 4 (001-1)"]

    def test_scores(self, tmp_path: Path) -> None:
        rows = [self.row("001-1"), self.row("002-1", duration="medium"), self.row("003-1", duration="long")]

        found = values("video-mme", self.load(tmp_path, *rows), {"003-1"})

        assert list(found)[:4] == ["accuracy", "duration short", "duration medium", "duration long"]
        assert found["sub_category Astronomy"] == 66.67
        assert (found["accuracy"], found["duration long"], found["task_type Counting Problem"]) == (66.67, 0.0, 66.67)


class TestLvbench:
    def line(self, *asked: Any, **changes: Any) -> str:
        return json.dumps({"key": "Cm73ma6Ibcs", "type": "cartoon", "video_info": {}, "qa": list(asked), **changes})

    def asked(self, uid: str, **changes: Any) -> dict[str, Any]:
        return {
            "uid": uid,
            "question": "What year appears?\n(A) 1636\n(B) 1366\n(C) 1363\n(D) 1633",
            "answer": "D",
            "question_type": ["key information retrieval", "entity recognition"],
            "time_reference": "00:15-00:19",
            **changes,
        }

    def load(self, folder: Path, *lines: str) -> Benchmark:
        (folder / "video_info.meta.jsonl").write_text("\n".join(lines) + "\n")
        return load_benchmark("lvbench", folder)

    def test_options_come_out_of_the_question(self, tmp_path: Path) -> None:
        touch(tmp_path, "videos/Cm73ma6Ibcs.mp4")
        inline = "Which of (A) and others? (A) yes (B) no"

        lines = self.line(self.asked("0"), self.asked("1", question="Who? (A) he (B) she", answer="A"))
        benchmark = self.load(tmp_path, lines, self.line(self.asked("2", question=inline), key="other"))

        item = benchmark.items[0]
        assert (item.question.text, item.question.options[0]) == ("What year appears?", "1636")
        assert (item.question.answer, item.group, item.bins) == ("D", "Cm73ma6Ibcs", {"type": "cartoon"})
        assert item.video == tmp_path / "videos" / "Cm73ma6Ibcs.mp4"
        assert item.extra["time_reference"] == "00:15-00:19"
        assert benchmark.items[1].question.options == ("he", "she")
        assert "cannot be split in exactly one way" in reasons(benchmark)["row 3 (2)"]

    def test_videos_as_the_official_download_leaves_them(self, tmp_path: Path) -> None:
        """Numbered by the lines of the file; the downloader skips lines that are not JSON."""
        touch(tmp_path, "videos/00000/00000000.mp4", "videos/00000/00000001.mp4", "videos/00000/00000002.mp4")
        for number, key in (("00000001", "second"), ("00000002", "another")):
            url = f"https://www.youtube.com/watch?v={key}"
            write_json(tmp_path / "videos" / "00000" / f"{number}.json", {"url": url})
        lines = [self.line(self.asked(str(place)), key=key) for place, key in enumerate(["first", "second", "third"])]

        benchmark = self.load(tmp_path, lines[0], "{not json", *lines[1:])

        assert [item.video.relative_to(tmp_path).as_posix() for item in benchmark.items] == [
            "videos/00000/00000000.mp4",
            "videos/00000/00000001.mp4",
        ]
        assert "was downloaded from https://www.youtube.com/watch?v=another" in benchmark.problems[1].what
        touch(tmp_path, "videos/third.mp4")
        assert self.load(tmp_path, *lines).items[2].video == tmp_path / "videos" / "third.mp4"

    def test_problems(self, tmp_path: Path) -> None:
        first = self.line(self.asked("0"), self.asked("1", answer="E"), self.asked("2", question="No options?"), 5)

        benchmark = self.load(tmp_path, first, "{not json", '{"key": "x"}', self.line(self.asked("0")))

        assert [item.id for item in benchmark.items] == ["0"]
        assert [problem.where for problem in benchmark.problems] == [
            "row 2 (1)",
            "row 3 (2)",
            "row 4",
            "row 5",
            "row 6",
            "row 7 (0)",
        ]
        assert "has no options (A), (B)" in benchmark.problems[1].what
        assert "not a JSON object" in benchmark.problems[3].what

    def test_a_question_counts_in_each_of_its_types(self, tmp_path: Path) -> None:
        benchmark = self.load(tmp_path, self.line(self.asked("0"), self.asked("1", question_type=["reasoning"])))

        assert values("lvbench", benchmark, {"1"}) == {
            "accuracy": 50.0,
            "question key information retrieval": 100.0,
            "question entity recognition": 100.0,
            "question reasoning": 0.0,
            "type cartoon": 50.0,
        }


class TestEgoSchema:
    def row(self, name: str, **changes: Any) -> dict[str, Any]:
        options = {f"option {i}": f"C does {i}" for i in range(5)}
        return {"q_uid": name, "google_drive_id": "x", "question": "What does C do?", **options, **changes}

    def test_only_questions_with_answers_unless_all_are_wanted(self, tmp_path: Path) -> None:
        touch(tmp_path, "videos/a-1.mp4")
        write_json(tmp_path / "questions.json", [self.row("a-1"), self.row("b-2")])
        write_json(tmp_path / "subset_answers.json", {"a-1": 3})

        subset = load_benchmark("egoschema", tmp_path)
        everything = load_benchmark("egoschema", tmp_path, answered=False)

        assert [(item.id, item.question.answer) for item in subset.items] == [("a-1", "D")]
        assert subset.items[0].video == tmp_path / "videos" / "a-1.mp4"
        assert subset.items[0].question.option("D") == "C does 3"
        assert [item.question.answer for item in everything.items] == ["D", None]
        found = metrics("egoschema", everything.items, {"a-1": True, "b-2": False})
        assert (found[0].value, found[0].count, found[0].note) == (100.0, 1, "1 with a withheld answer")

    def test_the_parquet_form(self, tmp_path: Path) -> None:
        options = [f"{letter}. C does {letter}" for letter in "ABCDE"]
        row = {"question_idx": "0", "question": "What?", "video_idx": "a-1", "option": options, "answer": "4"}
        write_parquet(tmp_path / "Subset" / "test-00000-of-00001.parquet", [row])

        item = load_benchmark("egoschema", tmp_path).items[0]

        assert (item.id, item.question.answer, item.question.options[0]) == ("a-1", "E", "C does A")

    def test_the_hubs_folder_has_the_answers_in_one_and_all_questions_in_another(self, tmp_path: Path) -> None:
        options = [f"{letter}. C does {letter}" for letter in "ABCDE"]
        rows = [
            {"question_idx": str(place), "question": "What?", "video_idx": name, "option": options, "answer": None}
            for place, name in enumerate(("a-1", "b-2", "c-3"))
        ]
        write_parquet(tmp_path / "MC" / "test-00000-of-00001.parquet", rows)
        write_parquet(tmp_path / "Subset" / "test-00000-of-00001.parquet", [rows[1] | {"answer": "4"}])
        write_parquet(tmp_path / "GENERATION" / "test-00000-of-00001.parquet", [{"question": "What?"}])

        subset, everything = (load_benchmark("egoschema", tmp_path, answered=each) for each in (True, False))

        assert [(item.id, item.question.answer) for item in subset.items] == [("b-2", "E")]
        assert [item.question.answer for item in everything.items] == [None, "E", None]
        assert everything.version.startswith("egoschema-3-")

    def test_open_questions_are_recognised(self, tmp_path: Path) -> None:
        write_parquet(tmp_path / "GENERATION" / "test-00000-of-00001.parquet", [{"question": "What?"}])

        with pytest.raises(DataError, match="only EgoSchema's GENERATION questions, which have no options"):
            load_benchmark("egoschema", tmp_path)

    def test_without_any_answer_the_way_out_is_told(self, tmp_path: Path) -> None:
        write_json(tmp_path / "questions.json", [self.row("a-1")])

        with pytest.raises(DataError, match=r"put subset_answers\.json into .*answered=false"):
            load_benchmark("egoschema", tmp_path)

    def test_a_release_without_questions_is_all_problems(self, tmp_path: Path) -> None:
        rows = [self.row("a-1"), self.row("b-2", **{"option 3": ""}), self.row("c-3"), "text"]
        del rows[0]["question"]  # type: ignore[attr-defined]
        write_json(tmp_path / "questions.json", rows)
        write_json(tmp_path / "subset_answers.json", {"a-1": 3, "b-2": 1, "c-3": 5})

        benchmark = load_benchmark("egoschema", tmp_path)

        assert benchmark.items == ()
        assert reasons(benchmark)["row 1 (a-1)"] == "question is missing"
        assert reasons(benchmark)["row 2 (b-2)"] == "option 3 is missing"
        assert "the answer 5" in reasons(benchmark)["row 3 (c-3)"]

    def test_answers_that_cannot_be_read(self, tmp_path: Path) -> None:
        write_json(tmp_path / "questions.json", [self.row("a-1")])
        for content in ("[1]", "{", "[" * 100_000):
            (tmp_path / "subset_answers.json").write_text(content)
            with pytest.raises(DataError, match=r"subset_answers\.json"):
                load_benchmark("egoschema", tmp_path)


class TestNextQa:
    def write(self, path: Path, *rows: dict[str, Any]) -> None:
        with path.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, fieldnames=list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)

    def row(self, qid: str, **changes: Any) -> dict[str, Any]:
        fixed = {"video": "4010069381", "frame_count": 369, "width": 640, "height": 480, "question": "how do they, act"}
        options = {f"a{i}": f"text {i}" for i in range(5)}
        return {**fixed, "answer": 2, "qid": qid, "type": "CW", **options, **changes}

    def test_a_row_becomes_an_item_and_the_map_says_where_its_video_lies(self, tmp_path: Path) -> None:
        touch(tmp_path, "NExTVideo/1164/4010069381.mp4")
        write_json(tmp_path / "map_vid_vidorID.json", {"4010069381": "1164/4010069381"})
        self.write(tmp_path / "val.csv", self.row("6", a0="None", question="why,\nthen?"))

        benchmark = load_benchmark("nextqa", tmp_path)

        item = benchmark.items[0]
        assert (item.id, item.question.answer, item.group) == ("4010069381_6", "C", "4010069381")
        assert item.video == tmp_path / "NExTVideo/1164/4010069381.mp4"
        assert item.bins == {"kind": "causal", "type": "CW"}
        assert (item.question.options[0], item.question.text) == ("None", "why,\nthen?")

    def test_without_the_map_videos_lie_in_one_folder(self, tmp_path: Path) -> None:
        touch(tmp_path, "videos/4010069381.mp4")
        self.write(tmp_path / "test.csv", self.row("6"))

        assert load_benchmark("nextqa", tmp_path, split="test").items[0].video.is_file()

    def test_problems_and_scores(self, tmp_path: Path) -> None:
        rows = [self.row("0"), self.row("1", type="TN"), self.row("2", type="DO"), self.row("3", answer=5)]
        self.write(tmp_path / "val.csv", *rows, self.row("4", type="X"), self.row("0"))

        benchmark = load_benchmark("nextqa", tmp_path)

        assert list(reasons(benchmark)) == ["row 4 (3)", "row 5 (4)", "row 6 (0)"]
        found = values("nextqa", benchmark, {"4010069381_1"})
        assert found == {
            "accuracy": 66.67,
            "kind causal": 100.0,
            "kind temporal": 0.0,
            "kind descriptive": 100.0,
            "type CW": 100.0,
            "type TN": 0.0,
            "type DO": 100.0,
        }

    def test_before_and_after_are_one_type_as_in_the_official_scorer(self, tmp_path: Path) -> None:
        self.write(tmp_path / "val.csv", self.row("0", type="TN"), self.row("1", type="TP"), self.row("2", type="TC"))

        benchmark = load_benchmark("nextqa", tmp_path)
        found = metrics("nextqa", benchmark.items, {item.id: item.id.endswith("1") for item in benchmark.items})

        types = [(metric.name, metric.value, metric.count) for metric in found if metric.name.startswith("type")]
        assert types == [("type TN", 50.0, 2), ("type TC", 0.0, 1)]
        assert [item.extra["type"] for item in benchmark.items] == ["TN", "TP", "TC"]

    def test_a_map_that_cannot_be_read(self, tmp_path: Path) -> None:
        self.write(tmp_path / "val.csv", self.row("0"))
        for content in ("[1]", "{", "[" * 100_000):
            (tmp_path / "map_vid_vidorID.json").write_text(content)
            with pytest.raises(DataError, match=r"map_vid_vidorID\.json"):
                load_benchmark("nextqa", tmp_path)


class TestOwnFile:
    def write(self, path: Path, *rows: Any) -> Path:
        path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), encoding="utf-8")
        return path

    ROW = {"video": "clips/a.mp4", "question": "Which?", "options": ["Oslo", "Rome"]}  # noqa: RUF012

    def test_a_file_or_its_folder(self, tmp_path: Path) -> None:
        rest = {"id": "q1", "answer": "B", "subtitles": "a.srt", "bins": {"topic": "news", "year": 2024}}
        path = self.write(tmp_path / "questions.jsonl", self.ROW | rest, "", self.ROW)

        benchmark = load_benchmark("jsonl", path)

        first, second = benchmark.items
        assert (first.id, first.question.answer, first.group) == ("q1", "B", "clips/a.mp4")
        assert (first.video, first.subtitles) == (tmp_path / "clips/a.mp4", tmp_path / "a.srt")
        assert first.bins == {"topic": "news", "year": "2024"}
        assert (second.id, second.question.answer, second.subtitles) == ("2", None, None)
        assert load_benchmark("jsonl", str(tmp_path)) == replace(benchmark, data=str(tmp_path))
        assert values("jsonl", benchmark, set()) == {"accuracy": 100.0, "topic news": 100.0, "year 2024": 100.0}

    @pytest.mark.parametrize(
        ("row", "reason"),
        [
            ({"anwser": "A"}, "unknown field 'anwser'; did you mean 'answer'?"),
            ({"zzz": 1}, "unknown field 'zzz'; known are id, video"),
            ({"answer": "C"}, "the answer 'C'"),
            ({"answer": "Rome"}, "the answer 'Rome'"),
            ({"options": "ab"}, "must be a list"),
            ({"options": ["x"]}, "2 to 26 options"),
            ({"video": ""}, "video is missing"),
            ({"bins": [1]}, "bins must be an object"),
            ({"id": "1"}, "occurs a second time"),
            ({"subtitles": 1.5}, "subtitles must be text"),
        ],
    )
    def test_lines_that_cannot_be_used(self, tmp_path: Path, row: dict[str, Any], reason: str) -> None:
        path = self.write(tmp_path / "questions.jsonl", self.ROW, self.ROW | row)

        benchmark = load_benchmark("jsonl", path)

        assert list(by_id(benchmark)) == ["1"]
        assert reason in benchmark.problems[0].what

    def test_a_line_that_is_no_json_is_a_problem_of_that_line(self, tmp_path: Path) -> None:
        benchmark = load_benchmark("jsonl", self.write(tmp_path / "questions.jsonl", self.ROW, "{", "[1]"))

        assert [problem.where for problem in benchmark.problems] == ["line 2", "line 3"]

    def test_several_files_are_one_too_many(self, tmp_path: Path) -> None:
        for name in ("a.jsonl", "b.jsonl"):
            self.write(tmp_path / name, self.ROW)

        with pytest.raises(DataError, match=r"holds 2 \.jsonl files"):
            load_benchmark("jsonl", tmp_path)
