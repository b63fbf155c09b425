"""What is sent to a server, and what is made of its replies."""

import json
from collections.abc import Mapping
from dataclasses import replace
from threading import Barrier, Event, Thread
from typing import Any

import numpy as np
import pytest

from fake_server import Fake, FakeClock, Fault, Heard, Open, Voice, as_request, by_hash, spoken_by
from gridprobe.errors import Cancelled, ServerError, UsageError
from gridprobe.models import Choose, FrameGroup, LazyModel, Model, Request, View, choose, cost_model_of
from gridprobe.models.openai.client import Address, ConcurrencyLimiter, ServerOptions
from gridprobe.models.openai.requests import ImageCache, SampledLogprobs, chat_messages, message_parts
from gridprobe.question import Question
from gridprobe.video import FramePool, FrameSize
from scoring import noise_pool, shown

POOL = noise_pool(6)
PROMPT = "Question: what?\nA. x\nB. y\nC. z"
SMALL = View(FrameSize(max_side=64))


def merged() -> Request:
    large = FrameGroup(POOL.take([1, 4]), View(FrameSize()))
    return Request(PROMPT, Choose(("A", "B", "C")), (large, FrameGroup(_reduced(POOL.take([0, 2, 3, 5])), SMALL)))


def _reduced(pool: FramePool) -> FramePool:
    """Frames that are small already, so that nobody resizes them."""
    return replace(pool, data=np.ascontiguousarray(pool.pixels[:, ::2, ::3]))


SPOKEN = tuple("" if i % 2 else f"Someone says {i}." for i in range(7))
LAYOUTS = {
    "times": shown(POOL, PROMPT, "ABC"),
    "no times": shown(POOL, PROMPT, "ABC", timestamps="none"),
    "paper's times": shown(POOL, PROMPT, "ABC", timestamps="paper"),
    "text first": shown(POOL, PROMPT, "ABC", prompt_order="text_first"),
    "subtitles": shown(POOL, PROMPT, "ABC", between=SPOKEN),
    "sizes": merged(),
    "no frames": Request(PROMPT, Choose(("A", "B", "C"))),
}


class TestEqualToTheEngine:
    # D07 of tests/reliability.md
    @pytest.mark.parametrize("request_", LAYOUTS.values(), ids=LAYOUTS)
    def test_a_server_reads_what_our_engine_reads(
        self, request_: Request, open_server: Open, tiny_model: Model
    ) -> None:
        server = open_server(Fake(voice=spoken_by(tiny_model)))

        (there,), (here,) = choose(server, [request_]), choose(tiny_model, [request_])

        assert there.logprobs == pytest.approx(here.logprobs, abs=1e-4)
        assert there.mass == pytest.approx(sum_of(tiny_model, request_), abs=1e-4)

    def test_together_as_each_alone(self, open_server: Open, tiny_model: Model) -> None:
        voice = spoken_by(tiny_model)
        batched, single = open_server(Fake(voice=voice)), open_server(Fake(voice=voice, batches=False))
        requests = [LAYOUTS["times"], merged(), shown(POOL.take([2]), PROMPT, "AB"), LAYOUTS["no frames"]]

        for a, b, c in zip(
            choose(batched, requests), choose(single, requests), choose(tiny_model, requests), strict=True
        ):
            assert a.logprobs == pytest.approx(b.logprobs, abs=1e-6)
            assert a.logprobs == pytest.approx(c.logprobs, abs=1e-4)


def sum_of(model: Model, request: Request) -> float:
    return choose(model, [request])[0].mass


def noting(heard: list[Heard]) -> Voice:
    """A voice that keeps what it heard."""

    def voice(said: Heard, letters: Any) -> Mapping[str, float]:
        heard.append(said)
        return by_hash(said, letters)

    return voice


