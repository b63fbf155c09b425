"""Texts of the local engine against transformers' `generate` and a teacher-forced pass, with everything it may keep."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event as Flag
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from plain_transformers import patches_of
from transformers import Qwen3VLForConditionalGeneration

from gridprobe._util import ProgressEvent, listening
from gridprobe.errors import Cancelled, ModelError, UsageError
from gridprobe.models import Choose, FrameGroup, Packing, Request, View, choose, generate
from gridprobe.models.base import SamplingParams
from gridprobe.models.local import kv_cache
from gridprobe.models.local.generate import end_tokens
from gridprobe.models.local.layout import PreparedRequest
from gridprobe.models.qwen3vl.engine import Qwen3VL
from gridprobe.models.qwen3vl.pricing import head_flops, prefill_flops, published_flops
from gridprobe.video import FrameSize
from gridprobe_world.embedded import WEIGHTS
from scoring import cost_of_texts, like, load_qwen, noise_pool, shown

pytestmark = pytest.mark.usefixtures("one_thread")
COUNT = 5
PROMPT = "What happens?"
LIMIT = 24
GREEDY = SamplingParams(limit=LIMIT)
DRAWN = SamplingParams(limit=LIMIT, temperature=0.8, samples=3, seed=7)
TEXTS = ("at the start", "", "in the middle", "a word", "", "at the end")


def asked(packing: Packing = "single", prompt: str = PROMPT, **changes: Any) -> Request:
    return shown(noise_pool(COUNT), prompt, (), packing=packing, **changes)


def two_sizes(packing: Packing) -> Request:
    frames = noise_pool(COUNT)
    large = FrameGroup(frames.take([1, 4]), View(FrameSize(), packing))
    return Request(
        PROMPT, groups=(*[large, FrameGroup(frames.take([0, 2, 3]), View(FrameSize(max_side=64), packing))],)
    )


REQUESTS = {
    "single": asked(),
    "pairs": asked("pairs"),
    "two sizes": two_sizes("single"),
    "two sizes in pairs": two_sizes("pairs"),
    "text first": asked(prompt_order="text_first"),
    "text first in pairs": asked("pairs", prompt_order="text_first"),
    "texts": asked(between=TEXTS),
    "no times": asked(timestamps="none"),
    "no frames": Request(PROMPT),
}
each_request = pytest.mark.parametrize("name", REQUESTS)


@pytest.fixture(scope="module")
def theirs(tiny_checkpoint: Path) -> Any:
    return Qwen3VLForConditionalGeneration.from_pretrained(tiny_checkpoint, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def nano() -> Qwen3VL:
    return load_qwen(str(WEIGHTS / "nano"), device="cpu", dtype="float32")


@pytest.fixture
def fresh(tiny_model: Qwen3VL) -> Qwen3VL:
    return like(tiny_model, plain=False)


@pytest.fixture
def plain(tiny_model: Qwen3VL) -> Qwen3VL:
    return like(tiny_model, plain=True)


def inputs_of(engine: Qwen3VL, request: Request) -> dict[str, Any]:
    """What transformers' model takes for a request."""
    layout = engine._layout(request)
    ids = torch.from_numpy(layout.ids)[None]
    found = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if not layout.grids:
        return found
    return found | {
        "mm_token_type_ids": 2 * torch.from_numpy(layout.visual)[None].long(),
        "pixel_values_videos": patches_of(engine, PreparedRequest(0, request, layout)),
        "video_grid_thw": torch.tensor(layout.grids),
    }


@torch.inference_mode()
def generated(theirs: Any, engine: Qwen3VL, request: Request, limit: int = LIMIT) -> tuple[list[int], float]:
    """The tokens of transformers' own greedy `generate`, and their log-probability."""
    theirs.model.rope_deltas = None
    ends = list(engine._generator.ends)
    given = inputs_of(engine, request)
    out = theirs.generate(
        **given,
        max_new_tokens=limit,
        do_sample=False,
        eos_token_id=ends,
        pad_token_id=ends[0],
        return_dict_in_generate=True,
        output_logits=True,
    )
    tokens = out.sequences[0, given["input_ids"].shape[1] :].tolist()
    logprobs = torch.stack(out.logits)[:, 0].double().log_softmax(-1)
    own = [
        logprobs[place, ends].logsumexp(-1) if token in ends else logprobs[place, token]
        for place, token in enumerate(tokens)
    ]
    return tokens, float(sum(own))


