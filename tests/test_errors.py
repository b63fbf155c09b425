"""The error tree."""

import inspect

import pytest

from gridprobe import errors
from gridprobe.errors import Cancelled, DataError, GridProbeError, ModelError, RunError, UsageError, VideoError

KINDS = (UsageError, VideoError, ModelError, DataError, RunError, Cancelled)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_is_caught_as_a_gridprobe_error(kind: type[GridProbeError]) -> None:
    with pytest.raises(GridProbeError, match=r"^one sentence$"):
        raise kind("one sentence")


# C05 of tests/reliability.md
@pytest.mark.parametrize(
    ("kind", "code"),
    [(UsageError, 2), (VideoError, 1), (ModelError, 1), (DataError, 1), (RunError, 1), (Cancelled, 1)],
)
def test_a_callers_mistake_exits_with_2_and_a_failure_with_1(kind: type[GridProbeError], code: int) -> None:
    assert kind("x").exit_code == code


def test_kinds_are_siblings_so_that_catching_one_never_catches_another() -> None:
    assert [kind.__bases__ for kind in KINDS] == [(GridProbeError,)] * len(KINDS)


def test_errors_are_not_builtin_errors_which_would_hide_bugs() -> None:
    assert GridProbeError.__bases__ == (Exception,)


def test_every_error_is_in_the_drawn_tree() -> None:
    classes = [
        value for value in vars(errors).values() if inspect.isclass(value) and value.__module__ == errors.__name__
    ]

    assert [
        each for each in classes if issubclass(each, Exception) and each.__name__ not in (errors.__doc__ or "")
    ] == []
