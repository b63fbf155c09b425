"""What a server can do is found by what its replies contain (users.md M05, M08, M10; issue 15)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from fake_server import Fake, FakeClock, Fault, Heard, Open, by_eye, by_hash
from gridprobe.errors import ServerError, UsageError
from gridprobe.models import choose
from scoring import noise_pool, shown


class TestRungs:
    def test_ids_if_the_server_returns_the_letters_tokens(self, open_server: Open) -> None:
        server = open_server(Fake())

        assert server.features.strategy.name == "ids" and server.features.batches and server.features.uuids
        assert server.identity.endswith("#fake@fake-1;ids")
        assert "exact letter probabilities" in server.capabilities.summary

    @pytest.mark.parametrize(("listed", "name"), [(20, "top20"), (40, "top20"), (5, "top20")])
    def test_likely_tokens_if_not(self, listed: int, name: str, open_server: Open) -> None:
        server = open_server(Fake(ids=False, top=listed))

        assert server.features.strategy.name == name and server.identity.endswith(f";{name}")
        assert not server.features.batches and not server.features.uuids

    def test_five_likely_tokens_if_twenty_are_refused(self, open_server: Open) -> None:
        refuse = Fault.error(400, "top_logprobs must be at most 5")
        fake = Fake(ids=False, top=5, choose=lambda body: refuse if body.get("top_logprobs", 0) > 5 else None)

        assert open_server(fake).features.strategy.name == "top5"

    def test_m08_sampling_if_log_probabilities_are_ignored_with_status_200(self, open_server: Open) -> None:
        """transformers serve, and some providers of OpenRouter."""
        server = open_server(Fake(voice=by_eye, ids=False, top=0), samples=8)

        assert server.features.strategy.name == "samples8" and "drawn" in server.capabilities.summary

    def test_m08_one_answer_at_a_time_if_several_are_refused(self, open_server: Open) -> None:
        """As Claude's endpoint does for programs that speak to OpenAI."""
        refuse = Fault.error(400, "n must be 1")
        fake = Fake(voice=by_eye, ids=False, top=0, choose=lambda body: refuse if "n" in body else None)
        server = open_server(fake, samples=4)
        start = fake.asked
        (answer,) = choose(server, [shown(noise_pool(2))])

        assert server.features.strategy.name == "samples4" and fake.asked == start + 4
        assert answer.cost.calls == 4 and answer.cost.tokens == 4 * 35, "the rule for tokens is that of one request"
        assert server.features.rule.image(64 * 64) == 6
        assert [body["seed"] for _, body in fake.requests[-4:]] == [0, 1, 2, 3]

    def test_m08_a_refusal_before_any_question_if_nothing_works(self, open_server: Open) -> None:
        def blind(heard: Heard, letters: Any) -> dict[str, float]:
            return {letter: 1.0 if letter == "A" else 0.0 for letter in letters}

        with pytest.raises(ServerError, match=r"does not name the colour.*start it with vLLM") as caught:
            open_server(Fake(voice=blind, ids=False, top=0))
        assert "\n" not in str(caught.value)


def sorted_pictures(heard: Heard) -> Heard:
    pictures = iter(sorted((part for part in heard if not isinstance(part, str)), key=lambda each: each.tobytes()))
    return [part if isinstance(part, str) else next(pictures) for part in heard]


def untimed(heard: Heard) -> Heard:
    return [part for part in heard if not isinstance(part, str) or "seconds>" not in part]


def texts_first(heard: Heard) -> Heard:
    """As some chat templates put them, so that no picture follows its time."""
    return sorted(heard, key=lambda part: not isinstance(part, str))


def texts_last(heard: Heard) -> Heard:
    """As Ollama puts the pictures of a message before its text."""
    return sorted(heard, key=lambda part: isinstance(part, str))


@pytest.mark.parametrize(
    ("shuffles", "complaint"),
    [
        (lambda heard: [part for part in heard if isinstance(part, str)], "ignores pictures"),
        (sorted_pictures, "does not keep the order"),
        (untimed, "does not show the times"),
    ],
    ids=["dropped", "sorted", "untimed"],
)
def test_a_server_that_loses_or_moves_something_is_refused(
    shuffles: Callable[[Heard], Heard], complaint: str, open_server: Open
) -> None:
    with pytest.raises(ServerError, match=complaint):
        open_server(Fake(shuffles=shuffles))


