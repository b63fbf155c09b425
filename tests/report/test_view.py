"""Where the answer is: the sentence, the stretches, what is shown large, and how options are folded."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from gridprobe import Answer, MockModel, Question, Session
from gridprobe.answer import AnswerCost
from gridprobe.models import Posterior, Request
from gridprobe.models.base import Cost, Response
from gridprobe.report.answer_page import render
from gridprobe.report.picture import _title
from gridprobe.report.terminal import short_view
from gridprobe.report.view import AnswerView, total_words
from gridprobe.selectors.base import FLAT
from report.answers import CITIES, balloon, by_frame, handmade, posterior, reached, without_map

SURE = posterior(B=0.998)


def hot(*frames: int, count: int = 36, kept: tuple[int, ...] = (), **changes: Any) -> Answer:
    """A map by frame that is 1 at these frames and 0.01 elsewhere."""
    scores = tuple(1.0 if i in frames else 0.01 for i in range(count))
    return by_frame(scores, kept=kept or frames, **changes)


def overview(answer: Answer) -> Answer:
    return reached(answer, "overview", overview=SURE)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (overview(hot(4, 5, kind="evidence")), "seen at 40:00–50:00, in 2 of 36 frames"),
        (overview(hot(4, kind="evidence")), "seen at 40:00, in 1 of 36 frames"),
        (overview(hot(4, kind="evidence", kept=(4, 9))), "seen mainly at 40:00, in 2 of 36 frames"),
        (overview(hot(4, 9)), "read from all 36 frames, mainly at 40:00 and 1:30:00"),
        (overview(without_map(handmade(), tuple(range(9)))), "read from all 9 frames"),
        (hot(4, 5), "read from 2 of 36 frames, at 40:00–50:00"),
        (hot(4, kept=(4, 8, 20)), "read from 3 of 36 frames, mainly at 40:00"),
        (hot(1, 3, 5, 7, 9), "read from 5 of 36 frames; no moment stands out"),
        (handmade((0.5,) * 3, (0.5,) * 3), "read from 3 of 9 frames; no moment stands out"),
        (without_map(handmade(), (0, 4, 8)), "read from 3 of 9 frames, between 0:00 and 1:20:00"),
        (without_map(handmade(), (4,)), "read from 1 of 9 frames, at 40:00"),
        (without_map(handmade(), tuple(range(9))), "read from all 9 frames"),
    ],
)
def test_one_plain_sentence(answer: Answer, words: str) -> None:
    assert AnswerView(answer).where == words


def test_a_flat_map_points_nowhere() -> None:
    answer = hot(4, kept=(4, 8))
    flat = replace(answer, selection=replace(answer.selection, notes=(FLAT,)))

    assert AnswerView(answer).main_spans and not AnswerView(flat).main_spans
    assert AnswerView(flat).where == "read from 2 of 36 frames; no moment stands out"


def test_neighbours_make_a_stretch_unless_they_are_far_apart() -> None:
    answer = hot(3, 4, 5, 9)
    times = tuple(10.0 * i + (1000 if i >= 5 else 0) for i in range(36))
    torn = replace(answer, pool=replace(answer.pool, times=times))

    assert [span.indices for span in AnswerView(answer).spans] == [(3, 4, 5), (9,)]
    assert [span.words for span in AnswerView(answer).spans] == ["30:00–50:00", "1:30:00"]
    assert [span.indices for span in AnswerView(torn).spans] == [(3, 4), (5,), (9,)]


def test_where_too_many_stretches_matter_only_the_hottest_count() -> None:
    scores = tuple({1: 0.6, 3: 0.6, 5: 0.6, 7: 1.0, 9: 0.6}.get(i, 0.01) for i in range(36))
    answer = by_frame(scores, kept=(1, 3, 5, 7, 9))

    assert [span.indices for span in AnswerView(answer).main_spans] == [(7,)]


def test_kept_frames_of_all_and_of_an_overview_without_a_map_point_at_nothing() -> None:
    assert AnswerView(without_map(handmade(), tuple(range(9)))).kept == ()
    assert AnswerView(overview(without_map(handmade(), (1, 2)))).kept == ()
    assert AnswerView(handmade()).kept == (1, 4, 5)
    assert AnswerView(without_map(handmade(), tuple(range(9)))).brightness == [1.0] * 9


def test_brightness_is_full_for_kept_frames_and_rises_with_importance() -> None:
    shares = AnswerView(by_frame((0.1, 0.5, 0.9, 0.2, 0.9, 0.1, 0.1, 0.1, 0.1), kept=(4,))).brightness

    assert shares[4] == 1.0 and shares[0] < shares[3] < shares[1] < shares[2] < 1.0
    plain = AnswerView(without_map(handmade(), (0,))).brightness
    assert plain[0] == 1.0 and set(plain[1:]) == {0.45}


def test_the_most_important_kept_frames_are_large_in_time_order() -> None:
    scores = tuple((i * 7 % 36) / 36 for i in range(36))
    answer = by_frame(scores, kept=tuple(range(20)))

    best = sorted(sorted(range(20), key=lambda i: -scores[i])[:4])
    assert list(AnswerView(answer).large_frames(4)) == best
    assert AnswerView(answer).large_words(4) == "4 of 20 frames, the most important"
    assert AnswerView(without_map(handmade(), (0, 4, 8))).large_frames(8) == (0, 4, 8)
    assert AnswerView(handmade()).large_words(8) == ""
    assert AnswerView(overview(without_map(handmade(), tuple(range(9))))).large_frames(4) == ()


def test_the_sheet_is_explained() -> None:
    assert AnswerView(handmade()).sheet_words.endswith("Framed: kept; the darker, the less important.")
    assert "Framed: seen here;" in AnswerView(overview(hot(4, kind="evidence"))).sheet_words
    assert "Framed: most important;" in AnswerView(overview(hot(4))).sheet_words
    assert AnswerView(without_map(handmade(), (1,))).sheet_words.endswith("dark: not kept.")


def test_the_chosen_option_comes_first_then_the_likely_ones() -> None:
    shown = AnswerView(handmade()).options

    assert [option.label for option in shown] == ["B", "A", "C", "D"]
    assert [option.chosen for option in shown] == [True, False, False, False]
    assert [option.label for option in shown if option.right] == ["B"]


def test_unlikely_options_are_folded_but_never_the_right_one_or_a_single_one() -> None:
    wrong = handmade(question=replace(CITIES, answer="D"), posterior=posterior(B=0.9999))
    view = AnswerView(wrong)

    assert [option.label for option in view.shown_options] == ["B", "D"]
    assert [option.label for option in view.folded_options] == ["A", "C"]
    assert view.folded_words == "2 others below 0.05% each: Oslo, on the market square, Lima, in a football ground"
    few = handmade(posterior=posterior(A=0.2, B=0.6, C=0.1999))
    assert AnswerView(few).folded_options == [] and AnswerView(few).folded_words == ""


def test_long_lists_of_folded_options_are_cut() -> None:
    question = Question("?", [f"a rather long option {i}" for i in range(20)])
    weights = {label: 1.0 if label == "A" else 1e-6 for label in question.labels}
    answer = handmade(question=question, posterior=type(SURE).from_probabilities(weights, Cost()))

    words = AnswerView(answer).folded_words
    assert words.startswith("19 others below 0.05% each: a rather") and words.endswith("…") and len(words) < 100


def test_verdict_names_the_right_answer() -> None:
    assert AnswerView(handmade()).verdict == "right"
    assert AnswerView(handmade(question=replace(CITIES, answer="D"))).verdict == "wrong: it is Not shown"
    assert AnswerView(handmade(question=replace(CITIES, answer=None))).verdict == ""


def test_the_total_counts_only_known_answers() -> None:
    right, wrong, unknown = (handmade(question=replace(CITIES, answer=label)) for label in ("B", "A", None))

    assert total_words([right, wrong, right]) == "2 of 3 right"
    assert total_words([right, unknown]) == "1 of 1 right; the right answer of 1 is not known"
    assert total_words([unknown]) == total_words([]) == ""


def test_compute_is_a_share_of_showing_all_frames() -> None:
    assert AnswerView(handmade()).compute == "25% of the compute of showing all 9 frames at full size"
    unpriced = AnswerCost(Cost(), Cost(1, 90, 80, unpriced=1), Cost(1, 900, 800, unpriced=1))
    assert AnswerView(handmade(cost=unpriced)).compute == "10% of the tokens of showing all 9 frames at full size"
    assert AnswerView(handmade(cost=AnswerCost(Cost(), Cost(), Cost()))).compute == ""


def test_times_of_a_short_video_and_times_that_read_the_same_have_tenths() -> None:
    answer = hot(1, 4, kept=(1, 4))
    close = replace(answer, pool=replace(answer.pool, times=tuple(100 + 0.2 * i for i in range(36)), info=None))
    short = replace(answer, pool=replace(answer.pool, times=tuple(float(i) for i in range(36)), info=None))

    assert AnswerView(close).where.endswith("at 1:40.2 and 1:40.8")
    assert AnswerView(short).where.endswith("at 0:01.0 and 0:04.0")


# Doubt.


def test_little_probability_on_the_letters_stands_next_to_the_answer_in_every_rendering() -> None:
    unsure = MockModel(lambda request: {"A": 0.1, "B": 0.7, "C": 0.1, "D": 0.1}, name="unsure")
    run = unsure.run

    def doubtful(requests: Sequence[Request]) -> list[Response]:
        return [replace(each, mass=0.02) if isinstance(each, Posterior) else each for each in run(requests)]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(unsure, "run", doubtful)
        answer = Session(balloon(4).pool, model=unsure, k=4, effort="focus", probes="fresh").ask(CITIES)
    view = AnswerView(answer)
    words = "doubtful: in the focused pass the model puts only 2.0% of its probability on the option letters"

    assert view.doubt == words and not any("focused pass the model" in warning for warning in view.warnings)
    shown = short_view(answer, width=120, color=False, unicode=True).plain.splitlines()
    assert shown[2] == words and sum("focused pass the model" in line for line in shown) == 1
    page = render([answer])
    assert f'<p class="doubt" dir="auto">{words}</p>' in page and page.count("focused pass the model") == 1
    calm = replace(answer, posterior=balloon(4).posterior, warnings=())
    assert _title(view).height > _title(AnswerView(calm)).height and AnswerView(calm).doubt == ""


def test_a_contradicted_overview_is_a_doubt_and_a_slow_way_is_none() -> None:
    contradiction = "the focused pass contradicts the overview, which was sure of A (Oslo, 99.8%)"
    view = AnswerView(replace(handmade(), warnings=(contradiction, "this took long")))

    assert view.doubt == f"doubtful: {contradiction}" and view.warnings == ["this took long"]
