"""Every fault of a server in users.md §4.4, by its number."""

import gzip
import json
import logging
import math
import socket
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import pytest

from fake_server import KEY, Fake, FakeClock, Fault, Heard, Open, by_hash
from gridprobe._util import ProgressEvent, listening
from gridprobe.errors import Cancelled, ServerError, ServerUnavailable, UsageError
from gridprobe.models import Request, choose
from gridprobe.models.openai import Server, load
from gridprobe.models.openai.client import MAX_BYTES, Address, find_key
from scoring import noise_pool, shown

POOL = noise_pool(4)
REQUEST = shown(POOL, "Question: ?\nA. x\nB. y")


def ask(server: Server, request: Request = REQUEST) -> Mapping[str, float]:
    return choose(server, [request])[0].probabilities


class TestM02Down:
    # M02 of tests/reliability.md
    def test_a_restart_pauses_and_then_the_request_is_answered(self, open_server: Open) -> None:
        fake, clock = Fake(), FakeClock()
        server = open_server(fake, clock=clock)
        expected = ask(server)
        clock.slept = 0.0
        fake.down = lambda: clock.slept < 100

        assert ask(server) == expected
        assert 100 <= clock.slept < 130

    def test_after_a_restart_pictures_are_sent_again(self, open_server: Open) -> None:
        fake, clock = Fake(), FakeClock()
        server = open_server(fake, clock=clock)
        expected = ask(server)
        clock.slept, fake.pictures = 0.0, {}
        fake.down = lambda: clock.slept < 10

        assert ask(server) == expected

    # M02 of tests/reliability.md
    def test_when_patience_ends_the_run_is_to_end(self, open_server: Open) -> None:
        fake, clock = Fake(), FakeClock()
        server = open_server(fake, clock=clock, patience=60)
        fake.down = lambda: True

        with pytest.raises(
            ServerUnavailable, match=r"has not replied for 60 s .*start it again, then repeat"
        ) as caught:
            ask(server)
        assert "\n" not in str(caught.value) and 60 < clock.slept < 120

    def test_a_server_that_was_never_there_is_not_waited_for_long(self, open_server: Open) -> None:
        clock = FakeClock()

        with pytest.raises(ServerUnavailable, match="has not replied for 20 s"):
            open_server(Fake(down=lambda: True), clock=clock)

    def test_a_refused_connection_at_the_first_request_is_an_error_at_once(self) -> None:
        clock = FakeClock()
        with closing(socket.socket()) as listener:
            listener.bind(("127.0.0.1", 0))  # without listen(), so the port is ours and refuses connections
            address = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"

            with pytest.raises(ServerUnavailable, match=r"cannot be reached \(.*\); start the server, or correct its"):
                load(address, clock=clock.clock)
        assert clock.slept == 0

    def test_a_connection_that_is_refused_later_is_waited_for(self, open_server: Open) -> None:
        clock = FakeClock()
        server = open_server(Fake(), clock=clock, patience=60)
        clock.slept = 0.0
        server._client.address = Address.parse("http://127.0.0.1:9")

        with pytest.raises(ServerUnavailable, match="has not replied for 60 s"):
            ask(server)
        assert 60 < clock.slept < 120

    def test_waiting_is_reported_and_can_be_cancelled(self, open_server: Open) -> None:
        from threading import Event as Flag

        fake, clock, cancel = Fake(), FakeClock(), Flag()
        server = open_server(fake, clock=clock, patience=1e9)
        fake.down = lambda: True
        clock.on_sleep = cancel.set
        seen: list[ProgressEvent] = []

        with pytest.raises(Cancelled), listening(seen.append, cancel=cancel):
            ask(server)

    def test_a_gateway_without_a_server_counts_as_down(self, open_server: Open) -> None:
        fake = Fake()
        server = open_server(fake)
        fake.faults = [Fault(502, b"<html>Bad Gateway</html>"), Fault(504)]

        assert ask(server)["A"] > 0

    def test_a_request_that_breaks_every_connection_fails_alone(self, open_server: Open) -> None:
        fake = Fake()
        server = open_server(fake)
        fake.choose = lambda body: Fault(drop=True) if "poison" in json.dumps(body["messages"]) else None

        with pytest.raises(ServerError, match=r"\(3 times\)"):
            ask(server, shown(POOL, "poison?"))
        assert ask(server)["A"] > 0