class TestMessages:
    def test_times_stand_before_their_pictures_and_text_is_joined(self) -> None:
        parts = message_parts(shown(POOL.take([0, 1]), "Why?", "AB", between=("a", "", "b")), ImageCache(), multiple=32)

        texts = [part if isinstance(part, str) else "PICTURE" for part in parts]
        assert texts == ["a\n<3.5 seconds>", "PICTURE", "<10.5 seconds>", "PICTURE", "b\nWhy?"]

    def test_pictures_are_png_at_the_size_of_the_view(self, open_server: Open) -> None:
        heard: list[Heard] = []
        fake = Fake(voice=noting(heard))
        choose(open_server(fake), [shown(POOL.take([0]), pixels=FrameSize(max_side=64))])

        picture = next(part for part in heard[-1] if not isinstance(part, str))
        assert picture.shape == (32, 64, 3)

    def test_a_picture_of_the_right_size_arrives_bit_for_bit(self, open_server: Open) -> None:
        heard: list[Heard] = []
        fake = Fake(voice=noting(heard))
        choose(open_server(fake), [shown(POOL.take([3]))])

        picture = next(part for part in heard[-1] if not isinstance(part, str))
        assert np.array_equal(picture, POOL.pixels[3])

    @pytest.mark.parametrize("text", ["<|im_end|>", "<image>", "</s>", "<|vision_start|>"])
    def test_a_user_s_text_holds_no_special_token(self, text: str) -> None:
        request = Request.about(Question(f"What is {text}?", ["a", text]))
        (message,) = chat_messages(message_parts(request, ImageCache(), multiple=32))

        assert text not in message["content"][0]["text"] and f"< {text[1:]}" in message["content"][0]["text"]

    def test_an_album_is_bounded(self) -> None:
        album, made = ImageCache(capacity=30_000), []
        for frame in (0, 1, 2, 0):
            message_parts(shown(POOL.take([frame])), album, multiple=32)
            made.append(len(album._images))

        assert made == [1, 1, 1, 1]  # noise of 96×64 takes 18 kB

    def test_pairs_are_refused_before_anything_is_sent(self, open_server: Open) -> None:
        fake = Fake()
        server = open_server(fake)
        before = fake.asked

        with pytest.raises(UsageError, match='use packing="single"'):
            choose(server, [shown(POOL), shown(POOL, packing="pairs")])
        assert fake.asked == before

    def test_memory_and_attention_are_refused(self, open_server: Open) -> None:
        server = open_server(Fake())
        for change in ({"visible_frames": (0,)}, {"attention": True}):
            with pytest.raises(UsageError, match="probes=fresh"):
                choose(server, [shown(POOL, **change)])
        assert server.capabilities.kv_reuse is False


def test_a_contact_sheet_is_one_picture_with_all_its_times(open_server: Open, tiny_model: Model) -> None:
    request = Request(PROMPT, Choose(("A", "B", "C")), (FrameGroup(POOL, View(FrameSize(), sheet=2)),))
    heard: list[Heard] = []
    choose(open_server(Fake(voice=noting(heard))), [request])
    parts = [part if isinstance(part, str) else part.shape for part in heard[-1]]

    assert parts[:4] == ["<3.5, 10.5, 17.5, 24.5 seconds>", (128, 192, 3), "<31.5, 38.5 seconds>", (128, 192, 3)]


class TestNamedPictures:
    # D06 of tests/reliability.md
    def test_bytes_are_sent_once(self, open_server: Open) -> None:
        fake = Fake()
        server = open_server(fake)
        choose(server, [shown(POOL)])
        before = fake.sent
        expected = choose(server, [shown(POOL, "again?")])[0]
        choose(server, [shown(POOL.take([4, 1]), "in another subset?")])

        assert fake.sent == before
        assert expected.logprobs == choose(open_server(Fake(names=False)), [shown(POOL, "again?")])[0].logprobs

    @pytest.mark.parametrize("count", [1, 3])
    def test_and_again_after_a_cache_miss(self, count: int, open_server: Open) -> None:
        fake = Fake()
        server = open_server(fake)
        first = choose(server, [shown(POOL)] * count)
        before, fake.pictures = fake.sent, {}

        assert choose(server, [shown(POOL)] * count) == first
        assert fake.sent == before + 6 * count

    def test_a_server_that_does_not_know_names_gets_bytes(self, open_server: Open) -> None:
        fake = Fake(names=False)
        server = open_server(fake)
        before = fake.sent
        choose(server, [shown(POOL)])
        choose(server, [shown(POOL)])

        assert fake.sent == before + 12 and not server.features.uuids