@torch.inference_mode()
def forced(theirs: Any, engine: Qwen3VL, request: Request, tokens: Sequence[int]) -> torch.Tensor:
    """Log-probabilities before each token and after the last, from one pass over prompt and text, without a cache."""
    given = inputs_of(engine, request)
    text = torch.tensor([list(tokens)], dtype=torch.long)
    for name, added in {
        "input_ids": text,
        "attention_mask": torch.ones_like(text),
        "mm_token_type_ids": 0 * text,
    }.items():
        if name in given:
            given[name] = torch.cat([given[name], added], dim=1)
    theirs.model.rope_deltas = None
    logits = theirs(**given, use_cache=False, logits_to_keep=len(tokens) + 1).logits[0]
    found: torch.Tensor = logits.double().log_softmax(-1)
    return found


class TestGreedy:
    @each_request
    def test_every_token_is_that_of_generate(self, name: str, fresh: Qwen3VL, theirs: Any) -> None:
        tokens, logprob = generated(theirs, fresh, REQUESTS[name])

        ((written,),) = generate(fresh, [REQUESTS[name]], GREEDY)

        assert list(written.ids) == tokens and written.tokens == len(tokens)
        assert written.logprob == pytest.approx(logprob, abs=1e-3)
        assert written.finished == (tokens[-1] in fresh._generator.ends)
        ended = tokens[:-1] if written.finished else tokens
        assert written.text == fresh._tokenizer.decode(ended, skip_special_tokens=True).strip()

    @each_request
    def test_the_plain_way_writes_the_same(self, name: str, plain: Qwen3VL, fresh: Qwen3VL) -> None:
        assert (
            generate(plain, [REQUESTS[name]], GREEDY)[0][0].ids == generate(fresh, [REQUESTS[name]], GREEDY)[0][0].ids
        )

    @pytest.mark.parametrize("way", ["fast", "plain"])
    def test_all_requests_together_equal_each_alone(self, way: str, tiny_model: Qwen3VL, theirs: Any) -> None:
        engine = like(tiny_model, plain=way == "plain")
        other = asked(prompt="And who is it that comes in through the door at the very end?")
        requests = [*REQUESTS.values(), other, asked("pairs", keep_kv=True)]

        together = generate(engine, requests, GREEDY)

        for request, (written,) in zip(requests, together, strict=True):
            assert list(written.ids) == generated(theirs, tiny_model, request)[0]

    @each_request
    def test_what_is_kept_changes_no_token(self, name: str, fresh: Qwen3VL, theirs: Any) -> None:
        request = replace(REQUESTS[name], keep_kv=True)
        expected = generated(theirs, fresh, request)[0]
        choose(fresh, [replace(request, task=Choose(("A", "B")), prompt="Which?")])
        assert len(fresh.kept)

        for _ in range(2):
            assert list(generate(fresh, [request], GREEDY)[0][0].ids) == expected

    def test_the_embedded_model_writes_what_generate_writes(self, nano: Qwen3VL) -> None:
        theirs = Qwen3VLForConditionalGeneration.from_pretrained(WEIGHTS / "nano", dtype=torch.float32).eval()
        requests = [
            asked(prompt=f"Question: {text}\nAnswer:", keep_kv=True)
            for text in ("What colour is the ball?", "How many squares are there?")
        ]

        for request, (written,) in zip(requests, generate(nano, requests, GREEDY), strict=True):
            assert list(written.ids) == generated(theirs, nano, request)[0]

    @pytest.mark.parametrize("visible_frames", [(), (0, 3), (1, 2, 4)])
    def test_text_from_the_memory_of_some_frames(self, visible_frames: tuple[int, ...], fresh: Qwen3VL) -> None:
        """Every token is the likeliest after a pass that may look at these frames alone, as `score` makes it."""
        request = replace(REQUESTS["single"], visible_frames=visible_frames)

        ((written,),) = generate(fresh, [request], SamplingParams(limit=6))

        layout = fresh._layout(request)
        past = fresh._prefix_caches([PreparedRequest(0, request, layout)], Counter())
        ids = list(layout.ids[layout.prefix :])
        job = PreparedRequest(0, request, layout)
        (prefix,) = past.values()
        keys = prefix[..., torch.from_numpy(job.columns), :]
        for token in written.ids:
            start = int(layout.positions[0, layout.prefix])
            positions = torch.arange(start, start + len(ids))[None]
            own = torch.ones(len(ids), len(ids), dtype=torch.bool).tril()
            seen = torch.cat([torch.ones(len(ids), keys.shape[3], dtype=torch.bool), own], dim=1)[None]
            with torch.inference_mode():
                states, _ = fresh._language.follow(torch.tensor([ids]), positions, keys[:, :, None], seen)
                assert int(fresh._language.vocabulary(states[0, -1]).argmax()) == token
            ids.append(token)

    def test_some_frames_are_not_all(self, fresh: Qwen3VL) -> None:
        request = REQUESTS["single"]
        texts = {
            generate(fresh, [replace(request, visible_frames=visible_frames)], GREEDY)[0][0].ids
            for visible_frames in (None, (0,), (3,), ())
        }
        everything = generate(fresh, [replace(request, visible_frames=tuple(range(COUNT)))], GREEDY)[0][0].ids

        assert len(texts) == 4 and everything == generate(fresh, [request], GREEDY)[0][0].ids