class TestM03Busy:
    # M03 of tests/reliability.md
    @pytest.mark.parametrize("status", [429, 503])
    def test_retry_after_is_obeyed_and_fewer_requests_follow(self, status: int, open_server: Open) -> None:
        fake, clock = Fake(batches=False), FakeClock()
        server = open_server(fake, clock=clock, concurrency=8)
        clock.slept = 0.0
        fake.faults = [Fault.error(status, "slow down", Retry_After="7")]

        assert ask(server)["A"] > 0
        assert 7 <= clock.slept < 8 and "up to 4 requests" in server.capabilities.summary

    def test_without_retry_after_the_wait_grows(self, open_server: Open) -> None:
        fake, clock = Fake(), FakeClock()
        server = open_server(fake, clock=clock)
        clock.slept = 0.0
        fake.faults = [Fault.error(429, "slow down")] * 3

        assert ask(server)["A"] > 0
        assert clock.slept > 3 * 0.5

    def test_a_server_that_stays_busy_ends_the_run(self, open_server: Open) -> None:
        fake = Fake()
        server = open_server(fake, patience=30)
        fake.choose = lambda body: Fault.error(429, "slow down", Retry_After="10")

        with pytest.raises(ServerUnavailable, match="too busy for longer than 30 s"):
            ask(server)

    def test_a_wait_beyond_patience_is_not_begun(self, open_server: Open) -> None:
        fake, clock = Fake(), FakeClock()
        server = open_server(fake, clock=clock, patience=60)
        clock.slept = 0.0
        fake.faults = [Fault.error(429, "slow down", Retry_After="3600")]

        with pytest.raises(ServerUnavailable, match="too busy for longer than 60 s"):
            ask(server)
        assert clock.slept == 0

    def test_an_account_without_money_is_not_waited_for(self, open_server: Open) -> None:
        fake, clock = Fake(), FakeClock()
        server = open_server(fake, clock=clock)
        clock.slept = 0.0
        fake.faults = [Fault.error(429, "You exceeded your current quota: insufficient_quota")]

        with pytest.raises(ServerUnavailable, match="insufficient_quota"):
            ask(server)
        assert clock.slept == 0


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "This model's maximum context length is 32768 tokens. However, your prompt contains 41200 input tokens",
            "needs 41200 of the 32768 tokens.*--max-model-len",
        ),
        (
            "The decoder prompt (length 41200) is longer than the maximum model length of 32768. Make sure",
            "needs 41200 of the 32768 tokens",
        ),
        ("At most 16 image(s) may be provided in one prompt.", "allows 16 images.*--limit-mm-per-prompt.*--k"),
        ("temperature must be 1 for this model", "refuses the request: temperature must be 1"),
    ],
    ids=["m04", "m04-decoder", "m05", "other"],
)
def test_m04_m05_a_refusal_is_not_repeated_and_has_numbers(message: str, expected: str, open_server: Open) -> None:
    fake = Fake()
    server = open_server(fake)
    before = fake.asked
    fake.faults = [Fault.error(400, message)]

    with pytest.raises(ServerError, match=expected) as caught:
        ask(server)
    assert fake.asked == before + 1 and "\n" not in str(caught.value)
    assert not isinstance(caught.value, ServerUnavailable)


class TestM06Failing:
    # M06 of tests/reliability.md
    def test_a_status_of_500_is_repeated(self, open_server: Open) -> None:
        """vLLM 0.32 answers so when its two caches of pictures differ, and recovers by itself."""
        fake = Fake()
        server = open_server(fake)
        fake.faults = [Fault.error(500, "Internal server error")] * 2

        assert ask(server)["A"] > 0

    # M06 of tests/reliability.md
    def test_one_bad_item_fails_alone_and_the_body_is_cut(self, open_server: Open) -> None:
        fake = Fake()
        server = open_server(fake)
        bad = Fault.error(500, "x" * 5000)
        fake.choose = lambda body: bad if "poison" in json.dumps(body["messages"]) else None
        poisoned = shown(POOL, "poison?")

        with pytest.raises(ServerError, match=r"status 500: x+… \(3 times\)") as caught:
            choose(server, [REQUEST, poisoned, REQUEST])
        assert len(str(caught.value)) < 400 and not isinstance(caught.value, ServerUnavailable)
        assert choose(server, [REQUEST, REQUEST])[1].probabilities == ask(server)


