"""What the engine keeps changes what an answer costs and never what it says."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gridprobe.importance import Grid
from gridprobe.models import Choose, FrameGroup, Request, View, choose
from gridprobe.models.local import kv_cache
from gridprobe.models.local.kv_cache import Store
from gridprobe.models.local.layout import PreparedRequest
from gridprobe.models.qwen3vl.blocks import plain_weights
from gridprobe.models.qwen3vl.engine import Qwen3VL
from gridprobe.models.qwen3vl.language import Piece
from gridprobe.models.qwen3vl.pricing import head_flops, prefill_flops, vision_flops
from gridprobe.question import Question
from gridprobe.video import FramePool, FrameSize
from scoring import like, shown
from scoring import noise_pool as pool

QUESTIONS = (
    Question("What happens?", ["a cat sleeps", "a dog runs", "nothing"]),
    Question("And who is it that comes in through the door at the very end?", ["nobody", "the cat"]),
)


def ask(frames: FramePool, question: Question = QUESTIONS[0], **changes: Any) -> Request:
    return shown(frames, question.prompt, question.labels, **changes)


@pytest.fixture
def fresh(tiny_model: Qwen3VL) -> Iterator[Qwen3VL]:
    yield like(tiny_model, plain=False)


@pytest.fixture
def plain(tiny_model: Qwen3VL) -> Qwen3VL:
    return like(tiny_model, plain=True)


def assert_same(engine: Qwen3VL, plain: Qwen3VL, requests: list[Request]) -> None:
    for a, b in zip(choose(engine, requests), choose(plain, requests), strict=True):
        assert a.logprobs == pytest.approx(b.logprobs, abs=1e-4)
        assert a.mass == pytest.approx(b.mass, rel=1e-3)


@pytest.mark.parametrize("packing", ["single", "pairs"])
def test_text_between_the_frames_changes_the_answer_and_not_the_way(
    fresh: Qwen3VL, plain: Qwen3VL, packing: str
) -> None:
    frames = pool(3)
    asked = [
        ask(frames, packing=packing, keep_kv=True, between=("", word, "", word)) for word in ("one", "two two", "")
    ]

    assert_same(fresh, plain, [*asked, ask(frames, packing=packing, keep_kv=True)])
    first, second, none = (posterior.logprobs for posterior in choose(fresh, asked))
    assert first != pytest.approx(second, abs=1e-4) != none
    assert none == pytest.approx(choose(fresh, [ask(frames, packing=packing)])[0].logprobs, abs=1e-4)


def test_the_embedded_kind_of_model_takes_the_fast_way(tiny_model: Qwen3VL) -> None:
    assert plain_weights(tiny_model._model) and type(tiny_model) is Qwen3VL


@pytest.mark.parametrize("packing", ["single", "pairs"])
@pytest.mark.parametrize("order", ["frames_first", "text_first"])
@pytest.mark.parametrize("again", [False, True])
def test_probes_equal_the_plain_way(fresh: Qwen3VL, plain: Qwen3VL, packing: str, order: str, again: bool) -> None:
    frames = pool(16)
    for question in (*QUESTIONS, QUESTIONS[0]):  # the third time everything is known
        probes = [
            ask(frames.take(subset), question, packing=packing, prompt_order=order, keep_kv=again)
            for subset in Grid(4).probes()
        ]
        assert_same(fresh, plain, probes)
    assert len(fresh.kept) > 0


def test_each_frame_is_encoded_once(fresh: Qwen3VL, monkeypatch: pytest.MonkeyPatch) -> None:
    vision = Mock(wraps=fresh._features.tower)
    monkeypatch.setattr(fresh, "_features", replace(fresh._features, tower=vision))
    frames = pool(16)

    choose(fresh, [ask(frames.take(subset)) for subset in Grid(4).probes()])
    choose(fresh, [ask(frames.take([3, 5, 8]), QUESTIONS[1])])

    assert [len(call.args[0]) for call in vision.call_args_list] == [16]


def test_a_follow_up_pays_only_for_its_text(fresh: Qwen3VL) -> None:
    frames, dims = pool(5), fresh.dims
    first = choose(fresh, [ask(frames, keep_kv=True)])[0].cost
    second = choose(fresh, [ask(frames, QUESTIONS[1], keep_kv=True)])[0].cost
    layout = fresh._layout(ask(frames, QUESTIONS[1]))

    text = prefill_flops(dims, len(layout), known=layout.prefix) + head_flops(dims)
    assert first.flops_computed == first.flops
    assert second.flops_computed == text < 0.6 * second.flops
    assert second.flops == fresh.cost(ask(frames, QUESTIONS[1])).flops


def test_text_first_is_read_once_for_all_probes(fresh: Qwen3VL) -> None:
    frames, dims = pool(16), fresh.dims
    probes = [ask(frames.take(subset), prompt_order="text_first") for subset in Grid(4).probes()]

    computed = sum(posterior.cost.flops_computed for posterior in choose(fresh, probes))

    layouts = [fresh._layout(probe) for probe in probes]
    rests = [prefill_flops(dims, len(each), known=each.prefix) + head_flops(dims) for each in layouts]
    vision = vision_flops(dims.vision, [(16, 4, 6)])
    assert computed == prefill_flops(dims, layouts[0].prefix) + sum(rests) + vision


def test_only_what_is_asked_about_again_leaves_a_stem(fresh: Qwen3VL) -> None:
    choose(fresh, [ask(pool(4))])
    features = len(fresh.kept)
    choose(fresh, [ask(pool(4), keep_kv=True)])

    assert features == 4 and len(fresh.kept) == 5


VARIANTS = st.fixed_dictionaries(
    {
        "seed": st.integers(1, 2),
        "count": st.integers(1, 5),
        "take": st.permutations(range(5)),
        "side": st.sampled_from([32, 64, 96]),
        "packing": st.sampled_from(["single", "pairs"]),
        "timestamps": st.sampled_from(["true", "none"]),
        "order": st.sampled_from(["frames_first", "text_first"]),
        "question": st.integers(0, 1),
        "again": st.booleans(),
        "groups": st.integers(0, 2),
    }
)


def request_of(variant: dict[str, Any]) -> Request:
    question = QUESTIONS[variant["question"]]
    order, again = variant["order"], variant["again"]
    if variant["groups"] == 0:
        return Request(question.prompt, Choose(question.labels), prompt_order=order, keep_kv=again)
    taken = variant["take"][: variant["count"]]
    frames = pool(5, seed=variant["seed"]).take(taken)
    if variant["groups"] == 2:
        small = FrameGroup(pool(5, seed=variant["seed"]).take(sorted(taken)), View(FrameSize(max_side=variant["side"])))
        rest = [i for i in range(5) if i not in taken] or [0]
        large = FrameGroup(pool(5, seed=variant["seed"]).take(rest), View(FrameSize(), variant["packing"]))
        return Request(question.prompt, Choose(question.labels), (small, large), order, again)
    return ask(
        frames,
        QUESTIONS[variant["question"]],
        pixels=FrameSize(max_side=variant["side"]),
        packing=variant["packing"],
        timestamps=variant["timestamps"],
        prompt_order=variant["order"],
        keep_kv=variant["again"],
    )


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.lists(VARIANTS, min_size=1, max_size=3), min_size=1, max_size=4), st.sampled_from([0, 20_000, 2**30])
)
def test_nothing_kept_is_ever_served_to_another_request(
    tiny_model: Qwen3VL, plain: Qwen3VL, calls: list[list[dict[str, Any]]], limit: int
) -> None:
    engine = like(tiny_model, plain=False)
    engine.kept = Store(limit, host_limit=limit // 2)
    for variants in calls:
        assert_same(engine, plain, [request_of(variant) for variant in variants])


def test_a_text_that_many_probes_begin_with_is_read_once_in_however_many_batches(
    fresh: Qwen3VL, plain: Qwen3VL, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames, language = pool(9), fresh._language
    monkeypatch.setattr(kv_cache, "CPU_TOKENS", 150)
    read, batches = Mock(wraps=language.keys_and_values), Mock(wraps=language.logits)
    monkeypatch.setattr(language, "keys_and_values", read)
    monkeypatch.setattr(language, "logits", batches)

    probes = [ask(frames.take(s), QUESTIONS[0], prompt_order="text_first") for s in Grid(3).probes()]
    assert_same(fresh, plain, probes)
    assert batches.call_count > 1 and sum(len(call.args[0]) for call in read.call_args_list) == 1


def test_forgetting_everything_in_mid_run_changes_nothing(
    fresh: Qwen3VL, plain: Qwen3VL, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = pool(9)
    monkeypatch.setattr(kv_cache, "CPU_TOKENS", 300)
    language, logits = fresh._language, fresh._language.logits

    def forgetful(pieces: Sequence[Piece]) -> torch.Tensor:
        fresh.kept.clear()
        return logits(pieces)

    monkeypatch.setattr(language, "logits", forgetful)

    for question in QUESTIONS:
        assert_same(fresh, plain, [ask(frames.take(s), question, keep_kv=True) for s in Grid(3).probes()])


def test_the_store_keeps_to_its_bytes_and_lets_the_oldest_go() -> None:
    store = Store(100, host_limit=40)
    device = torch.device("cpu")
    for name in "abc":
        store.put(name, torch.full((10,), ord(name), dtype=torch.float32))

    assert store.bytes == (80, 40) and len(store) == 3  # the oldest lies on the host
    first = store.get("a", device)
    assert first is not None and first[0] == ord("a") and store.bytes == (80, 40)  # and came back, for "b"
    store.put("d", torch.zeros(10))
    assert "b" not in store and store.get("b", device) is None
    store.put("huge", torch.zeros(1000))
    assert "huge" not in store and store.bytes <= (100, 40)
    store.clear()
    assert store.bytes == (0, 0) and len(store) == 0


# M01 of tests/reliability.md
def test_out_of_memory_a_batch_is_halved(fresh: Qwen3VL, plain: Qwen3VL, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    emptied: list[int] = []
    fast = fresh._scores

    def greedy(batch: Sequence[PreparedRequest]) -> object:
        sizes.append(len(batch))
        if len(batch) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return fast(batch)

    choose(fresh, [ask(pool(7), keep_kv=True)])
    assert len(fresh.kept) > 0
    monkeypatch.setattr(fresh, "_scores", greedy)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(len(fresh.kept)))
    assert_same(fresh, plain, [ask(pool(n)) for n in (1, 2, 3, 4, 5)])
    assert sizes == [5, 2, 3, 1, 2]
    assert emptied == [0, 0], "what was kept is let go first"


# M01 of tests/reliability.md
def test_out_of_memory_alone_frames_get_smaller_and_the_answer_says_so(
    fresh: Qwen3VL, plain: Qwen3VL, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast = fresh._scores
    large = pool(2, width=256, height=192)

    def greedy(batch: Sequence[PreparedRequest]) -> object:
        if batch[0].layout.largest[0] > 160:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return fast(batch)

    monkeypatch.setattr(fresh, "_scores", greedy)
    shrunk = choose(fresh, [ask(large)])[0]

    assert shrunk.notes == ("frames were shown at 160×128 pixels, because larger ones do not fit memory",)
    assert shrunk.warnings[0] == shrunk.notes[0]
    asked = ask(large, pixels=FrameSize(max_pixels=256 * 192 // 2))
    assert shrunk.logprobs == pytest.approx(choose(plain, [asked])[0].logprobs, abs=1e-4)


def test_a_sequence_that_will_not_fit_is_shrunk_before_it_is_tried(
    fresh: Qwen3VL, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kv_cache.DeviceMemory, "most", lambda self: 219)

    assert "160×128" in choose(fresh, [ask(pool(2, width=256, height=192))])[0].warnings[0]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_blocks_equal_plain_ones(tiny_model: Qwen3VL, plain: Qwen3VL) -> None:
    engine = Qwen3VL(tiny_model._model, tiny_model._tokenizer, spec=tiny_model._spec, identity="fused", compile=True)
    frames = pool(9)
    for question in QUESTIONS:
        assert_same(engine, plain, [ask(frames.take(s), question, keep_kv=True) for s in Grid(3).probes()])
        assert_same(engine, plain, [ask(frames, question)])


def test_small_frames_among_large_ones_are_encoded_once(fresh: Qwen3VL, monkeypatch: pytest.MonkeyPatch) -> None:
    vision = Mock(wraps=fresh._features.tower)
    monkeypatch.setattr(fresh, "_features", replace(fresh._features, tower=vision))
    frames, small = pool(9), View(FrameSize(max_side=64))
    question = QUESTIONS[0]

    choose(fresh, [Request.about(question, (FrameGroup(frames, small),), keep_kv=True)])
    kept = [2, 5]
    others = [i for i in range(9) if i not in kept]
    groups = (FrameGroup(frames.take(kept), View(FrameSize())), FrameGroup(frames.take(others), small))
    choose(fresh, [Request.about(question, groups)])

    seen = [(len(call.args[0]), *call.args[1:]) for call in vision.call_args_list]
    assert seen == [(9, 2, 4), (2, 4, 6)]


def test_out_of_memory_only_the_largest_frames_get_smaller(fresh: Qwen3VL, monkeypatch: pytest.MonkeyPatch) -> None:
    large, small = pool(2, width=256, height=192), pool(4)
    later = FramePool(small.pixels, tuple(time + 100 for time in small.times), source="later")
    groups = (FrameGroup(large, View(FrameSize())), FrameGroup(later, View(FrameSize())))
    fits = (FrameGroup(large, View(FrameSize(max_side=160))), groups[1])
    most = len(fresh._layout(Request.about(QUESTIONS[0], fits)))
    monkeypatch.setattr(kv_cache.DeviceMemory, "most", lambda self: most)
    fast = Mock(wraps=fresh._scores)
    monkeypatch.setattr(fresh, "_scores", fast)

    answer = choose(fresh, [Request.about(QUESTIONS[0], groups)])[0]

    sizes = [call.args[0][0].layout.sizes for call in fast.call_args_list]
    assert sizes == [((160, 128),) * 2 + ((96, 64),) * 4]
    assert answer.notes == ("frames were shown at 160×128 pixels, because larger ones do not fit memory",)