class TestEnds:
    def test_a_token_of_the_generation_settings_ends_a_text(self, tiny_model: Qwen3VL) -> None:
        first = generate(like(tiny_model, plain=False), [asked()], GREEDY)[0][0]
        ending = first.ids[3]
        assert ending not in first.ids[:3]
        engine = like(tiny_model, plain=False)
        engine._generator = replace(engine._generator, ends=tuple(sorted({*engine._generator.ends, ending})))

        ((written,),) = generate(engine, [asked()], GREEDY)

        assert written.ids == first.ids[:4] and written.finished
        assert written.text == engine._tokenizer.decode(first.ids[:3], skip_special_tokens=True).strip()

    def test_a_stop_text_ends_it_and_is_left_out(self, fresh: Qwen3VL) -> None:
        ((whole,),) = generate(fresh, [asked()], GREEDY)
        middle = len(whole.text) // 2
        stop = whole.text[middle : middle + 2]
        before = whole.text[: whole.text.index(stop)]

        ((written,),) = generate(fresh, [asked()], replace(GREEDY, stop=("never written", stop)))

        assert written.text == before.strip() and written.finished
        assert written.ids == whole.ids[: written.tokens] and written.tokens < whole.tokens
        assert stop not in fresh._tokenizer.decode(written.ids[:-1], skip_special_tokens=True)

    @pytest.mark.parametrize("limit", [1, 2, 5])
    def test_the_limit_cuts_it_off(self, limit: int, fresh: Qwen3VL) -> None:
        ((whole,),) = generate(fresh, [asked()], GREEDY)
        ((written,),) = generate(fresh, [asked()], SamplingParams(limit=limit))

        assert written.ids == whole.ids[:limit] and not written.finished

    def test_a_text_does_not_outgrow_the_context(self, fresh: Qwen3VL) -> None:
        length = len(fresh._layout(asked()))
        fresh._generator = replace(fresh._generator, context=length + 2)

        assert generate(fresh, [asked()], GREEDY)[0][0].tokens == 3