class TestCosts:
    def test_an_unknown_model_has_tokens_and_no_flops(self, open_server: Open) -> None:
        fake = Fake()
        server = open_server(fake)
        (posterior,) = choose(server, [shown(POOL)])

        spent, expected = posterior.cost, server.cost(shown(POOL))
        assert (spent.flops, spent.unpriced, spent.money, spent.calls) == (0.0, 1, 0.0, 1)
        texts = [part for part in message_parts(shown(POOL), ImageCache(), multiple=32) if isinstance(part, str)]
        assert spent.tokens == fake._count([*texts, *POOL.pixels])
        assert abs(expected.tokens - spent.tokens) <= 0.2 * spent.tokens
        assert expected.visual_tokens == 6 * (6 + 2)

    def test_cached_tokens_are_counted_and_lower_what_was_computed(
        self, open_server: Open, tiny_checkpoint: Any, tiny_model: Model
    ) -> None:
        server = open_server(Fake(cached=20, voice=spoken_by(tiny_model)), priced_as=str(tiny_checkpoint))
        (posterior,) = choose(server, [shown(POOL)])

        cost = posterior.cost
        assert cost.cached_tokens == 20 and cost.unpriced == 0
        assert cost.flops_computed == pytest.approx(cost.flops * (1 - 20 / cost.tokens))

    def test_money_by_the_given_prices(self, open_server: Open) -> None:
        server = open_server(Fake(cached=20), price_in=3.0, price_cached=0.3, price_out=15)
        (posterior,) = choose(server, [shown(POOL)])

        tokens = posterior.cost.tokens
        assert posterior.cost.money == pytest.approx(((tokens - 20) * 3 + 20 * 0.3 + 15) / 1e6)

    def test_tokens_of_a_batch_add_up(self, open_server: Open) -> None:
        fake = Fake()
        server = open_server(fake)
        alone = sum(choose(server, [each])[0].cost.tokens for each in (shown(POOL), shown(POOL.take([1]))))
        costs = [each.cost for each in choose(server, [shown(POOL), shown(POOL.take([1]))])]

        assert fake.requests[-1][0].endswith("/batch")
        assert sum(cost.tokens for cost in costs) == alone and costs[0].tokens > 3 * costs[1].tokens

    def test_a_known_name_has_flops(self, open_server: Open) -> None:
        name = "Qwen/Qwen3-VL-8B-Instruct"
        (posterior,) = choose(open_server(Fake(models=(name,))), [shown(POOL)])

        assert posterior.cost.unpriced == 0 and posterior.cost.flops > 1e11

    def test_planning_needs_no_server(self) -> None:
        gauge = cost_model_of("http://localhost:1/v1#Qwen/Qwen3-VL-8B-Instruct")

        assert gauge.identity.endswith("#Qwen/Qwen3-VL-8B-Instruct") and not gauge.capabilities.kv_reuse
        with pytest.raises(UsageError, match="cannot plan for http://localhost:1/v1#llama"):
            cost_model_of("http://localhost:1/v1#llama")


class TestSampling:
    @staticmethod
    def _likes_a(heard: Heard, letters: Any) -> dict[str, float]:
        first = next((part for part in heard if not isinstance(part, str)), None)
        red = first is None or first[..., 0].mean() >= first[..., 2].mean()
        return {letter: {"A": 0.9 if red else 0.05, "B": 0.05 if red else 0.9}.get(letter, 0.0) for letter in letters}

    @pytest.mark.parametrize("many", [True, False], ids=["n choices", "one by one"])
    def test_answers_are_counted(self, many: bool, open_server: Open) -> None:
        fake = Fake(voice=self._likes_a, ids=False, top=0, many=many)
        server = open_server(fake, samples=12)
        (posterior,) = choose(server, [Request(PROMPT, Choose(("A", "B", "C")))])

        assert posterior.choice == "A" and posterior.probabilities["C"] == pytest.approx(0.5 / 13.5)
        assert posterior.cost.calls == (1 if many else 12)
        assert posterior.notes == ("probabilities are counts of 12 sampled answers",)

    def test_an_answer_without_a_letter_lowers_the_mass(self) -> None:
        texts = ("A", "(B) because", "The answer is B.", "I cannot see Anything")
        choices = [{"message": {"content": text}} for text in texts]
        reading = SampledLogprobs(4).read(choices, ("A", "B"))

        assert reading.raw == {"A": 1.0, "B": 2.0} and reading.mass == 0.75


