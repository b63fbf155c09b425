import pytest

from gridprobe import MockModel
from gridprobe.errors import ModelError
from gridprobe.models import Request, choose
from gridprobe.models.qwen3vl.pricing import QWEN3_VL
from scoring import shown
from videos_of_arrays import gray_pool, levels


def _request(frames: tuple[int, ...] = (3, 1)) -> Request:
    return shown(gray_pool(5).take(frames))


def test_the_function_sees_the_real_frames_and_calls_are_remembered() -> None:
    model = MockModel(lambda request: {"A": levels(request.frames)[0], "B": 1.0})

    posterior = choose(model, [_request()])[0]

    assert posterior.probabilities["A"] == pytest.approx(0.75)
    assert [levels(request.frames) for request in model.requests] == [[3, 1]]


def test_labels_may_come_in_any_order_but_must_be_the_questions() -> None:
    assert choose(MockModel(lambda _: {"B": 1.0, "A": 3.0}), [_request()])[0].choice == "A"
    with pytest.raises(ModelError, match=r"\['A', 'C'\]"):
        choose(MockModel(lambda _: {"A": 1.0, "C": 1.0}), [_request()])


def test_it_is_priced_like_a_model_of_the_given_size() -> None:
    small, large = (MockModel(lambda _: {"A": 1, "B": 1}, priced_as=QWEN3_VL[size]) for size in ("2B", "8B"))

    assert large.cost(_request()).flops > 2 * small.cost(_request()).flops