class TestDrawn:
    def test_a_seed_decides_and_company_does_not(self, fresh: Qwen3VL, plain: Qwen3VL) -> None:
        requests = list(REQUESTS.values())
        together = generate(fresh, requests, DRAWN)

        for request, texts in zip(requests, together, strict=True):
            (alone,) = generate(fresh, [request], DRAWN)
            (other,) = generate(plain, [request], DRAWN)
            assert [text.ids for text in texts] == [text.ids for text in alone] == [text.ids for text in other]
        assert len({text.ids for texts in together for text in texts}) == 3 * len(requests)

    def test_fewer_samples_are_the_first_ones(self, fresh: Qwen3VL) -> None:
        (three,) = generate(fresh, [asked()], DRAWN)
        (one,) = generate(fresh, [asked()], replace(DRAWN, samples=1))
        (others,) = generate(fresh, [asked()], replace(DRAWN, seed=8))

        assert one[0].ids == three[0].ids
        assert not {text.ids for text in three} & {text.ids for text in others}

    def test_tokens_are_drawn_by_their_probabilities(self, fresh: Qwen3VL, theirs: Any) -> None:
        """Pearson's chi-squared over the likeliest first tokens and the rest; the 99.9th percentile at 10 is 29.6."""
        count, temperature = 2000, 0.7
        (texts,) = generate(fresh, [asked()], SamplingParams(limit=1, temperature=temperature, samples=count))
        shares = (forced(theirs, fresh, asked(), [])[-1] / temperature).softmax(-1)
        found = Counter(text.ids[0] for text in texts)
        likeliest = shares.argsort(descending=True)[:10].tolist()

        expected = [count * float(shares[token]) for token in likeliest]
        observed = [found[token] for token in likeliest]
        cells = [*zip(observed, expected, strict=True), (count - sum(observed), count - sum(expected))]
        assert sum((seen - mean) ** 2 / mean for seen, mean in cells) < 29.6

    def test_the_logprob_is_that_of_temperature_1(self, fresh: Qwen3VL, theirs: Any) -> None:
        for text in generate(fresh, [asked()], DRAWN)[0]:
            assert not text.finished
            logprobs = forced(theirs, fresh, asked(), text.ids[:-1])
            own = sum(float(logprobs[place, token]) for place, token in enumerate(text.ids))
            assert text.logprob == pytest.approx(own, abs=1e-3)


class TestCost:
    def test_a_prompt_is_read_once_for_all_texts(self, fresh: Qwen3VL) -> None:
        read, follow = Mock(wraps=fresh._language.read), Mock(wraps=fresh._language.follow)
        fresh._language.read, fresh._language.follow = read, follow  # type: ignore[method-assign]

        generate(fresh, [asked()], replace(DRAWN, limit=4))
        assert read.call_count == 1 and len(read.call_args.args[0]) == 1
        assert [call.args[0].shape for call in follow.call_args_list] == [(1, 3)] * 3

    @pytest.mark.parametrize(
        "request_", [asked(), two_sizes("pairs"), asked(visible_frames=(0, 3)), asked(keep_kv=True)]
    )
    def test_every_token_is_priced(self, request_: Request, fresh: Qwen3VL) -> None:
        dims, layout = fresh.dims, fresh._layout(request_)
        known = len(PreparedRequest(0, request_, layout).columns) + len(layout) - layout.prefix
        (texts,) = generate(fresh, [request_], DRAWN)

        for text, costs in zip(texts, (fresh.cost(request_).flops, 0.0, 0.0), strict=True):
            steps = sum(prefill_flops(dims, known + n + 1, known=known + n) for n in range(text.tokens - 1))
            assert text.cost.flops == pytest.approx(costs + steps + (text.tokens - 1) * head_flops(dims), rel=1e-12)
        second = texts[1]
        paper = published_flops(dims, known + second.tokens - 1) - published_flops(dims, known)
        assert second.cost.flops_paper == paper and second.cost.calls == 0 and second.cost.tokens == second.tokens
        whole = sum((text.cost for text in texts[1:]), texts[0].cost)
        expected = cost_of_texts(fresh, request_, [text.tokens for text in texts])
        assert replace(whole, flops_computed=expected.flops_computed) == expected
        assert expected.tokens == fresh.cost(request_).tokens + sum(text.tokens for text in texts)

    def test_a_kept_overview_costs_only_what_follows(self, fresh: Qwen3VL) -> None:
        request = asked(keep_kv=True)
        choose(fresh, [replace(request, task=Choose(("A", "B")))])
        dims, layout = fresh.dims, fresh._layout(request)

        ((written,),) = generate(fresh, [request], GREEDY)

        steps = prefill_flops(dims, len(layout) + written.tokens - 1, known=layout.prefix)
        assert written.cost.flops_computed == pytest.approx(steps + written.tokens * head_flops(dims), rel=1e-9)
        assert written.cost.flops > written.cost.flops_computed


