"""Progress without a callback in every signature."""

import contextvars
import threading

import pytest

from gridprobe._util import Listener, ProgressEvent, listening, report
from gridprobe.errors import Cancelled

Heard = list[ProgressEvent]


def listener(heard: Heard) -> Listener:
    return heard.append


def test_reports_reach_the_listener_in_order() -> None:
    heard: Heard = []

    with listening(listener(heard)):
        report("decode", 1, 2)
        report("decode", 2, 2)

    assert heard == [("decode", 1, 2), ("decode", 2, 2)]


def test_report_with_nobody_listening_does_nothing() -> None:
    heard: Heard = []

    report("decode", 1, 2)
    with listening(listener(heard)):
        pass
    report("decode", 2, 2)

    assert heard == []


def test_inner_listener_replaces_the_outer_one_only_inside_its_block() -> None:
    outer: Heard = []
    inner: Heard = []

    with listening(listener(outer)):
        report("probe", 1, 3)
        with listening(listener(inner)):
            report("probe", 2, 3)
        report("probe", 3, 3)

    assert outer == [("probe", 1, 3), ("probe", 3, 3)]
    assert inner == [("probe", 2, 3)]


def test_listener_is_gone_after_an_error() -> None:
    heard: Heard = []

    with pytest.raises(KeyError), listening(listener(heard)):
        raise KeyError("boom")
    report("decode", 1, 1)

    assert heard == []


def test_error_of_a_listener_reaches_whoever_reports() -> None:
    def stop(event: ProgressEvent) -> None:
        raise KeyboardInterrupt

    with listening(stop), pytest.raises(KeyboardInterrupt):
        report("decode", 1, 2)


def test_thread_with_a_context_of_its_own_is_not_heard() -> None:
    heard: Heard = []

    with listening(listener(heard)):
        thread = threading.Thread(target=contextvars.Context().run, args=(report, "decode", 1, 1))
        thread.start()
        thread.join()

    assert heard == []


def test_thread_that_takes_the_context_along_is_heard() -> None:
    heard: Heard = []

    with listening(listener(heard)):
        thread = threading.Thread(target=contextvars.copy_context().run, args=(report, "decode", 1, 1))
        thread.start()
        thread.join()

    assert heard == [("decode", 1, 1)]


def test_a_cancelled_listener_hears_nothing_more_and_ends_the_work() -> None:
    heard: Heard = []
    cancel = threading.Event()

    with listening(listener(heard), cancel=cancel):
        report("probe", 1, 3)
        cancel.set()
        with pytest.raises(Cancelled, match=r"cancelled while working on probe \(2 of 3 done\)"):
            report("probe", 2, 3)

    assert heard == [ProgressEvent("probe", 1, 3)]