class TestM07Garbled:
    GARBLED = (
        Fault(200, b'{"choices": [', cut=False),
        Fault(200, b"<html>hello</html>", {"Content-Type": "text/html"}),
        Fault(200, b"[1, 2]"),
        Fault(200, b'{"error": {"message": "out of capacity"}}'),
        Fault(200, b'{"choices": []}'),
        Fault(200, b'{"choices": [{"message": {"content": "A"}, "logprobs": null}]}'),
        Fault(200, b'{"choices": [{"logprobs": {"content": [{"token": "token_id:9", "logprob": 0}]}}]}'),
        Fault(200, gzip.compress(b" " * 10_000_000), {"Content-Encoding": "gzip"}),
        Fault(200, b" " * (MAX_BYTES + 1)),
    )
    REASONS = (
        *("is not a JSON object but begins with",) * 3,
        "out of capacity",
        "has no choices",
        "has no log-probabilities",
        "lacks the probability of the letter",
        "is compressed",
        "is longer than 16 MiB",
    )
    NAMES = ("cut", "html", "list", "error", "no choices", "no logprobs", "no letters", "gzip bomb", "too long")

    # M07 of tests/reliability.md
    @pytest.mark.parametrize("fault", GARBLED, ids=NAMES)
    def test_once_is_forgiven(self, fault: Fault, open_server: Open) -> None:
        fake = Fake()
        server = open_server(fake)
        expected = ask(server)
        fake.faults = [fault]

        assert ask(server) == expected

    # M07 of tests/reliability.md
    @pytest.mark.parametrize(("fault", "reason"), [*zip(GARBLED, REASONS, strict=True)], ids=NAMES)
    def test_twice_is_an_error_in_one_line(self, fault: Fault, reason: str, open_server: Open) -> None:
        fake = Fake()
        server = open_server(fake)
        before = fake.asked
        fake.faults = [fault] * 10

        with pytest.raises(ServerError, match=reason) as caught:
            ask(server)
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 500
        assert not isinstance(caught.value, ServerUnavailable) and fake.asked == before + 2

    def test_m07_letters_whose_probabilities_are_no_numbers_are_garbled(self, open_server: Open) -> None:
        def no_numbers(body: Mapping[str, Any]) -> Fault:
            tokens = [{"token": f"token_id:{token}", "logprob": "NaN"} for token in body["logprob_token_ids"]]
            content = [{**tokens[0], "top_logprobs": tokens}]
            return Fault(200, json.dumps({"choices": [{"logprobs": {"content": content}}]}).encode())

        fake = Fake()
        server = open_server(fake)
        fake.choose = no_numbers

        with pytest.raises(ServerError, match="the letters' log-probabilities are not numbers"):
            ask(server)

    def test_a_reply_that_breaks_off_is_asked_for_again(self, open_server: Open) -> None:
        fake = Fake()
        server = open_server(fake)
        fake.faults = [Fault(200, b'{"choices": [', cut=True)]

        assert ask(server)["A"] > 0


class TestM09MissingLetters:
    @staticmethod
    def _voice(heard: Heard, letters: Any) -> dict[str, float]:
        shares = by_hash(heard, letters)
        return {**shares, "B": 1e-9}

    # M09 of tests/reliability.md
    def test_a_letter_that_is_not_listed_has_the_bound_of_the_last_one_and_a_note(self, open_server: Open) -> None:
        server = open_server(Fake(voice=self._voice, ids=False, top=20))
        (posterior,) = choose(server, [shown(POOL, "Question: ?", "AB")])

        assert 0 < posterior.probabilities["B"] < posterior.probabilities["A"]
        assert any("lacks B: counted as" in note and "their bound" in note for note in posterior.notes)

    # M09 of tests/reliability.md
    def test_with_token_ids_it_never_happens(self, open_server: Open) -> None:
        (posterior,) = choose(open_server(Fake(voice=self._voice)), [shown(POOL, "Question: ?", "AB")])

        assert posterior.probabilities["B"] < 1e-6 and posterior.notes == ()
        assert math.isclose(posterior.mass, math.exp(posterior.logprobs[0]) * posterior.mass, rel_tol=1e-6)