class TestConcurrencyLimiter:
    def test_it_halves_and_recovers(self) -> None:
        clock = FakeClock()
        limiter, stop = ConcurrencyLimiter(8, clock.clock), Event()
        limiter.slow_down(5.0)
        assert limiter.limit == 4
        with limiter.slot(stop):
            assert clock.time == 5.0
        for _ in range(3):
            with limiter.slot(stop):
                assert limiter.limit == 4
        assert limiter.limit == 5

    def test_a_failure_frees_its_slot_and_is_no_success(self) -> None:
        limiter, stop = ConcurrencyLimiter(2, FakeClock().clock), Event()
        limiter.slow_down(0.0)
        for _ in range(3):
            with pytest.raises(ServerError), limiter.slot(stop):
                raise ServerError("no")
        assert limiter.limit == 1

    def test_no_more_requests_than_the_limit_are_under_way(self, open_server: Open) -> None:
        fake = Fake(batches=False)
        server = open_server(fake, concurrency=3)
        meet, most = Barrier(3), [0, 0]

        def voice(heard: Heard, letters: Any) -> dict[str, float]:
            most[0] += 1
            most[1] = max(most)
            meet.wait(600)  # passes only if three are here at the same time
            most[0] -= 1
            return by_hash(heard, letters)

        fake.voice = voice
        choose(server, [shown(POOL, f"{number}?") for number in range(9)])
        assert most[1] == 3

    def test_a_wait_ends_when_it_is_cancelled(self) -> None:
        limiter, stop = ConcurrencyLimiter(1, FakeClock().clock), Event()
        seen: list[type[BaseException]] = []

        def wait() -> None:
            try:
                with limiter.slot(stop):
                    pass
            except Cancelled as error:
                seen.append(type(error))

        with limiter.slot(Event()):
            thread = Thread(target=wait)
            thread.start()
            stop.set()
            thread.join()
        assert seen == [Cancelled]


class TestNames:
    @pytest.mark.parametrize(
        ("name", "base", "model"),
        [
            ("http://localhost:8000/v1#qwen", "http://localhost:8000/v1", "qwen"),
            ("http://localhost:8000", "http://localhost:8000/v1", ""),
            ("https://api.example.org/openai/v1/", "https://api.example.org/openai/v1", ""),
            ("http://localhost:8000/v1/chat/completions#a/b:free", "http://localhost:8000/v1", "a/b:free"),
        ],
    )
    def test_an_address(self, name: str, base: str, model: str) -> None:
        assert Address.parse(name) == Address(base, model)

    @pytest.mark.parametrize(
        "name",
        ["http://me:sk-secret@host/v1", "http://sk-secret@host/v1#m", "http://host/v1?key=sk-secret#m", "http://"],
    )
    def test_a_name_with_a_key_or_without_a_host_is_refused(self, name: str) -> None:
        with pytest.raises(UsageError) as caught:
            Address.parse(name)
        assert "secret" not in str(caught.value)

    def test_a_server_travels_by_name(self, open_server: Open) -> None:
        fake = Fake()
        server = open_server(fake)
        named = LazyModel(fake.url, (("samples", 4), ("device", "cuda:0"), ("dtype", "auto")))
        loaded = named.load()

        assert loaded.identity == server.identity
        loaded.close()  # type: ignore[attr-defined]

    def test_options_are_checked(self) -> None:
        assert ServerOptions.of({"patience": "60", "trust_env": "true", "price_in": 1}).patience == 60.0
        for wrong, message_ in (
            ({"patince": 1}, "did you mean 'patience'"),
            ({"patience": "soon"}, "patience must be of the type float"),
            ({"concurrency": 0}, "concurrency must be at least 1"),
            ({"price_in": -1}, "price_in must be a price"),
            ({"quantization": "4bit"}, "start the server with it"),
        ):
            with pytest.raises(UsageError, match=message_):
                ServerOptions.of(wrong)

    def test_the_fake_hears_what_the_engine_would_be_asked(self) -> None:
        parts = message_parts(LAYOUTS["times"], ImageCache(), multiple=32)
        request = as_request([part if isinstance(part, str) else POOL.pixels[0] for part in parts])

        assert request.frames.times == POOL.times and request.prompt == PROMPT
        assert json.dumps(chat_messages(parts))  # it is plain JSON


def test_a_batch_with_one_bad_request_is_asked_one_by_one(open_server: Open) -> None:
    fake = Fake()
    server = open_server(fake)
    fake.choose = lambda body: Fault.error(400, "no batches today") if isinstance(body["messages"][0], list) else None

    assert len(choose(server, [shown(POOL)] * 3)) == 3
    fake.choose = lambda body: Fault.error(400, "never")
    with pytest.raises(ServerError, match="never"):
        choose(server, [shown(POOL)] * 3)
