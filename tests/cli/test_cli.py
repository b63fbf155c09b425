"""The command line as a user meets it: real processes where it matters, click's runner elsewhere."""

import importlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result

import gridprobe
from gridprobe.cli import cli
from gridprobe.plan import Plan
from gridprobe.video import FrameCache, Video
from videos import numbered_video

SCHEMA = json.loads((Path(gridprobe.__file__).parent / "schemas" / "answer.json").read_text())


HANGING = """
import sys, threading
from gridprobe.cli import main
def load(*_, **__):
    print("loading", flush=True)
    threading.Event().wait()
import gridprobe.models
gridprobe.models.load_model = load
main()
"""
"""The command line with a model that takes for ever to load."""


@pytest.fixture(scope="session")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "clip.mp4"
    numbered_video(path, 100)
    return path


def run(*arguments: object, **environment: str) -> Result:
    return CliRunner(env={"GRIDPROBE_MODEL": "", **environment}).invoke(cli, [str(a) for a in arguments])


def process(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gridprobe", *map(str, arguments)]
    done: subprocess.CompletedProcess[str] = subprocess.run(command, capture_output=True, text=True, **options)
    return done


def ask(clip: Path, model: Path, *more: object) -> Result:
    return run("ask", clip, "What is it?", "-o", "a", "-o", "b", "--k", 3, "--model", model, *more)


class TestAsk:
    def test_frames_are_kept_on_disk_unless_told_otherwise(
        self, clip: Path, tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GRIDPROBE_CACHE", str(tmp_path / "cache"))

        assert ask(clip, tiny_checkpoint, "--set", "limits.cache=0").exit_code == 0
        assert not (tmp_path / "cache").exists()
        first = ask(clip, tiny_checkpoint, "--json")
        monkeypatch.setattr("gridprobe.video.decoder_pool.ChildDecoder.read", None)  # nothing is decoded again
        again = ask(clip, tiny_checkpoint, "--json")

        answers = [json.loads(result.stdout) for result in (first, again)]
        for answer in answers:
            answer.pop("seconds")
        assert answers[0] == answers[1]
        assert len(list((tmp_path / "cache" / "frames").rglob("?" * 64))) > 9

    def test_json_is_one_valid_object_on_stdout_and_nothing_else(self, clip: Path, tiny_checkpoint: Path) -> None:
        done = process(
            "ask", clip, "What is it?", "-o", "a", "-o", "b", "--model", tiny_checkpoint, "--json", cwd=clip.parent
        )

        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        jsonschema.validate(answer, SCHEMA)
        assert answer["selection"]["pool"] == 100 and answer["selection"]["k"] == 10
        assert answer["warnings"][0].count("100 distinct")

    def test_people_see_the_answer_the_map_and_the_cost(self, clip: Path, tiny_checkpoint: Path) -> None:
        result = ask(clip, tiny_checkpoint, "-v")

        assert result.exit_code == 0, result.output
        for word in ("Answered from", "of 9 frames", "% of the compute", "importance", "overview", "row by row"):
            assert word in result.stdout, result.stdout

    def test_map_and_report_are_files(self, clip: Path, tiny_checkpoint: Path, tmp_path: Path) -> None:
        result = ask(clip, tiny_checkpoint, "--map", tmp_path / "m.png", "--report", tmp_path / "r.html")

        assert result.exit_code == 0, result.output
        assert (tmp_path / "m.png").read_bytes().startswith(b"\x89PNG")
        assert "<html" in (tmp_path / "r.html").read_text()
        assert result.stderr.splitlines()[-2:] == [
            f"map saved to {tmp_path / 'm.png'}",
            f"report saved to {tmp_path / 'r.html'}",
        ]
        assert "saved" not in result.stdout

    @pytest.mark.parametrize("option", ["--map", "--report"])
    @pytest.mark.parametrize(("name", "reason"), [("missing/file", "does not exist"), (".", "not a regular file")])
    def test_a_file_that_cannot_be_written_is_refused_before_any_work(
        self, clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, name: str, reason: str
    ) -> None:
        monkeypatch.setattr(Plan, "open", None)

        result = ask(clip, Path("no-such-model"), option, tmp_path / name)

        assert result.exit_code == 2
        assert result.stderr.startswith(f"gridprobe: cannot write {tmp_path / name}: ") and reason in result.stderr

    def test_the_model_may_come_from_the_environment(self, clip: Path, tiny_checkpoint: Path) -> None:
        result = run("ask", clip, "?", "-o", "a", "-o", "b", "--k", 2, GRIDPROBE_MODEL=str(tiny_checkpoint))

        assert result.exit_code == 0, result.output

    def test_a_second_model_answers(self, clip: Path, tiny_checkpoint: Path) -> None:
        result = ask(clip, tiny_checkpoint, "--answer-model", tiny_checkpoint, "--load", "dtype=bfloat16", "--json")

        assert "bfloat16" in json.loads(result.stdout)["models"]["answerer"]

    @pytest.mark.parametrize(
        "more",
        [
            ("--selector", "uniform", "--frames", "3"),
            ("--selector", "random:5", "--frames", "3"),
            ("--selector", "all"),
            ("--selector", "uniform-like"),
            ("--preset", "paper"),
            ("--set", "show=importance", "--frames", "4"),
            ("--set", "show=collage"),
        ],
    )
    def test_every_way_of_asking_answers(self, clip: Path, tiny_checkpoint: Path, more: tuple[str, ...]) -> None:
        result = ask(clip, tiny_checkpoint, "--json", *more)

        assert result.exit_code == 0, result.output
        jsonschema.validate(json.loads(result.stdout), SCHEMA)

    def test_context_and_the_cheap_baseline_reach_the_setup(self, clip: Path, tiny_checkpoint: Path) -> None:
        context = json.loads(
            ask(clip, tiny_checkpoint, "--effort", "full", "--frames", 2, "--set", "context=small", "--json").stdout
        )
        small = json.loads(ask(clip, tiny_checkpoint, "--selector", "all-small", "--json").stdout)

        assert context["settings"]["context"]["pixels"]["max_side"] == 224 and context["selection"]["kept"] == 2
        assert small["selection"]["selector"] == "all-small" and small["settings"]["context"] is None
        assert small["models"]["selector"] is None and small["selection"]["kept"] == small["selection"]["pool"]

    def test_many_questions_give_one_line_each(
        self, clip: Path, tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        opened: list[object] = []
        original = Plan.open

        def noted(setup: Plan, video: str | Path) -> Video:
            opened.append(video)
            return original(setup, video)

        monkeypatch.setattr(Plan, "open", noted)
        rows = [
            {"id": "q1", "question": "one?", "options": ["a", "b"]},
            {"question": "two?", "options": ["c", "d", "e"]},
        ]
        (tmp_path / "q.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n\n")

        result = run("ask", clip, "--questions", tmp_path / "q.jsonl", "--k", 3, "--model", tiny_checkpoint, "--json")

        assert result.exit_code == 0, result.output
        answers = [json.loads(line) for line in result.stdout.splitlines()]
        assert [(answer["id"], answer["question"]) for answer in answers] == [("q1", "one?"), (None, "two?")]
        assert len(opened) == 1

    def test_q12_subtitles_that_cannot_be_read_are_counted(
        self, clip: Path, tiny_checkpoint: Path, tmp_path: Path
    ) -> None:
        lines = ["00:01 --> 00:02\nhello", "x --> y\nno time"]
        (tmp_path / "s.srt").write_text("\n\n".join(lines))

        more = ("--device", "cpu", "--subtitles", tmp_path / "s.srt")
        for verb in ("ask", "compare"):
            done = run(verb, clip, "What?", "-o", "a", "-o", "b", "--k", 2, "--model", tiny_checkpoint, *more)
            assert done.exit_code == 0, done.output
            assert "1 entries of" in done.stderr and "are not timed lines; they were left out" in done.stderr

    def test_subtitles_reach_the_prompt(self, clip: Path, tiny_checkpoint: Path, tmp_path: Path) -> None:
        (tmp_path / "s.srt").write_text("1\n00:00:00,000 --> 00:00:01,000\nhello world\n")

        plain, with_subtitles = (
            json.loads(ask(clip, tiny_checkpoint, "--json", *more).stdout)["cost"]["tokens"]
            for more in ((), ("--subtitles", tmp_path / "s.srt"))
        )

        assert with_subtitles > plain


class TestMistakes:
    """Exit code 2 for the user's mistakes, 1 for the input's and the model's; one sentence, on stderr."""

    @pytest.mark.parametrize(
        ("arguments", "code", "message"),
        [
            (["ask", "CLIP", "?", "-o", "a", "--model", "TINY"], 2, "2 to 26 options, got 1"),
            (["ask", "CLIP", " ", "-o", "a", "-o", "b", "--model", "TINY"], 2, "the question is empty"),
            (["ask", "CLIP", "--model", "TINY"], 2, "give either one QUESTION"),
            (["ask", "CLIP", "?", "-o", "a", "-o", "b", "--model", "gpt4"], 2, "neither a folder that exists nor"),
            (["ask", "CLIP", "?", "-o", "a", "-o", "b", "--model", "./no"], 1, "no config.json"),
            (["ask", "CLIP", "?", "-o", "a", "-o", "b", "--model", "no/body"], 1, "cannot find the model no/body"),
            (["ask", "CLIP", "?", "-o", "a", "-o", "b", "--k", "0", "--model", "TINY"], 2, "k must be a whole number"),
            (["ask", "CLIP", "?", "-o", "a", "-o", "b", "--frames", "x", "--model", "TINY"], 2, "frames must be"),
            (["ask", "CLIP", "?", "-o", "a", "-o", "b", "--selector", "uniform", "--model", "TINY"], 2, "--frames 8"),
            (["ask", "CLIP", "?", "-o", "a", "-o", "b", "--map", "/no/m.png", "--model", "TINY"], 2, "does not exist"),
            (["ask", "CLIP", "?", "-o", "a", "-o", "b", "--device", "tpu", "--model", "TINY"], 2, "unknown device"),
            (["ask", "nothing.mp4", "?", "-o", "a", "-o", "b", "--model", "TINY"], 1, "nothing.mp4"),
            (["ask", "TEXT", "?", "-o", "a", "-o", "b", "--model", "TINY"], 1, "text.mp4"),
            (["ask", "CLIP", "--questions", "BAD", "--model", "TINY"], 1, "line 2: not a JSON object"),
            (["ask", "CLIP", "--questions", "nofile", "--model", "TINY"], 1, "cannot read nofile"),
            (["ask", "CLIP", "?", "-o", "a", "-o", "b", "--subtitles", "nofile", "--model", "TINY"], 1, "nofile"),
        ],
    )
    def test_one_sentence_and_the_right_exit_code(
        self, arguments: list[str], code: int, message: str, clip: Path, tiny_checkpoint: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "text.mp4").write_text("not a video at all")
        (tmp_path / "bad.jsonl").write_text('{"question": "?", "options": ["a", "b"]}\nnonsense\n')
        names = {"CLIP": clip, "TINY": tiny_checkpoint, "TEXT": tmp_path / "text.mp4", "BAD": tmp_path / "bad.jsonl"}

        result = run(*(names.get(argument, argument) for argument in arguments))

        assert (result.exit_code, result.stdout) == (code, ""), result.output
        assert message in result.stderr
        assert "Traceback" not in result.stderr

    @pytest.mark.parametrize(
        ("row", "message"),
        [
            ('{"options": ["a", "b"]}', 'an object with a "question"'),
            ('{"question": "?", "options": "ab"}', "must be a list"),
            ('{"question": "?", "options": ["a"]}', "2 to 26 options"),
            ('{"question": "?", "options": ["a", "b"], "anwser": "A"}', "unknown key 'anwser'"),
            ('{"question": "?", "options": ["a", "b"], "answer": "C"}', "not one of the labels"),
            ('{"question": "?", "options": ["a", "b"], "id": 7}', "id must be text, got 7"),
            ("[1]", 'an object with a "question"'),
            ("", "contains no questions"),
        ],
    )
    def test_question_files_are_checked_line_by_line(self, row: str, message: str, clip: Path, tmp_path: Path) -> None:
        (tmp_path / "q.jsonl").write_text(row)

        result = run("ask", clip, "--questions", tmp_path / "q.jsonl", "--model", "x/y")

        assert result.exit_code == 1 and message in result.stderr

    # C01, C05 of tests/reliability.md
    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["ask", "CLIP", "?", "--modle", "x"], "--model"),
            (["ask", "CLIP", "?", "--k", "x"], "k must be a whole number"),
            (["ask", "CLIP", "?", "--k", "0", "--map", "m.png"], "k must be a whole number from 1 to 64, got 0"),
            (["ask", "CLIP", "?", "--effort", "quik"], "'quick'"),
            (["ask", "CLIP", "?", "--questions", "q.jsonl", "--map", "m.png"], "give either one QUESTION"),
            (["ask", "CLIP", "?", "--selector", "uniform", "--report", "r.html"], "--frames 8"),
            (["eval", "jsonl", "--data", "d", "--out", "run", "--model", "embedded", "--with", "opne=1"], "open"),
            (["sevre"], "'serve'"),
        ],
        ids=["flag", "type", "range", "choice", "conflict", "missing", "key", "verb"],
    )
    def test_an_unknown_flag_creates_nothing(
        self, clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
    ) -> None:
        monkeypatch.chdir(tmp_path)

        result = run(*[clip if each == "CLIP" else each for each in arguments])

        assert result.exit_code == 2 and words in result.stderr and isinstance(result.exception, SystemExit)
        assert list(tmp_path.iterdir()) == []

    def test_control_characters_in_names_are_shown_not_obeyed(self) -> None:
        result = run("ask", "evil\x1b[2J\nname.mp4", "?", "-o", "a", "-o", "b", "--model", "./x")

        assert "\x1b" not in result.stderr and result.stderr.count("\n") == 1

    def test_a_closed_pipe_is_no_traceback(self, clip: Path, tiny_checkpoint: Path) -> None:
        command = f"{sys.executable} -m gridprobe list selectors | head -1"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)

        assert "Traceback" not in done.stderr

    @pytest.mark.parametrize("arguments", [("list", "models"), ("--help",), ("list", "--help"), ("--version",)])
    def test_output_to_a_full_disk_is_one_sentence(self, arguments: tuple[str, ...]) -> None:
        """E07."""
        with Path("/dev/full").open("w") as full:
            command = [sys.executable, "-m", "gridprobe", *arguments]
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)

        assert done.returncode == 1
        assert done.stderr == "gridprobe: cannot write to standard output: No space left on device\n"

    def test_ctrl_c_while_the_package_is_imported(self, tmp_path: Path) -> None:
        """C04: a package that the command line imports sends the signal at the first moment of that import."""
        (tmp_path / "click.py").write_text(
            "import os, signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "os.kill(os.getpid(), signal.SIGINT)\n"
        )
        path = os.pathsep.join([str(tmp_path), str(Path(gridprobe.__file__).parents[1])])
        command = [sys.executable, "-m", "gridprobe", "--help"]

        done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)

        assert (done.returncode, done.stdout, done.stderr) == (130, "", "gridprobe: interrupted\n")

    def test_ctrl_c_is_exit_code_130_and_no_traceback(self, clip: Path) -> None:
        child = subprocess.Popen(
            [sys.executable, "-c", HANGING, "ask", str(clip), "?", "-o", "a", "-o", "b", "--model", "./x"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            assert child.stdout is not None and child.stdout.readline() == b"loading\n"
            child.send_signal(signal.SIGINT)
            _, stderr = child.communicate()
        finally:
            child.kill()

        assert child.returncode == 130, stderr.decode()
        assert stderr == b"gridprobe: interrupted\n"


class TestOtherVerbs:
    def test_help_names_every_verb_and_the_first_steps(self) -> None:
        result = run("--help")

        for word in ("ask", "demo", "doctor", "list", "plan", "eval", "gridprobe demo"):
            assert word in result.stdout

    @pytest.mark.parametrize(
        ("what", "word"),
        [
            ("models", "Qwen/Qwen3-VL-2B-Instruct"),
            ("selectors", "uniform-like"),
            ("presets", "paper"),
            ("benchmarks", "mlvu"),
        ],
    )
    def test_list(self, what: str, word: str) -> None:
        assert word in run("list", what).stdout

    def test_list_shows_cached_models(self, tmp_path: Path) -> None:
        (tmp_path / "models--Qwen--Qwen3-VL-9B-Test").mkdir()

        assert "Qwen/Qwen3-VL-9B-Test" in run("list", "models", HF_HUB_CACHE=str(tmp_path)).stdout

    # V15 of tests/reliability.md
    def test_doctor_runs_the_self_test(self) -> None:
        result = run("doctor", "--json")

        checks = {check["name"]: check for check in json.loads(result.stdout)}
        assert result.exit_code == 0
        assert checks["self-test"]["state"] == checks["video decoding"]["state"] == "ok"
        assert {"h264", "hevc", "vp9", "av1"} <= set(checks["video decoding"]["note"].split())
        assert re.search(r"plan \(\d+ frames from \d+ groups of pictures, \d+ to decode\)", checks["self-test"]["note"])

    @pytest.mark.parametrize(
        ("held", "note"),
        [
            (["no_new_privs", "landlock", "seccomp"], "that can only read its video (no_new_privs, landlock, seccomp)"),
            (
                ["no_new_privs", "seccomp"],
                ", where this system lacks landlock (it can read its video and no other file",
            ),
        ],
    )
    def test_doctor_says_what_protects_from_a_hostile_video(
        self, held: list[str], note: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("gridprobe.video.decoder_pool.sandbox", lambda: held)
        monkeypatch.setitem(sys.modules, "torch", None)  # so that no model is loaded

        checks = {check["name"]: check for check in json.loads(run("doctor", "--json").stdout)}

        assert (
            f"; decoded in a child process{'' if note.startswith(',') else ' '}{note}"
            in checks["video decoding"]["note"]
        )

    def test_plan_shows_what_each_precision_costs(self, clip: Path) -> None:
        result = run("plan", clip, "--k", 3)

        lines = result.stdout.splitlines()
        assert result.exit_code == 0, result.output
        assert "9 samples, one every 0.444 s; frames of 224×64, kept frames of 256×64" in result.stdout
        first = next(number for number, line in enumerate(lines) if line.startswith("exact"))
        assert [line.split()[0] for line in lines[first : first + 3]] == ["exact", "keyframe", "auto"]
        assert "auto (used)" in lines[first + 2]

    def test_plan_as_json_agrees_with_the_answer(self, clip: Path) -> None:
        from gridprobe.video import sample

        found = json.loads(run("plan", clip, "--k", 3, "--json").stdout)

        assert (found["schema"], found["precision"], found["cells"]) == ("gridprobe.plan/1", "auto", 9)
        for precision, way in found["precisions"].items():
            assert tuple(way["times"]) == sample(clip, num_frames=9, precision=precision).times
            assert way["frames"] == len(way["times"]) <= way["decode"]
        paper = json.loads(run("plan", clip, "--k", 3, "--preset", "paper", "--json").stdout)
        assert (paper["precision"], paper["video"]["frames"]) == ("exact", 100)
        assert found["sizes"] == {"pool": [224, 64], "kept": [256, 64]}
        assert paper["sizes"] == {"pool": [736, 192], "kept": [736, 192]}  # enlarged to 128 tokens

    @pytest.mark.parametrize(("k", "reason"), [(0, "k must be"), (12, "no such file")])
    def test_plan_of_what_is_not_there(self, k: int, reason: str) -> None:
        result = run("plan", "video-mme", "--k", k)

        assert result.exit_code == (2 if k == 0 else 1)
        assert reason in result.stderr and len(result.stderr.splitlines()) == 1

    def test_doctor_shows_the_frame_cache(self, tmp_path: Path) -> None:
        FrameCache(tmp_path / "frames", 10**8).write([("key", bytes(3 << 20))])
        (tmp_path / "file").touch()
        notes = []

        for place in (str(tmp_path), "off", str(tmp_path / "file")):
            result = run("doctor", "--json", GRIDPROBE_CACHE=place)
            assert result.exit_code == 0
            notes.append(next(c for c in json.loads(result.stdout) if c["name"] == "frame cache"))

        assert [note["state"] for note in notes] == ["ok", "absent", "absent"]
        assert notes[0]["note"] == f"{tmp_path}/frames: 3.0 MiB of at most 2 GiB, 1 files"
        assert len(list((tmp_path / "frames").rglob("?" * 64))) == 1  # the self-test leaves nothing behind

    def test_the_frame_cache_is_shown_and_cleared(self, tmp_path: Path) -> None:
        FrameCache(tmp_path / "frames", 10**8).write([("key", bytes(3 << 20)), ("other", bytes(1 << 20))])
        (tmp_path / "frames" / "mine.txt").touch()

        shown, cleared, off = (
            run("cache", *more, GRIDPROBE_CACHE=place)
            for more, place in (([], str(tmp_path)), (["--clear"], str(tmp_path)), (["--clear"], "off"))
        )

        assert (shown.exit_code, cleared.exit_code, off.exit_code) == (0, 0, 0)
        full = f"{tmp_path}/frames: 4.0 MiB of at most 2 GiB, 2 files"
        assert shown.stdout == f"{full}\n"
        assert cleared.stdout == f"cleared {full}\nnow {tmp_path}/frames: 0.0 MiB of at most 2 GiB, 0 files\n"
        assert "disabled (GRIDPROBE_CACHE=off)" in off.stdout
        assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["mine.txt"]

    def test_doctor_names_the_extra_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "torch", None)  # importing it now fails as if it were not installed

        result = run("doctor", "--json")
        (note,) = [check["note"] for check in json.loads(result.stdout) if check["name"] == "local models"]

        assert result.exit_code == 0
        assert note == (
            "torch is not installed; run: pip install 'gridprobe[local]'; "
            "without a GPU run first: pip install torch --index-url https://download.pytorch.org/whl/cpu"
        )

    def test_doctor_survives_a_decoder_that_cannot_be_imported(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """C06: finding this out is what doctor is for."""
        monkeypatch.setitem(sys.modules, "av", None)
        monkeypatch.setitem(sys.modules, "torch", None)  # so that no model is loaded

        result = run("doctor", "--json")

        found = {check["name"]: check for check in json.loads(result.stdout)}
        assert result.exit_code == 1 and found["video decoding"]["state"] == "broken"
        assert "PyAV does not load" in found["video decoding"]["note"]
        assert found["self-test"]["note"] == "needs PyAV, which does not load"

    def test_a_decoder_that_cannot_be_imported_is_one_sentence(
        self, clip: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """C06."""
        monkeypatch.setitem(sys.modules, "av", None)

        result = run("plan", clip)

        assert result.exit_code == 1 and "PyAV does not load" in result.stderr

    def test_doctor_names_what_is_broken(self, monkeypatch: pytest.MonkeyPatch) -> None:
        module = importlib.import_module("gridprobe.cli.doctor")  # the package's attribute of that name is the command
        monkeypatch.setattr(module, "_sees", lambda request: dict.fromkeys(request.labels, 1.0))

        result = run("doctor", "--json")

        assert result.exit_code == 1
        assert json.loads(result.stdout)[-1]["note"].startswith("answered A, not")

    def test_plain_ascii_where_the_terminal_knows_no_more(self) -> None:
        environment = {**os.environ, "LANG": "C", "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
        without_torch = "import sys; sys.modules['torch'] = None; from gridprobe.cli import main; main()"
        command = [sys.executable, "-c", without_torch, "doctor"]

        done = subprocess.run(command, env=environment, capture_output=True, text=True)

        assert done.returncode == 0, done.stderr
        assert done.stdout.isascii()
