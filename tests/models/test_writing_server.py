"""Texts of models on servers: what is sent, what is read, and what it costs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fake_server import Fake, Fault, Heard, Open, Prose, as_request, spoken_by, written_by
from gridprobe.errors import ServerError, UsageError
from gridprobe.models import Model, Request, choose, cost_model_of, generate
from gridprobe.models.base import Completion, SamplingParams
from scoring import cost_of_texts, noise_pool, shown

POOL = noise_pool(4)
PROMPT = "Describe what happens."
GREEDY = SamplingParams(limit=8)
DRAWN = SamplingParams(limit=8, temperature=0.7, samples=3, seed=5)


def asked(**changes: Any) -> Request:
    return shown(POOL, PROMPT, (), **changes)


def saying(*texts: Completion) -> Prose:
    def prose(heard: Heard, body: Mapping[str, Any]) -> Sequence[Completion] | None:
        return texts[: body["n"]] if any(isinstance(part, str) and PROMPT in part for part in heard) else None

    return prose


def bodies(fake: Fake) -> list[Mapping[str, Any]]:
    """The bodies of requests for text."""
    return [body for path, body in fake.requests if "chat" in path and PROMPT in str(body["messages"])]


RED, BLUE = Completion(" a red ball ", 4, -2.0, True), Completion("a blue", 8, -5.0, False)


def test_a_server_writes_what_our_engine_writes(open_server: Open, tiny_model: Model, tiny_checkpoint: Path) -> None:
    fake = Fake(
        voice=spoken_by(tiny_model),
        prose=written_by(tiny_model),
        count=lambda heard: tiny_model.cost(as_request(heard)).tokens,
    )
    server = open_server(fake, priced_as=str(tiny_checkpoint))
    requests = [asked(), asked(prompt_order="text_first"), Request(PROMPT)]

    for writing in (GREEDY, DRAWN):
        here, there = generate(tiny_model, requests, writing), generate(server, requests, writing)
        for ours, theirs in zip(here, there, strict=True):
            assert [text.text for text in theirs] == [text.text for text in ours]
            assert [text.tokens for text in theirs] == [text.tokens for text in ours]
            assert [text.logprob for text in theirs] == pytest.approx([text.logprob for text in ours], abs=1e-4)
            assert [text.finished for text in theirs] == [text.finished for text in ours]
            for one, other in zip(theirs, ours, strict=True):
                assert one.cost.flops == pytest.approx(other.cost.flops) and one.cost.tokens == other.cost.tokens


def test_what_is_sent(open_server: Open) -> None:
    fake = Fake(prose=saying(RED, BLUE, RED))
    server = open_server(fake)

    generate(server, [asked()], replace(GREEDY, stop=("\n", "END")))
    generate(server, [asked()], DRAWN)

    greedy, drawn = ({name: body.get(name) for name in FIELDS} for body in bodies(fake))
    assert greedy == dict(zip(FIELDS, (8, 0.0, None, None, ["\n", "END"], True), strict=True))
    assert drawn == dict(zip(FIELDS, (8, 0.7, 3, 5, None, True), strict=True))


FIELDS = ("max_tokens", "temperature", "n", "seed", "stop", "logprobs")


def test_what_is_read(open_server: Open) -> None:
    (texts,) = generate(open_server(Fake(prose=saying(RED, BLUE, RED))), [asked()], DRAWN)

    assert [text.text for text in texts] == ["a red ball", "a blue", "a red ball"]
    assert [text.tokens for text in texts] == [4, 8, 4]
    assert [text.finished for text in texts] == [True, False, True]
    assert [text.logprob for text in texts] == pytest.approx([-2.0, -5.0, -2.0])


def test_a_stop_text_that_the_server_leaves_in_is_cut(open_server: Open) -> None:
    server = open_server(Fake(prose=saying(Completion("a red ball.\nAnd more", 8, -2.0, False))))

    ((text,),) = generate(server, [asked()], replace(GREEDY, stop=("\n",)))

    assert text.text == "a red ball." and text.finished


def test_without_probabilities_the_count_is_shared_out(open_server: Open) -> None:
    fake = Fake(prose=saying(RED, BLUE, RED), ids=False, top=0, voice=red_or_blue)

    (texts,) = generate(open_server(fake), [asked()], DRAWN)

    assert [text.logprob for text in texts] == [None] * 3
    assert sum(text.tokens for text in texts) == 16 and all(text.tokens > 0 for text in texts)
    assert not any("logprobs" in body for body in bodies(fake))


def red_or_blue(heard: Heard, letters: Sequence[str]) -> dict[str, float]:
    """Names the colour of the first picture, as a server without probabilities must."""
    first = next((part for part in heard if not isinstance(part, str)), None)
    red = first is None or first[..., 0].mean() > first[..., 2].mean()
    return {letter: (0.9 if letter == "AB"[not red] else 0.001) for letter in letters}


def test_a_server_that_gives_one_choice_at_a_time_is_asked_again(open_server: Open) -> None:
    fake = Fake(prose=saying(RED), many=False)

    (texts,) = generate(open_server(fake), [asked()], DRAWN)

    assert len(texts) == 3 and texts[0].cost.calls == 3
    assert [body["seed"] for body in bodies(fake)] == [5, 6, 7]
    assert [body["n"] for body in bodies(fake)] == [3, 2, 1]


def test_money_for_what_was_read_and_written(open_server: Open) -> None:
    server = open_server(Fake(prose=saying(RED, BLUE, RED)), price_in=2.0, price_out=10.0)

    (texts,) = generate(server, [asked()], DRAWN)
    whole = sum((text.cost for text in texts[1:]), texts[0].cost)

    prompt = whole.tokens - 16
    assert whole.money == pytest.approx((2.0 * prompt + 10.0 * 16) / 1e6)
    assert texts[1].cost.money == pytest.approx(10.0 * 8 / 1e6) and texts[1].cost.calls == 0
    assert whole.unpriced == 1 and whole.calls == 1
    estimated = cost_of_texts(server, asked(), [4, 8, 4])
    assert estimated.money == pytest.approx((2.0 * (estimated.tokens - 16) + 10.0 * 16) / 1e6)


def test_a_reply_without_text_is_asked_for_once_more(open_server: Open) -> None:
    fake = Fake(prose=saying(RED))
    server = open_server(fake)
    fake.faults = [Fault(body=b'{"choices": [{"index": 0, "message": {"content": null}}]}')]

    assert generate(server, [asked()], GREEDY)[0][0].text == "a red ball"

    fake.faults = [Fault(body=b'{"choices": [{"index": 0, "message": {"content": null}}]}')] * 2
    with pytest.raises(ServerError, match="the reply has no text"):
        generate(server, [asked()], GREEDY)


def test_a_server_that_changed_says_so_in_a_note(open_server: Open) -> None:
    fake = Fake(prose=saying(RED))
    server = open_server(fake)
    fake.fingerprint = "fake-2"

    ((text,),) = generate(server, [asked()], GREEDY)

    assert text.notes == ("the server's configuration changed from fake-1 to fake-2",)


def test_frames_that_a_server_drops_are_noticed(open_server: Open) -> None:
    fake = Fake(prose=saying(RED))
    server = open_server(fake)
    fake.keeps = 0

    with pytest.raises(ServerError, match="so it dropped some"):
        generate(server, [shown(noise_pool(40, width=64, height=64), PROMPT, ())], GREEDY)


def test_it_writes_and_needs_labels_to_score(open_server: Open) -> None:
    server, gauged = open_server(Fake()), cost_model_of("http://host:1/v1#Qwen/Qwen3-VL-8B-Instruct")

    assert server.capabilities.generates and gauged.capabilities.generates
    for refused in (asked(visible_frames=(0,)), asked(attention=True)):
        with pytest.raises(UsageError, match="does not keep the KV cache of frames"):
            generate(server, [refused], GREEDY)
    with pytest.raises(UsageError, match="a request without labels cannot be scored"):
        choose(server, [asked()])
