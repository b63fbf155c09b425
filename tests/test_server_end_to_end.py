"""A model on a server from end to end: the command line, an answer with its bill, and an evaluation that survives."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fake_server import KEY, Fake, FakeClock, Fault, Open, opener, serving
from gridprobe.cli import cli
from gridprobe.errors import ServerUnavailable
from gridprobe.options import Options
from gridprobe.video import Video
from gridprobe_eval import Evaluation, PoolOptions
from gridprobe_eval.records import read_records
from toy_runs import lines, toy_benchmark
from videos import numbered_video

pytestmark = pytest.mark.usefixtures("decode_here")

OPTIONS = ("What is it?", "-o", "a dog", "-o", "a cat", "--k", "3")


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return numbered_video(tmp_path_factory.mktemp("server") / "clip.mp4", 60)


@pytest.fixture
def open_server() -> Iterator[Open]:
    with opener() as found:
        yield found


def run(*arguments: object, **environment: str) -> Result:
    environment = {"GRIDPROBE_MODEL": "", "COLUMNS": "100", **environment}
    return CliRunner(env=environment).invoke(cli, [*map(str, arguments)])


class TestAsk:
    def test_an_answer_a_map_and_a_bill(self, clip: Path, tmp_path: Path) -> None:
        fake = Fake(cached=3)
        with serving(fake) as url:
            done = run("ask", clip, *OPTIONS, "--model", f"{url}#fake", "--report", tmp_path / "page.html", "-v")

        assert done.exit_code == 0, done.output
        assert done.stderr.count("exact letter probabilities (by token ids)") == 1
        assert "TFLOPs unknown" in done.stdout and "% of the tokens of showing all" in done.stdout
        assert "from the server's cache" in done.stdout and "unknown" in (tmp_path / "page.html").read_text()

    def test_json_names_the_rung_and_counts_what_is_not_priced(self, clip: Path) -> None:
        with serving(Fake()) as url:
            prices = ("--load", "price_in=2.5", "--load", "price_out=10")
            done = run("ask", clip, *OPTIONS, "--model", url, "--json", "--effort", "full", *prices)

        answer = json.loads(done.stdout)
        assert answer["models"]["answerer"].endswith("#fake@fake-1;ids")
        cost = answer["cost"]
        assert cost["unpriced_calls"] == cost["calls"] > 1 and cost["tflops"] == 0
        assert cost["money"] == pytest.approx((2.5 * cost["tokens"] + 10 * cost["calls"]) / 1e6)
        assert any("rows and columns were probed" in warning for warning in answer["warnings"])

    def test_a_second_server_answers(self, clip: Path) -> None:
        with serving(Fake()) as first, serving(Fake(models=("large",), ids=False)) as second:
            done = run("ask", clip, *OPTIONS, "--model", first, "--answer-model", second, "--json", "--effort", "full")

        models = json.loads(done.stdout)["models"]
        assert models["selector"].endswith(";ids") and models["answerer"].endswith("#large@fake-1;top20")
        assert done.stderr.count("gridprobe: ") == 2

    @pytest.mark.parametrize("verb", ["ask", "compare"])
    def test_m12_an_answering_model_that_is_not_there_is_found_before_the_video_is_decoded(
        self, clip: Path, monkeypatch: pytest.MonkeyPatch, verb: str
    ) -> None:
        monkeypatch.setattr(Video, "pool", lambda *_, **__: pytest.fail("decoded"))
        with serving(Fake()) as first:
            done = run(verb, clip, *OPTIONS, "--model", first, "--answer-model", f"{first}#other")

        assert done.exit_code == 2 and "does not serve 'other'" in done.stderr

    def test_options_of_a_server_need_a_server(self, clip: Path) -> None:
        done = run("ask", clip, *OPTIONS, "--model", "embedded", "--load", "timeout=5")

        assert done.exit_code == 2 and "of --load is for models on a server" in done.stderr

    def test_a_key_appears_in_no_output(self, clip: Path) -> None:
        with serving(Fake(key=KEY)) as url:
            good = run("ask", clip, *OPTIONS, "--model", url, "--json", GRIDPROBE_API_KEY=KEY)
            bad = run("ask", clip, *OPTIONS, "--model", url, GRIDPROBE_API_KEY=f"{KEY}9")

        assert good.exit_code == 0 and bad.exit_code == 1 and "refuses access" in bad.stderr
        assert KEY not in good.output + bad.output


AMID = 4
"""Calls of a run of three videos after which its server goes away; the questions of a video are asked together."""


class TestEvaluation:
    """users.md M02 and E01: a server that dies in the middle costs time, not questions."""

    def evaluation(self, folder: Path, server: object) -> Evaluation:
        settings = Options.from_preset("default", k=2, probes="fresh", effort="full")
        setup = settings.resolve(model=server)
        benchmark = toy_benchmark(folder / "data", videos=3, questions=4)
        return Evaluation(benchmark, folder / "run", setup=setup, pool=PoolOptions(workers=0))

    # M02 of tests/reliability.md
    def test_a_restart_in_the_middle_loses_nothing(self, tmp_path: Path, open_server: Open) -> None:
        fake, clock = Fake(), FakeClock()
        server = open_server(fake, clock=clock)
        clock.slept, start = 0.0, fake.asked
        fake.down = lambda: fake.asked > start + AMID and clock.slept < 300

        with self.evaluation(tmp_path, server) as evaluation:
            result = evaluation.run()["all"]

        assert (result["answered"], result["failed"]) == (12, 0) and clock.slept >= 300

    # M02 of tests/reliability.md
    def test_a_server_that_stays_away_ends_the_run_which_can_be_resumed(
        self, tmp_path: Path, open_server: Open, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GRIDPROBE_API_KEY", KEY)
        fake = Fake()
        server = open_server(fake, timeout=30)
        start, gone = fake.asked, True
        fake.down = lambda: gone and fake.asked > start + AMID

        with pytest.raises(ServerUnavailable), self.evaluation(tmp_path, server) as evaluation:
            evaluation.run()
        records = read_records(tmp_path / "run")
        assert records.ids("failed") == set() and 0 < len(records.ids("answered")) < 12

        gone = False
        with self.evaluation(tmp_path, server) as evaluation:
            result = evaluation.run()["all"]
        assert (result["answered"], result["failed"]) == (12, 0)
        written = b"".join(file.read_bytes() for file in (tmp_path / "run").iterdir() if file.is_file())
        assert KEY.encode() not in written and b";ids" in written

    def test_m06_a_question_that_the_server_fails_at_fails_alone(self, tmp_path: Path, open_server: Open) -> None:
        fake, clock = Fake(), FakeClock()
        server = open_server(fake, clock=clock)
        bad = Fault.error(500, "Internal server error")
        fake.choose = lambda body: bad if "<v1-q2>" in json.dumps(body["messages"]) else None

        with self.evaluation(tmp_path, server) as evaluation:
            result = evaluation.run()

        assert (result["all"]["answered"], result["errors"]) == (11, {"ServerError": 1})
        assert "status 500" in read_records(tmp_path / "run").best["v1-q2"]["error"]["message"]

    def test_m11_a_resumed_run_refuses_a_server_of_another_configuration(self, tmp_path: Path) -> None:
        data = toy_benchmark(tmp_path / "data", videos=2, questions=1)
        rows = [{"video": str(item.video), "question": "Is it?", "options": ["yes", "no"]} for item in data.items]
        (tmp_path / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        fake = Fake()
        with serving(fake) as url:
            command = ("eval", "jsonl", "--data", tmp_path / "mine.jsonl", "--out", tmp_path / "run", "--model", url)
            begun = run(*command, "--k", 2, "--workers", 0, "--shard", "1/2")
            before = lines(tmp_path / "run")
            fake.fingerprint = "fake-2"
            resumed = run(*command, "--k", 2, "--workers", 0)

        assert (begun.exit_code, resumed.exit_code) == (0, 1), begun.output
        assert "begun with the models" in resumed.stderr and "fake-1" in resumed.stderr and "fake-2" in resumed.stderr
        assert before.total() == 1 and lines(tmp_path / "run") == before

    def test_a_run_with_named_models_works_in_other_processes(self, tmp_path: Path) -> None:
        data = toy_benchmark(tmp_path / "data", videos=2, questions=1)
        rows = [
            {"id": item.id, "video": str(item.video), "question": item.question.text, "options": ["yes", "no"]}
            for item in data.items
        ]
        (tmp_path / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        with serving(Fake()) as url:
            more = ("--model", url, "--k", "2", "--workers", "2", "--json")
            done = run("eval", "jsonl", "--data", tmp_path / "mine.jsonl", "--out", tmp_path / "run", *more)

        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["all"]["answered"] == 2
        assert json.loads((tmp_path / "run" / "models.json").read_text())[0].endswith("#fake@fake-1;ids")