class TestMemory:
    def test_out_of_memory_means_less_at_once(self, fresh: Qwen3VL, monkeypatch: pytest.MonkeyPatch) -> None:
        requests = [asked(prompt=f"{number}?") for number in range(4)]
        expected = [texts[0].ids for texts in generate(like(fresh, plain=False), requests, GREEDY)]
        read = fresh._language.read

        def narrow(pieces: Sequence[Any]) -> Any:
            if len(pieces) > 1:
                raise torch.OutOfMemoryError("too much")
            return read(pieces)

        monkeypatch.setattr(fresh._language, "read", narrow)
        assert [texts[0].ids for texts in generate(fresh, requests, GREEDY)] == expected

    def test_frames_that_do_not_fit_are_shown_smaller_with_a_note(
        self, fresh: Qwen3VL, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        large = shown(noise_pool(2, width=512, height=512), PROMPT, ())
        monkeypatch.setattr(kv_cache.DeviceMemory, "most", lambda self: 3 * 400)

        ((written,),) = generate(fresh, [large], SamplingParams(limit=2))
        assert written.notes and "because larger ones do not fit memory" in written.notes[0]


def test_progress_is_reported_with_every_token_and_can_be_cancelled(fresh: Qwen3VL) -> None:
    seen: list[ProgressEvent] = []
    cancel = Flag()
    with listening(seen.append):
        generate(fresh, [asked()], SamplingParams(limit=4))
    assert seen == [*(ProgressEvent("write", done, 4) for done in (1, 2, 3)), ProgressEvent("model", 1, 1)]

    def at_once(event: ProgressEvent) -> None:
        cancel.set()

    with pytest.raises(Cancelled, match="cancelled while working on write"), listening(at_once, cancel=cancel):
        generate(fresh, [asked()], GREEDY)


class TestRefused:
    def test_attention(self, fresh: Qwen3VL) -> None:
        watched = asked(attention=True)
        with pytest.raises(UsageError, match="a text comes without its attention to frames"):
            generate(fresh, [watched], GREEDY)

    def test_the_memory_of_frames_in_the_plain_way(self, plain: Qwen3VL) -> None:
        with pytest.raises(ModelError, match="cannot question the memory of frames"):
            generate(plain, [asked(visible_frames=(0,))], GREEDY)

    def test_a_model_that_returns_no_numbers(self, fresh: Qwen3VL, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(fresh._language, "vocabulary", lambda states: torch.full((len(states), 420), torch.nan))
        with pytest.raises(ModelError, match=r"not a number \(NaN\)"):
            generate(fresh, [asked()], GREEDY)


def test_all_that_may_end_a_text_ends_it() -> None:
    """A list or a number in the generation settings, the tokenizer's own token, the end of a turn; none outside."""
    head = SimpleNamespace(weight=torch.zeros(10, 2))

    def ends(named: Any, own: int | None, *more: int) -> tuple[int, ...]:
        settings = SimpleNamespace(eos_token_id=named)
        model = SimpleNamespace(generation_config=settings, get_output_embeddings=lambda: head)
        return end_tokens(model, SimpleNamespace(eos_token_id=own), *more)

    assert ends([3, 2, 99], 5) == (2, 3, 5) and ends(3, 3) == (3,) and ends(None, None, 7) == (7,)
    with pytest.raises(ModelError, match="does not say which token ends a text"):
        ends(None, None)
