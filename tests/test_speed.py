"""The programs under speed/ run: a small model, few frames, one round. What they measure here means nothing."""

import json
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from auto_checkpoints import make_auto_checkpoint
from embedded_models import make_models
from gridprobe.models import FrameGroup, Request, View, cost_model_of
from gridprobe.video import FrameSize
from videos_of_arrays import gray_pool

pytestmark = pytest.mark.release
SPEED = Path(__file__).parent.parent / "speed"


def run(program: str, *arguments: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SPEED))
    monkeypatch.setattr(sys, "argv", [program, *map(str, arguments)])
    runpy.run_path(str(SPEED / program), run_name="__main__")


def test_overview_compares_every_way_with_plain_transformers(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "results"
    tiny = ("--model", tiny_checkpoint, "--device", "cpu", "--k", 3, "--kept", 2, "--rounds", 1)

    run("overview.py", *tiny, "--out", out, monkeypatch=monkeypatch)

    rival, *ours = (json.loads(line) for line in (out / "overview.jsonl").read_text().splitlines())
    assert rival["ratio"] == 1.0 and rival["packing"] == "pairs"
    assert [each["packing"] for each in ours] == ["single"] * 4 + ["pairs"] * 4
    assert [each["target"] for each in ours[:4]] == [0.06, 0.02, 0.22, None]
    for each in ours:
        assert each["ratio"] == pytest.approx(each["seconds"] / rival["seconds"])
        line = f"| {each['way']} | {each['packing']} | {each['seconds']:.4f} | {each['ratio']:.4f} |"
        assert line in (out / "overview.md").read_text()


def test_followup_asks_every_question_in_every_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("gridprobe_world.embedded.WEIGHTS", make_models(tmp_path / "models"))
    monkeypatch.setattr("torch.set_num_threads", lambda count: None)  # it would stay for the tests after this one

    run("followup.py", "--count", 3, "--k", 3, "--output", tmp_path / "table.md", monkeypatch=monkeypatch)

    table = (tmp_path / "table.md").read_text()
    assert "| mean question | 3 |" in table and "≤ 0.25" in table
    assert capsys.readouterr().out.count(" all ") >= 3


def test_followup_divides_the_means_of_the_same_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SPEED))
    table = runpy.run_path(str(SPEED / "followup.py"))["table"]

    def asked(seconds: float, by: str) -> Any:
        return SimpleNamespace(seconds=seconds, by=by, right=True)

    lines = table(
        [
            {"all": asked(4.0, "focus"), "alone": asked(1.0, "focus"), "later": asked(0.5, "focus")},
            {"all": asked(6.0, "focus"), "alone": asked(2.0, "overview"), "later": asked(0.3, "overview")},
        ]
    ).splitlines()

    assert "| mean question | 2 | 1.500 | 5.000 | 0.300 | ≤ 0.25 | 1.000 | 1.000 |" in lines
    assert "| follow-up, settled by the overview | 1 | 0.300 | 6.000 | 0.050 | ≤ 0.05 | 1.000 | 1.000 |" in lines


def test_many_asks_in_three_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gridprobe_world.embedded.WEIGHTS", make_models(tmp_path / "models"))
    monkeypatch.setattr("torch.set_num_threads", lambda count: None)

    run("many.py", "--count", 3, "--k", 3, "--minutes", 0.1, "--out", tmp_path / "many.json", monkeypatch=monkeypatch)

    rows = json.loads((tmp_path / "many.json").read_text())["rows"]
    assert [row["name"] for row in rows] == ["separate", "session", "together"]
    assert len({(row["right"], row["overview"]) for row in rows}) == 1


