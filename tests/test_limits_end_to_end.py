"""Limits from end to end: a real engine on a real file, a server, the command line, and what `plan` says before."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import gridprobe as gp
from fake_server import Fake, serving
from gridprobe.cli import cli
from gridprobe.errors import OverLimit
from gridprobe.limits import UsageLimits, learn_pace, read_pace
from gridprobe.models import cost_model_of
from gridprobe.models.base import Cost
from gridprobe.models.qwen3vl.engine import Qwen3VL
from gridprobe.options import Options
from gridprobe.video import FrameSize, probe
from gridprobe_eval.planning import Models, offers
from videos import numbered_video

pytestmark = pytest.mark.usefixtures("decode_here")

QUESTION = gp.Question("What is it?", ["a dog", "a cat", "a horse"])
OPTIONS = ("What is it?", "-o", "a dog", "-o", "a cat", "--k", "4", "--effort", "full")


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return numbered_video(tmp_path_factory.mktemp("budgets") / "clip.mp4", 200)


SMALL = ("--set", 'small={"max_side": 32}')
"""So that the frames of the clip are not small themselves."""


def ask(clip: Path, model: Qwen3VL, **options: Any) -> gp.Answer:
    limits = {name: options.pop(name) for name in list(options) if name.startswith("max_")}
    settings = {"k": 6, "effort": "full", **options}
    return gp.ask(clip, QUESTION, model=model, usage_limits=UsageLimits(**limits), **settings)


def run(*arguments: object, **environment: str) -> Result:
    environment = {"GRIDPROBE_MODEL": "", "COLUMNS": "120", **environment}
    return CliRunner(env=environment).invoke(cli, [*map(str, arguments)])


@pytest.fixture(scope="module")
def free(clip: Path, tiny_model: Qwen3VL) -> gp.Answer:
    return ask(clip, tiny_model)


@pytest.mark.parametrize("share", [1.0, 0.8, 0.55, 0.12])
@pytest.mark.parametrize("limit", ["max_tokens", "max_tflops", "max_gpu_memory"])
def test_a_local_engine_keeps_to_its_limits_exactly(
    clip: Path, tiny_model: Qwen3VL, free: gp.Answer, limit: str, share: float
) -> None:
    weights = tiny_model.capabilities.memory(0)
    longest = max(each.cost.tokens for each in (free.reached.overview, free.reached.focus) if each)
    whole = {
        "max_tokens": free.cost.total.tokens,
        "max_tflops": free.cost.tflops,
        "max_gpu_memory": tiny_model.capabilities.memory(longest) - weights,
    }[limit]
    most = round(share * whole) if limit == "max_tokens" else share * whole
    asked = {limit: most + (weights if limit == "max_gpu_memory" else 0)}
    overview = free.reached.overview
    assert overview is not None
    least = {
        "max_tokens": overview.cost.tokens,
        "max_tflops": overview.cost.tflops,
        "max_gpu_memory": tiny_model.capabilities.memory(overview.cost.tokens) - weights,
    }[limit]
    if least > most:
        with pytest.raises(OverLimit, match=f"more than --{limit.replace('_', '-')} "):
            ask(clip, tiny_model, **asked)
        return
    answer = ask(clip, tiny_model, **asked)
    passes = [each.cost.tokens for each in (answer.reached.overview, answer.reached.focus) if each]
    taken = {
        "max_tokens": answer.cost.total.tokens,
        "max_tflops": answer.cost.tflops,
        "max_gpu_memory": tiny_model.capabilities.memory(max(passes)) - weights,
    }[limit]
    assert taken <= most * (1 + 1e-9)
    assert bool(answer.reached.degraded) == (share < 1.0)


def test_a_second_look_is_left_out_or_paid(clip: Path, tiny_model: Qwen3VL) -> None:
    free = ask(clip, tiny_model, refine=True, exit_confidence=1.0)
    same = ask(clip, tiny_model, refine=True, exit_confidence=1.0, max_tokens=3 * free.cost.total.tokens)
    less = ask(clip, tiny_model, refine=True, exit_confidence=1.0, max_tokens=free.cost.total.tokens // 2)

    assert same.cost.total.tokens == free.cost.total.tokens and same.reached.degraded == ()
    assert less.cost.total.tokens <= free.cost.total.tokens // 2
    assert any(text.startswith("hot stretches were not sampled again") for text in less.reached.degraded)


def test_the_memory_of_an_engine_is_what_its_gauge_says(tiny_checkpoint: Path, tiny_model: Qwen3VL) -> None:
    gauge = cost_model_of(str(tiny_checkpoint))
    each = tiny_model.capabilities.memory(1000) - tiny_model.capabilities.memory(0)
    assert each == pytest.approx(2 * (gauge.capabilities.memory(1000) - gauge.capabilities.memory(0))), (
        "float32 here, bfloat16 there"
    )


def test_a_limit_that_does_not_fit_names_the_one_that_would(clip: Path, tiny_checkpoint: Path) -> None:
    done = run("ask", clip, *OPTIONS, "--model", tiny_checkpoint, "--max-tokens", 5)
    assert done.exit_code == 2 and re.search("this question takes at least [0-9,]+ tokens, more than", done.stderr)
    enough = int(done.stderr.split("; --max-tokens ")[1].split(" is enough")[0])
    done = run("ask", clip, *OPTIONS, "--model", tiny_checkpoint, "--max-tokens", enough, "--json")
    answer = json.loads(done.stdout)
    assert answer["cost"]["tokens"] == enough and answer["settings"]["usage_limits"] == {"max_tokens": enough}
    assert any(text.endswith(f"over --max-tokens {enough}") for text in answer["warnings"])


def test_the_map_that_a_reader_would_see_is_left_out_if_it_cannot_be_paid(clip: Path, tiny_checkpoint: Path) -> None:
    asked = ("ask", clip, *OPTIONS[:-1], "quick", "--model", tiny_checkpoint)
    tokens = json.loads(run(*asked, "--json").stdout)["cost"]["tokens"]
    done = run(*asked, "--max-tokens", tokens)
    words = " ".join(done.stdout.split())
    assert done.exit_code == 0 and "the map was left out: it would take" in words
    assert f"tokens more, over --max-tokens {tokens}" in words


@pytest.mark.parametrize("share", [1.0, 0.6, 0.3])
def test_a_server_keeps_to_its_limits_by_what_it_bills(clip: Path, share: float) -> None:
    with serving(Fake()) as url:
        asked = ("ask", clip, *OPTIONS, "--model", url, "--json")
        free = json.loads(run(*asked).stdout)["cost"]["tokens"]
        done = run(*asked, "--max-tokens", round(share * free))
    answer = json.loads(done.stdout)
    assert answer["cost"]["tokens"] <= share * free
    assert any("--max-tokens" in text for text in answer["warnings"]), "a quarter is kept for what it may bill more"


def test_a_server_of_which_nothing_is_known_has_no_limit_of_operations(clip: Path) -> None:
    with serving(Fake()) as url:
        done = run("ask", clip, *OPTIONS, "--model", url, "--max-tflops", 1)
    assert done.exit_code == 2 and "so --max-tflops cannot be kept; use --max-tokens" in done.stderr


def test_plan_offers_what_an_answer_then_takes(clip: Path, tiny_checkpoint: Path, tiny_model: Qwen3VL) -> None:
    gauge = cost_model_of(str(tiny_checkpoint))
    options = Options(k=6, small=FrameSize(max_side=32))
    found = {each.name: each for each in offers(options, probe(clip), Models(gauge, gauge))}
    question = gp.Question("What does the person do right after the door has been closed?", [
        "opens the window", "sits down at the table", "leaves the room", "calls somebody",
    ])  # fmt: skip

    def tokens(**options: Any) -> int:
        return gp.ask(clip, question, model=tiny_model, k=6, small=FrameSize(max_side=32), **options).cost.total.tokens

    assert list(found) == ["quick", "auto", "full", "all frames"]
    assert found["quick"].tokens[0] == pytest.approx(tokens(effort="quick"), abs=36)  # a time may be a token longer
    least, most = found["full"].tokens
    assert least - 72 <= tokens(effort="full") <= most + 72
    assert found["all frames"].tokens[0] == pytest.approx(tokens(selector="all"), abs=36)
    assert found["auto"].tokens == (found["quick"].tokens[0], most)
    assert all(each.seconds is None and each.money is None for each in found.values())


def test_plan_says_what_fits_the_limits(clip: Path, tiny_checkpoint: Path) -> None:
    asked = ("plan", clip, "--k", 6, "--model", tiny_checkpoint, *SMALL)
    free = {each["name"]: each for each in json.loads(run(*asked, "--json").stdout)["offers"]}
    assert all(each["fits"] == "yes" and not each["over"] for each in free.values())
    most = free["auto"]["tokens"][0] + 1
    limited = {each["name"]: each for each in json.loads(run(*asked, "--max-tokens", most, "--json").stdout)["offers"]}
    fits = {name: each["fits"] for name, each in limited.items()}
    assert fits == {"quick": "yes", "auto": "maybe", "full": "no", "all frames": "no"}
    assert limited["auto"]["tokens"] == free["auto"]["tokens"], "nothing is cut for a limit"
    words = f"auto: may take {free['auto']['tokens'][1]:,} tokens, more than --max-tokens {most}"
    shown = run(*asked, "--max-tokens", most).stdout
    assert words in shown and "seconds will be known once" in shown


def test_plan_counts_no_more_frames_than_may_be_kept(clip: Path, tiny_checkpoint: Path) -> None:
    done = run("plan", clip, "--k", 6, "--model", tiny_checkpoint, "--max-frames", 1, "--json", *SMALL)
    assert [each["frames"] for each in json.loads(done.stdout)["offers"][:3]] == [[0, 0], [0, 1], [1, 1]]


def test_plan_knows_seconds_once_a_model_has_answered_here(clip: Path, tiny_checkpoint: Path, tmp_path: Path) -> None:
    asked = (clip, "--k", 3, "--model", tiny_checkpoint)
    cache = {"GRIDPROBE_CACHE": str(tmp_path)}
    assert json.loads(run("plan", *asked, "--json", **cache).stdout)["offers"][0]["seconds"] is None
    run("ask", clip, *OPTIONS, "--model", tiny_checkpoint, **cache)
    before, after = json.loads(run("plan", *asked, "--json", **cache).stdout)["offers"][0]["seconds"]
    assert 0 < before == after
    quick = json.loads(run("plan", *asked, "--json", "--max-seconds", before / 2, **cache).stdout)["offers"][0]
    assert quick["fits"] == "no" and "--max-seconds" in quick["over"]


def test_plan_has_the_money_of_a_server_with_prices(clip: Path) -> None:
    served = (
        "-m",
        "http://localhost:1/v1#Qwen/Qwen3-VL-2B-Instruct",
        "--load",
        "price_in=2",
        "--load",
        "price_out=4",
    )
    quick = json.loads(run("plan", clip, "--k", 6, *served, "--json").stdout)["offers"][0]
    assert quick["money"][0] == pytest.approx((2 * quick["tokens"][0] + 4) / 1e6)
    assert "money" in run("plan", clip, "--k", 6, *served).stdout


def test_a_pace_that_is_kept_is_used_by_the_next_process(tmp_path: Path) -> None:
    learn_pace("m", Cost(tokens=1, flops_computed=1e12), 2.0, folder=tmp_path)
    assert read_pace("m", folder=tmp_path).seconds_for(Cost(flops=1e12)) == 2.0


@pytest.mark.parametrize(("flag", "value"), [("--max-frames", 0), ("--max-tflops", -1), ("--max-seconds", "nan")])
def test_what_is_no_limit_is_one_sentence(clip: Path, flag: str, value: object) -> None:
    done = run("ask", clip, *OPTIONS, flag, value)
    assert done.exit_code == 2 and flag[2:].replace("-", "_") in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_run_that_stops_at_its_total_says_so_in_eval_status_and_score(
    clip: Path, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    (tmp_path / clip.name).symlink_to(clip)
    rows = [{"id": f"q{n}", "video": clip.name, "question": "What?", "options": ["a", "b"]} for n in range(3)]
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps({**row, "answer": "A"}) + "\n" for row in rows))
    asked = ("eval", "jsonl", "--data", tmp_path / "mine.jsonl", "--out", tmp_path / "run", "--model", tiny_checkpoint)
    done = run(*asked, "--k", 3, "--total-tokens", 3)

    sentence = "3 questions were not asked: --total-tokens 3 (0 spent)"
    assert done.exit_code == 0 and f"{sentence}; repeat the command with a larger total to go on" in done.stdout
    assert sentence in run("status", tmp_path / "run").stdout
    assert sentence in run("score", tmp_path / "run").stdout
