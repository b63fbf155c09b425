"""gridprobe doctor --model, on models whose faults are known."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from auto_checkpoints import new_enough
from gridprobe import MockModel
from gridprobe.cli import cli
from gridprobe.cli.doctor import CHECK_FRAMES, ENOUGH, MOST, checks_of
from gridprobe.errors import ModelError
from gridprobe.models import Capabilities, Posterior, Request
from gridprobe.models.base import posteriors


def from_frames(request: Request) -> dict[str, float]:
    """Depends on the frames, their order and their times."""
    levels = request.frames.pixels[:, 0, 0, 0].astype(float) + 1.0
    weights = levels * np.arange(1, len(levels) + 1)
    return {label: 1.0 + i + weights.sum() + request.frames.times[0] for i, label in enumerate(request.labels)}


def ticking(step: float) -> Callable[[], float]:
    """A clock that goes on by `step` seconds each time it is read."""
    times = iter(np.arange(0.0, 1e6 * step, step).tolist())
    return lambda: next(times)


def found(model: MockModel, *, step: float = 0.001) -> dict[str, tuple[str, str]]:
    return {check.name: (check.state, check.note) for check in checks_of(model, clock=ticking(step))}


def test_a_good_model_passes() -> None:
    checks = found(MockModel(from_frames, text=lambda request: {"a cat": 1.0}))

    states = {name: state for name, (state, _) in checks.items()}
    assert states.pop("profile") == "absent" and "gridprobe profile MODEL" in checks["profile"][1]
    assert states == dict.fromkeys(("letters", "frames", "abilities", "speed"), "ok")
    assert checks["abilities"][1] == "everything works; 28 tokens for a frame of 224×128"


@pytest.mark.parametrize(
    ("answer", "state", "note"),
    [
        (lambda request: dict.fromkeys(request.labels, 1.0), "broken", "the frames or their order or their times"),
        (
            lambda request: {label: 1.0 + i + request.frames.times[0] for i, label in enumerate(request.labels)},
            "broken",
            "the frames or their order",
        ),
        (
            lambda request: {label: 1.0 + i + request.frames.pixels.mean() for i, label in enumerate(request.labels)},
            "absent",
            "their order or their times",
        ),
    ],
    ids=["nothing", "only times", "only pixels"],
)
def test_a_model_that_does_not_look_is_found_out(
    answer: Callable[[Request], dict[str, float]], state: str, note: str
) -> None:
    assert found(MockModel(answer))["frames"] == (state, f"its answer does not depend on {note}")


def test_speed_is_that_of_the_largest_round_there_was_time_for() -> None:
    slow, fast = MockModel(from_frames), MockModel(from_frames)
    rate = found(slow, step=ENOUGH)["speed"][1]

    assert rate.startswith(f"0.2 probes a second, 1 at once, each of {CHECK_FRAMES} frames of 224×128; ")
    assert rate.endswith(f"{slow.requests and slow.cost(slow.requests[-1]).tokens / ENOUGH:,.0f} tokens a second")
    assert found(fast, step=1e-4)["speed"][1].startswith(f"{MOST / 1e-4:.3g} probes a second, {MOST} at once, ")


def test_no_two_probes_show_the_same_frames() -> None:
    model = MockModel(from_frames)
    found(model)
    probes = [request.frames.keys for request in model.requests if len(request.frames) == CHECK_FRAMES]

    assert len(set(probes)) == len(probes) > MOST


class Limited(MockModel):
    def __init__(self, answer: Callable[[Request], dict[str, float]]) -> None:
        super().__init__(answer)
        self.capabilities = Capabilities(frame_pairs=False, frame_multiple=32, tokens_per_image=256)

    def run(self, requests: Sequence[Request]) -> list[Posterior]:
        return [Posterior(p.labels, p.logprobs, p.cost, 0.05) for p in posteriors(super().run(requests))]


def test_what_is_lacking_is_said() -> None:
    checks = found(Limited(from_frames))

    assert checks["letters"][0] == "absent" and checks["letters"][1].startswith("only 5% of the probability is on the")
    assert checks["abilities"][1].startswith(
        "lacks a map from attention, close-ups behind the overview, a look at single frames of what was read, texts; "
    )
    assert checks["abilities"][1].endswith("and as many for one of any other size")


def test_an_error_ends_the_list() -> None:
    def fails(request: Request) -> dict[str, float]:
        raise ModelError("the server is gone")

    assert list(found(MockModel(fails)).items()) == [("request", ("broken", "the server is gone"))]


@new_enough
def test_the_command(auto_folder: Callable[[str], Path]) -> None:
    good = CliRunner().invoke(cli, ["doctor", "--model", str(auto_folder("smolvlm")), "--device", "cpu", "--json"])
    bad = CliRunner().invoke(cli, ["doctor", "--model", "./nowhere"])

    checks = {check["name"]: check for check in json.loads(good.stdout)}
    assert good.exit_code == 0 and list(checks) == ["model", "letters", "frames", "abilities", "profile", "speed"]
    assert checks["model"]["note"].startswith("smolvlm@") and "tokens a second" in checks["speed"]["note"]
    assert bad.exit_code == 1 and "is not a checkpoint folder" in " ".join(bad.stdout.split())