def test_many_needs_no_video_library_for_random_weights(tmp_path: Path) -> None:
    """The machine with a GPU has no PyAV."""
    code = f"import sys; sys.path.insert(0, {str(SPEED)!r}); sys.modules['av'] = None; import many; print(many.TARGET)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_many_counts_answers_a_second(tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SPEED))
    many = runpy.run_path(str(SPEED / "many.py"))
    given = SimpleNamespace(model=str(tiny_checkpoint), sizes=[], device="cpu", dtype="auto")
    (case,) = many["cases"](given)

    found = list(many["on_gpu"](case, 1, 2))

    assert [(each.way, each.questions) for each in found] == [
        (way, count) for way in ("engine", "session") for count in (1, 8, 32)
    ]
    assert all(each.answers_a_second == each.questions / each.seconds for each in found)
    assert "| session | 32 |" in many["gpu_table"](found)


def test_long_video_finds_the_same_needle_in_windows_and_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files with needles, questions in processes of their own; one answer is from the model of the package."""
    out = tmp_path / "long.json"
    run("long_video.py", "--hours", 0.05, "--k", 4, "--out", out, monkeypatch=monkeypatch)

    rows = json.loads(out.read_text())["rows"]
    assert [(row["kind"], row["k"], row["windows"]) for row in rows] == [("same frames", 4, 1), ("same density", 4, 1)]
    assert all(row["frames"] == 16 and row["mb"] > 0 for row in rows)
    assert [row["right"] for row in rows] == [True, True]


def test_mdp3_chooses_what_the_reference_chooses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("mdp3.py", "--rounds", 1, "--cases", "[[40, 3, 40, 1.0]]", "--out", tmp_path, monkeypatch=monkeypatch)

    assert "| 40 | 3 | " in (tmp_path / "mdp3.md").read_text()


def test_load_measures_a_crowd_throughput_and_a_soak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "load.json"
    small = ("--model", "embedded:nano", "--crowd", 4, "--count", 2, "--minutes", 0.1, "--k", 3, "--soak", 1)

    run("load.py", *small, "--cores", 1, "--out", out, monkeypatch=monkeypatch)

    found = json.loads(out.read_text())
    assert found["crowd"]["statuses"] == {"200": 4} and found["throughput"]["ratio"] > 0
    assert set(found["soak"]["statuses"]) <= {"200", "201", "400", "403", "404", "422", "429"}


def test_records_are_scanned_and_all_found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """E23: the program for the promise itself, here with few records and no limit."""
    with pytest.raises(SystemExit) as end:
        run("records.py", "--records", 50, "--limit", 1e9, monkeypatch=monkeypatch)

    assert end.value.code == 0 and "50 records, " in capsys.readouterr().out


def test_desk_load_counts_answers_and_merged_requests(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run("desk_load.py", "--model", "embedded:nano", "--count", 4, "--concurrency", 2, monkeypatch=monkeypatch)
    alone, merged = map(json.loads, capsys.readouterr().out.splitlines())

    assert (alone["concurrency"], alone["requests_a_call"]) == (1, 1.0)
    assert merged["concurrency"] == 2 and merged["requests_a_call"] >= 1
    assert alone["answers_a_second"] > 0 and merged["answers_a_second"] > 0


def test_method_asks_yes_or_no_with_the_embedded_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("gridprobe_world.embedded.WEIGHTS", make_models(tmp_path / "models"))
    out = tmp_path / "lines.jsonl"

    asked = ("--part", "yes-no", "--count", 1, "--k", 3, "--ways", "ours auto", "--device", "cpu")
    run("method.py", "run", *asked, "--out", out, monkeypatch=monkeypatch)
    run("method.py", "table", out, monkeypatch=monkeypatch)

    (line,) = map(json.loads, out.read_text().splitlines())
    assert (line["part"], line["way"]) == ("yes-no", "ours auto")
    assert "| ours auto | 1 |" in capsys.readouterr().out


def test_options_counts_every_order_and_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("gridprobe_world.embedded.WEIGHTS", make_models(tmp_path / "models"))

    run("options.py", "--videos", 1, monkeypatch=monkeypatch)

    rows = {row.split(" | ")[0][2:]: int(row.split(" | ")[1]) for row in capsys.readouterr().out.splitlines()[2:]}
    assert rows["yes/no"] == 2 * rows["yes/no, yes comes first"] == 2 * rows["yes/no, no comes first"] > 0
    assert rows["2 colours"] == rows["8 colours"] > 0


def test_the_shares_of_the_models_page_are_what_the_program_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run("shares.py", "--families", "qwen3_vl", "minicpmv4_6", monkeypatch=monkeypatch)

    rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    page = (SPEED.parent / "docs" / "models.md").read_text()
    families = {name: shares for name, _, *shares in rows if name.startswith("`")}
    assert len(families) == 2
    for name, (overview, focused, later) in families.items():
        (line,) = (line for line in page.splitlines() if line.startswith(f"| {name} |"))
        assert line.endswith(f"| {overview} | {focused} | {later} |")
    servers = [" | ".join(row) for row in rows if "/" in row[-1]]
    assert len(servers) == 3 and all(f"| {row} |" in page for row in servers)


def test_a_servers_cache_holds_pictures_from_the_first_one_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SPEED))
    shares = runpy.run_path(str(SPEED / "shares.py"))
    caching, forgetting = (shares["server_model"](service) for service in shares["SERVICES"][:2])

    overview, focused, later, _ = shares["costs"](caching, probes="when")
    assert overview.cached_tokens == 0 and focused.cached_tokens > overview.tokens
    assert later.tokens - later.cached_tokens < 100 < later.tokens
    assert not any(cost.cached_tokens for cost in shares["costs"](forgetting, probes="when"))


@pytest.mark.parametrize("family", ["gemma3", "qwen2_5_vl", "internvl"])
def test_operations_are_the_same_without_arithmetic(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(SPEED))
    shares = runpy.run_path(str(SPEED / "shares.py"))
    monkeypatch.setitem(shares["without_arithmetic"].__globals__, "LARGE", 500)
    folder = str(make_auto_checkpoint(family, tmp_path))
    request = Request("Which?", groups=(FrameGroup(gray_pool(2, width=64, height=64), View(FrameSize())),))

    counted = cost_model_of(folder).cost(request)
    with shares["without_arithmetic"]():
        assert cost_model_of(folder).cost(request) == counted


def test_watch_compares_with_the_rival(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rival = tmp_path / "crv"
    rival.write_text(
        f"#!{sys.executable}\nimport json, sys\nfrom pathlib import Path\nfrom PIL import Image\n"
        "out = Path(sys.argv[3])\n(out / 'grids').mkdir(parents=True)\n"
        "Image.new('RGB', (1500, 1500)).save(out / 'grids' / 'grid_001.jpg')\n"
        "(out / 'frames.json').write_text(json.dumps({'frames': [{'timestamp_sec': 1.0}]}))\n"
    )
    rival.chmod(0o755)

    short = ("--minutes", 0.2, "--brief", 0.5)
    run("watch.py", "--rival", rival, *short, "--out", tmp_path / "table.md", monkeypatch=monkeypatch)

    first, brief = [line for line in (tmp_path / "table.md").read_text().splitlines() if " min |" in line]
    assert first.startswith("| gridworld, 0.2 min | 1 | ") and " | 1 | 3,000 | " in first
    assert brief.startswith("| brief flashes, 0.5 min | 1 | ")


def test_the_agent_reads_the_cells_that_the_sheet_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    from gridprobe_watch.sheets import look
    from videos import numbered_video

    monkeypatch.syspath_prepend(str(SPEED))
    program = runpy.run_path(str(SPEED / "agent.py"))
    seen = look(numbered_video(tmp_path / "talk.mp4", 100, size=(64, 64)), frames=10, columns=4, per_sheet=10)

    cells = program["cells_of"](seen.sheets[0].draw(), 10, 4)

    for cell, frame in zip(cells, seen.frames.pixels, strict=True):
        assert np.array_equal(np.asarray(cell), frame)
