"""What `gridprobe eval` shows while it runs."""

import pytest

from gridprobe_eval.cli.evaluate import RunPace, in_plain_lines, span
from gridprobe_eval.runner import RunState


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(("seconds", "words"), [(42.4, "42 s"), (700, "12 min"), (7500, "2 h 5 min")])
def test_spans(seconds: float, words: str) -> None:
    assert span(seconds) == words


def test_the_time_left_counts_only_what_this_process_asked() -> None:
    clock = Clock()
    pace = RunPace(clock)

    assert pace.words(RunState("loading the model", 50, 100, 30, 40)) == "accuracy 75.0%"
    clock.now += 60  # loading does not count
    assert pace.words(RunState("asking a", 50, 100, 30, 40)) == "accuracy 75.0%"
    clock.now += 10
    assert pace.words(RunState("asked a", 51, 100, 30, 41)) == "accuracy 73.2%, about 8 min left"
    assert pace.words(RunState("asked b", 100, 100)) == ""
    assert pace.elapsed == 70


def test_a_log_gets_the_first_steps_and_then_few_lines(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    watch = in_plain_lines(clock)

    watch("overview", None)  # what single stages announce is not for this
    watch("run", RunState("loading the model", 0, 9))
    watch("run", RunState("opening the first video", 0, 9))
    for number in range(1, 5):
        watch("run", RunState(f"asking q{number}", number - 1, 9))
        clock.now += 4
        watch("run", RunState(f"asked q{number}", number, 9, number, number))

    assert capsys.readouterr().err.splitlines() == [
        "loading the model",
        "opening the first video",
        "1 of 9 questions, accuracy 100.0%, about 32 s left, 4 s elapsed",
        "4 of 9 questions, accuracy 100.0%, about 20 s left, 16 s elapsed",
    ]
