"""Many questions about the same frames: one pass for all of them, and the answers of one question at a time."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from gridprobe.models import Posterior, Request, choose, generate
from gridprobe.models.base import SamplingParams
from gridprobe.models.local import kv_cache
from gridprobe.models.local.base import passes
from gridprobe.models.local.layout import PreparedRequest
from gridprobe.models.qwen3vl import engine as passes_module
from gridprobe.models.qwen3vl.engine import Qwen3VL
from gridprobe.models.qwen3vl.language import Piece
from gridprobe.question import Question
from scoring import like, noise_pool, shown

FRAMES = 6
QUESTIONS = [
    Question(f"What happens {'again and ' * n}again?", ["a cat sleeps", "a dog runs", "nothing"][: 2 + n % 2])
    for n in range(7)
]


def about(question: Question, **changes: Any) -> Request:
    return shown(noise_pool(FRAMES), question.prompt, question.labels, keep_kv=True, **changes)


def one_by_one(engine: Qwen3VL, requests: Sequence[Request]) -> list[Posterior]:
    return [choose(engine, [request])[0] for request in requests]


@pytest.fixture
def engine(tiny_model: Qwen3VL) -> Qwen3VL:
    return like(tiny_model, plain=False)


@pytest.fixture
def other(tiny_model: Qwen3VL) -> Qwen3VL:
    return like(tiny_model, plain=False)


@pytest.fixture
def rows(engine: Qwen3VL, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The number of texts in every pass after a stem, side by side or each with a copy of it."""
    counts: list[int] = []
    monkeypatch.setattr(passes_module, "LEAST_ROW", 10_000)
    language = engine._language
    real_row, real_before = language._row, language._before

    def row(pieces: Sequence[Piece], seen: Any) -> Any:
        counts.append(len(pieces))
        return real_row(pieces, seen)

    def before(pieces: Sequence[Piece], h: Any) -> Any:
        if pieces[0].past is not None:
            counts.append(-len(pieces))
        return real_before(pieces, h)

    monkeypatch.setattr(language, "_row", row)
    monkeypatch.setattr(language, "_before", before)
    yield counts


def close(first: Sequence[Posterior], second: Sequence[Posterior]) -> None:
    for a, b in zip(first, second, strict=True):
        assert a.labels == b.labels
        assert a.logprobs == pytest.approx(b.logprobs, abs=1e-4)
        assert (a.attention is None) == (b.attention is None)
        assert a.attention is None or a.attention == pytest.approx(b.attention, abs=1e-5)
        assert replace(a.cost, flops_computed=0.0) == replace(b.cost, flops_computed=0.0)


VARIANTS: dict[str, list[dict[str, Any]]] = {
    "all frames": [{}],
    "most frames": [{"visible_frames": (0, 1, 2, 3)}, {"visible_frames": (1, 2, 3, 4, 5)}, {}],
    "few frames": [{"visible_frames": (2,)}, {"visible_frames": (0,)}, {"visible_frames": (5, 1)}],
    "no frame": [{"visible_frames": ()}, {}],
    "attention": [{"attention": True}, {"attention": True, "visible_frames": (0, 1, 2, 3, 4, 5)}, {}],
    "attention to some": [{"attention": True, "visible_frames": (1, 3)}, {"attention": True}],
    "text first": [{"prompt_order": "text_first"}],
}


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=list(VARIANTS))
def test_many_at_once_are_answered_as_one_by_one(
    engine: Qwen3VL, other: Qwen3VL, changes: list[dict[str, Any]]
) -> None:
    requests = [about(question, **changes[n % len(changes)]) for n, question in enumerate(QUESTIONS)]
    together, apart = choose(engine, requests), one_by_one(other, requests)
    close(together, apart)
    computed = [sum(each.cost.flops_computed for each in some) for some in (together, apart)]
    assert computed[0] == pytest.approx(computed[1], rel=1e-6)


def test_a_kept_stem_is_not_copied_and_all_questions_share_a_pass(engine: Qwen3VL, rows: list[int]) -> None:
    choose(engine, [about(QUESTIONS[0])])
    rows.clear()
    choose(engine, [about(question) for question in QUESTIONS])
    assert rows == [len(QUESTIONS)]