@pytest.mark.parametrize(
    "behaviour",
    [{"shuffles": texts_last}, {"shuffles": texts_first}, {"per_part": 5}, {"shuffles": texts_last, "per_part": 5}],
    ids=["pictures before the text", "text before the pictures", "a message of every part", "both"],
)
@pytest.mark.parametrize("ids", [True, False])
def test_a_server_that_takes_pictures_away_from_their_times_gets_them_first(
    behaviour: dict[str, Any], ids: bool, open_server: Open
) -> None:
    """Ollama makes messages of parts, and puts pictures before the text of a message."""
    heard: list[Heard] = []

    def voice(said: Heard, letters: Sequence[str]) -> Mapping[str, float]:
        heard.append(said)
        return by_hash(said, letters)

    server = open_server(Fake(voice=voice, ids=ids, **behaviour))
    choose(server, [shown(noise_pool(3), "Why?", "AB", between=("Hello.", "", "", ""))])

    texts = [part for part in heard[-1] if isinstance(part, str)]
    assert texts == ["Hello.\n<3.5 seconds> picture 1\n<10.5 seconds> picture 2\n<17.5 seconds> picture 3\nWhy?"]
    assert server.features.uuids == server.features.batches == ids
    assert server.identity.endswith(";pictures-first") and "so they come first" in server.capabilities.summary


def test_a_server_with_pictures_first_is_still_the_same_after_a_restart(open_server: Open) -> None:
    fake, clock = Fake(shuffles=texts_last), FakeClock()
    server = open_server(fake, clock=clock)
    start, before = fake.asked, clock.slept
    fake.down = lambda: fake.asked == start and clock.slept < before + 60

    assert choose(server, [shown(noise_pool(2))])[0].labels == ("A", "B")


def test_one_that_counts_no_tokens_and_gives_no_probabilities_is_used_as_it_is(open_server: Open) -> None:
    server = open_server(Fake(voice=by_eye, ids=False, top=0, counts=False), samples=4)

    assert not server.features.pictures_first and not server.capabilities.logprobs


def test_sampled_answers_do_not_hide_that_every_part_becomes_a_message(open_server: Open) -> None:
    server = open_server(Fake(voice=by_eye, ids=False, top=0, per_part=5), samples=4)

    assert server.features.pictures_first and server.features.strategy.name == "samples4"


def test_m10_a_server_that_reads_32_of_the_pictures_is_refused(open_server: Open) -> None:
    with pytest.raises(ServerError, match="reads 32 of 144 pictures"):
        open_server(Fake(keeps=32))


def test_m05_the_limit_of_pictures_is_found(open_server: Open) -> None:
    assert open_server(Fake(most_pictures=16)).features.images == 16
    assert open_server(Fake()).features.images == 144


def test_pictures_that_take_many_tokens_are_tried_in_smaller_numbers(open_server: Open) -> None:
    assert open_server(Fake(smallest=256)).features.images == 62


def test_a_note_says_that_small_frames_save_nothing(open_server: Open) -> None:
    server = open_server(Fake(smallest=64))

    summary = server.capabilities.summary
    assert "takes 66 tokens and not 28 as its size would need" in summary and "min_pixels" in summary
    assert server.features.rule.image(448 * 448) == 198 and server.features.rule.image(64 * 64) == 66


@pytest.mark.parametrize(("smallest", "expected"), [(256, None), (600, 602)])
def test_a_model_with_a_fixed_number_of_tokens_gets_contact_sheets(
    smallest: int, expected: int | None, open_server: Open
) -> None:
    assert open_server(Fake(smallest=smallest)).capabilities.tokens_per_image == expected


def test_a_server_that_counts_no_tokens_is_used_with_a_note(open_server: Open) -> None:
    assert "counts no tokens" in open_server(Fake(counts=False)).capabilities.summary


class TestModels:
    def test_the_only_model_need_not_be_named(self, open_server: Open) -> None:
        assert "#fake@" in open_server(Fake()).identity

    def test_one_of_several_must_be(self, open_server: Open) -> None:
        with pytest.raises(UsageError, match="serves one, two; name one"):
            open_server(Fake(models=("one", "two")))
        assert "#two@" in open_server(Fake(models=("one", "two")), "#two").identity

    def test_an_unknown_one_is_refused_with_the_known_ones(self, open_server: Open) -> None:
        with pytest.raises(UsageError, match="does not serve 'three'; it serves one, two"):
            open_server(Fake(models=("one", "two")), "#three")