def test_m10_frames_that_get_lost_later_are_noticed(open_server: Open) -> None:
    fake = Fake()
    server = open_server(fake)
    fake.keeps = 1

    with pytest.raises(ServerError, match="for 20 frames, so it dropped some"):
        ask(server, shown(noise_pool(20), "?"))


class TestM11OtherModel:
    # M11 of tests/reliability.md
    def test_other_weights_under_the_same_name_after_a_restart_end_the_run(self, open_server: Open) -> None:
        fake, clock = Fake(), FakeClock()
        server = open_server(fake, clock=clock)
        clock.slept = 0.0
        fake.down = lambda: clock.slept < 5
        fake.voice = lambda heard, letters: by_hash(["other weights", *heard], letters)

        for _ in range(2):  # it is not used again, though it replies
            with pytest.raises(ServerUnavailable, match="serves other weights as fake"):
                ask(server)

    # M11 of tests/reliability.md
    def test_a_changed_configuration_is_noted_and_changes_the_identity(self, open_server: Open) -> None:
        fake = Fake()
        server = open_server(fake)
        fake.fingerprint = "fake-2"
        (posterior,) = choose(server, [REQUEST])

        assert "changed from fake-1 to fake-2" in posterior.notes[0]
        assert open_server(Fake(fingerprint="fake-2")).identity.partition("@")[2] == "fake-2;ids"


class TestKeys:
    def test_the_key_is_sent_and_appears_nowhere(
        self, open_server: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setenv("GRIDPROBE_API_KEY", KEY)
        caplog.set_level(logging.DEBUG)
        fake = Fake(key=KEY)
        server = open_server(fake)
        (posterior,) = choose(server, [REQUEST])

        assert set(fake.keys) == {f"Bearer {KEY}"}
        seen = [
            repr(server),
            server.identity,
            server.capabilities.summary,
            repr(posterior),
            repr(vars(server)),
            caplog.text,
        ]
        assert not [text for text in seen if KEY in text]

    def test_a_refused_key_ends_the_run_without_repeating_it(
        self, open_server: Open, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GRIDPROBE_API_KEY", f"{KEY}-wrong")

        with pytest.raises(ServerUnavailable, match=r"refuses access.*GRIDPROBE_API_KEY") as caught:
            open_server(Fake(key=KEY))
        assert KEY not in str(caught.value) and caught.value.__cause__ is None

    def test_openai_s_key_goes_to_openai_only(self, open_server: Open, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("GRIDPROBE_API_KEY", raising=False)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        fake = Fake()
        open_server(fake)

        assert set(fake.keys) == {None}
        assert find_key(Address.parse("https://api.openai.com/v1#gpt-4o")) == KEY
        for other in ("http://api.openai.com/v1", "https://api.openai.com.evil.example/v1", "https://evil.example/v1"):
            assert find_key(Address.parse(other)) is None

    @pytest.mark.parametrize("key", ["two words", "line\nbreak", "schlüssel"])
    def test_a_key_that_cannot_be_one_is_refused_without_repeating_it(
        self, key: str, monkeypatch: pytest.MonkeyPatch, open_server: Open
    ) -> None:
        monkeypatch.setenv("GRIDPROBE_API_KEY", key)

        with pytest.raises(UsageError, match="GRIDPROBE_API_KEY holds") as caught:
            open_server(Fake())
        assert key not in str(caught.value)


def test_redirects_are_not_followed(open_server: Open) -> None:
    fake = Fake()
    server = open_server(fake)
    fake.faults = [Fault(307, b"", {"Location": "http://127.0.0.1:9/v1"})]

    with pytest.raises(ServerError, match=r"redirects .* which is not followed"):
        ask(server)


def test_proxies_of_the_environment_are_not_used(open_server: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)

    assert ask(open_server(Fake()))["A"] > 0
    with pytest.raises(ServerUnavailable):
        open_server(Fake(), trust_env=True)