def test_attention_is_watched_in_one_pass(engine: Qwen3VL, rows: list[int]) -> None:
    choose(engine, [about(question, attention=True) for question in QUESTIONS])
    assert rows == [len(QUESTIONS)]


def test_one_question_about_each_of_two_videos_shares_a_pass(engine: Qwen3VL, rows: list[int]) -> None:
    pools = [noise_pool(3, seed=4), noise_pool(5, seed=5)]
    requests = [shown(pool, QUESTIONS[0].prompt, QUESTIONS[0].labels, keep_kv=True) for pool in pools]
    choose(engine, requests)
    assert rows == [-2]


def test_several_questions_about_each_of_two_videos_take_a_row_each(engine: Qwen3VL, other: Qwen3VL) -> None:
    pools = [noise_pool(3, seed=4), noise_pool(5, seed=5)]
    requests = [shown(pool, q.prompt, q.labels, keep_kv=True) for q in QUESTIONS for pool in pools]
    close(choose(engine, requests), one_by_one(other, requests))


def test_a_row_is_bounded(engine: Qwen3VL, other: Qwen3VL, rows: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    longest = max(engine.cost(about(q, visible_frames=())).tokens for q in QUESTIONS)
    monkeypatch.setattr(passes_module, "LEAST_ROW", 2 * longest)
    many = [question for question in QUESTIONS for _ in range(20)]
    found = choose(engine, [about(question) for question in many])
    prefix = engine.cost(about(QUESTIONS[0])).tokens
    assert len(rows) > 1 and sum(rows) == len(many)
    assert all(count * longest <= 2 * max(2 * longest, prefix) for count in rows)
    close(found[::20], one_by_one(other, [about(question) for question in QUESTIONS]))


def jobs(engine: Qwen3VL, requests: Sequence[Request]) -> list[PreparedRequest]:
    return [PreparedRequest(n, request, engine._layout(request), shared=True) for n, request in enumerate(requests)]


def test_a_batch_is_sized_by_what_is_computed_and_copied(engine: Qwen3VL) -> None:
    """144 probes of single frames used to be sized by their whole sequences, so that few ran at a time."""
    few = jobs(engine, [about(QUESTIONS[0], visible_frames=(n % FRAMES,)) for n in range(40)])
    prefix, rest, columns = few[0].layout.prefix, few[0].rest, max(len(job.columns) for job in few)
    kept = {few[0].prefix}
    assert [len(batch) for batch in passes(few, tokens=40 * rest, copies=10**9, kept=kept, copying=False)] == [40]
    assert [len(batch) for batch in passes(few, tokens=10 * rest, copies=10**9, kept=kept, copying=False)] == [10] * 4
    assert all(
        len(batch) * columns <= 10 * columns
        for batch in passes(few, tokens=10**9, copies=10 * columns, kept=kept, copying=False)
    )
    first, *_ = passes(few, tokens=prefix + 5 * rest, copies=10**9, kept=set(), copying=False)
    assert len(first) == 5
    wide = jobs(engine, [about(QUESTIONS[0]) for _ in range(40)])
    assert [len(batch) for batch in passes(wide, tokens=10**9, copies=prefix, kept=kept, copying=False)] == [40]
    assert [len(batch) for batch in passes(wide, tokens=10**9, copies=4 * prefix, kept=kept, copying=True)] == [4] * 10


def test_little_room_for_copies_changes_no_answer(
    engine: Qwen3VL, other: Qwen3VL, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [about(question, visible_frames=(n % FRAMES,)) for n, question in enumerate(QUESTIONS)]
    monkeypatch.setattr(kv_cache, "COPIES_ON_CPU", 1)
    close(choose(engine, requests), one_by_one(other, requests))


def test_texts_after_one_stem_are_written_as_one_by_one(engine: Qwen3VL, other: Qwen3VL) -> None:
    requests = [about(question) for question in QUESTIONS]
    writing = SamplingParams(limit=5)
    together = [texts[0].ids for texts in generate(engine, requests, writing)]
    assert together == [generate(other, [request], writing)[0][0].ids for request in requests]
