"""Questions to the memory of some frames, and the attention of a question, against transformers' own model."""

import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from plain_transformers import patches_of
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import Qwen3VLForConditionalGeneration

from gridprobe import MockModel, Session
from gridprobe._util import listening
from gridprobe.errors import Cancelled, ModelError, TooLarge, UsageError
from gridprobe.models import (
    Choose,
    FrameGroup,
    Model,
    Packing,
    Request,
    View,
    choose,
    cost_model_of,
)
from gridprobe.models.local import kv_cache as memory_module
from gridprobe.models.local.generate import letter_logprobs, letter_tokens
from gridprobe.models.local.kv_cache import Store, free_bytes
from gridprobe.models.local.layout import PreparedRequest
from gridprobe.models.qwen3vl.engine import Qwen3VL
from gridprobe.models.qwen3vl.pricing import attention_flops, head_flops, prefill_flops, price_recall
from gridprobe.models.wrappers import CachedModel
from gridprobe.question import Question
from gridprobe.selectors import GridProbe
from gridprobe.selectors.gridprobe import NO_ATTENTION
from gridprobe.video import FramePool, FrameSize
from gridprobe_world.embedded import Embedded, Vocabulary
from scoring import like, noise_pool, shown

FIRST = Question("What happens?", ["a cat sleeps", "a dog runs", "nothing"])
SECOND = Question("And who is it that comes in through the door at the very end?", ["nobody", "the cat"])
COUNT = 5
SMALL = FrameSize(max_side=64)


def one_size(packing: Packing, **changes: Any) -> Request:
    return shown(noise_pool(COUNT), FIRST.prompt, FIRST.labels, packing=packing, **changes)


def two_sizes(packing: Packing) -> Request:
    """The frames 1 and 4 as they are, among small ones; shown in time order."""
    frames = noise_pool(COUNT)
    large = FrameGroup(frames.take([1, 4]), View(FrameSize(), packing))
    small = FrameGroup(frames.take([0, 2, 3]), View(SMALL, packing))
    return Request(FIRST.prompt, Choose(FIRST.labels), (large, small))


TEXTS = ("at the start", "", "in the middle", "a word", "", "at the end")
REQUESTS = {
    "single": one_size("single"),
    "pairs": one_size("pairs"),
    "two sizes": two_sizes("single"),
    "two sizes in pairs": two_sizes("pairs"),
    "texts": one_size("single", between=TEXTS),
    "texts in pairs": one_size("pairs", between=TEXTS),
    "no times": one_size("single", timestamps="none"),
}
SEEN = [(), (0,), (3,), (1, 4), (4, 2, 0), (0, 1, 2, 3)]
OTHERS = [
    Question("How many?", ["one", "two", "three"]),
    Question("Where is the cat, and what is it doing there all day?", ["at home", "outside", "nowhere"]),
]


@pytest.fixture(scope="module")
def eager(tiny_checkpoint: Path) -> Any:
    """Transformers' own model, with the attention that returns its weights."""
    return Qwen3VLForConditionalGeneration.from_pretrained(
        tiny_checkpoint, attn_implementation="eager", dtype=torch.float32
    ).eval()


@pytest.fixture
def fresh(tiny_model: Qwen3VL) -> Qwen3VL:
    return like(tiny_model, plain=False)


@pytest.fixture
def plain(tiny_model: Qwen3VL) -> Qwen3VL:
    return like(tiny_model, plain=True)


def owned(ids: Sequence[int], prefix: int, *, engine: Qwen3VL) -> list[list[int]]:
    """The tokens of each unit: from the end of the one before it, or of the turn's opening, to its own end."""
    ends = [place for place in range(prefix) if ids[place] == engine._special.vision_end]
    opening = engine._tokenizer.encode("<|im_start|>user\n")
    assert list(ids[: len(opening)]) == opening
    starts = [len(opening), *(end + 1 for end in ends[:-1])]
    return [list(range(start, end + 1)) for start, end in zip(starts, ends, strict=True)]


def units_of(request: Request) -> list[set[int]]:
    """The places of each unit's frames in the order shown, one after another."""
    counts = [len(unit.members) for unit in request.units]
    return [set(range(sum(counts[:n]), sum(counts[: n + 1]))) for n in range(len(counts))]


@torch.inference_mode()
def by_transformers(eager: Any, engine: Qwen3VL, request: Request) -> tuple[list[float], list[float]]:
    """Letters, and attention to each frame: the whole sequence once, then the text again with what it may not see."""
    layout = engine._layout(request)
    ids, positions = torch.from_numpy(layout.ids)[None], torch.from_numpy(layout.positions)[:, None]
    cache = eager(
        input_ids=ids,
        position_ids=positions,
        attention_mask=torch.ones_like(ids),
        pixel_values_videos=patches_of(engine, PreparedRequest(0, request, layout)),
        video_grid_thw=torch.tensor(layout.grids),
        use_cache=True,
    ).past_key_values
    prefix, rest = layout.prefix, len(layout) - layout.prefix
    cache.crop(-rest)
    tokens, members = owned(layout.ids.tolist(), prefix, engine=engine), units_of(request)
    mask = torch.zeros(1, 1, rest, len(layout))
    mask[..., prefix:] = torch.full((rest, rest), -torch.inf).triu(1)
    for places, frames in zip(tokens, members, strict=True):
        if request.visible_frames is not None and not frames & set(request.visible_frames):
            mask[..., places] = -torch.inf
    out = eager(
        input_ids=ids[:, prefix:],
        position_ids=positions[:, :, prefix:],
        attention_mask=mask,
        past_key_values=cache,
        output_attentions=True,
    )
    letters = list(letter_tokens(engine._tokenizer, request.labels).values())
    weights = torch.stack(out.attentions[:-1])[:, 0]  # layers × heads × tokens × keys
    looks = [weights[..., places].sum(-1).amax(-1).mean().item() for places in tokens]
    return list(letter_logprobs(out.logits[:, -1], [letters])[0][0]), [
        look for look, frames in zip(looks, members, strict=True) for _ in frames
    ]


@pytest.mark.parametrize("visible_frames", SEEN)
@pytest.mark.parametrize("name", REQUESTS)
def test_an_answer_from_some_frames_is_that_of_transformers_with_the_others_masked(
    name: str, visible_frames: tuple[int, ...], fresh: Qwen3VL, eager: Any
) -> None:
    request = replace(REQUESTS[name], visible_frames=visible_frames)
    expected, looks = by_transformers(eager, fresh, request)
    ordinary = choose(fresh, [REQUESTS[name]])[0].logprobs

    answer, watched = choose(fresh, [request, replace(request, attention=True)])

    assert answer.logprobs == pytest.approx(expected, abs=1e-4)
    assert watched.logprobs == pytest.approx(expected, abs=1e-4)
    assert watched.attention == pytest.approx(looks, abs=1e-5)
    assert len(request.seen_units) == len(request.units) or answer.logprobs != pytest.approx(ordinary, abs=1e-3)


@pytest.mark.parametrize("name", REQUESTS)
def test_a_question_that_sees_all_frames_is_an_ordinary_one(name: str, fresh: Qwen3VL) -> None:
    request = REQUESTS[name]
    ordinary = choose(fresh, [request])[0]

    everything = choose(fresh, [replace(request, visible_frames=tuple(range(COUNT)))])[0]

    assert everything.logprobs == pytest.approx(ordinary.logprobs, abs=1e-5)
    assert everything.mass == pytest.approx(ordinary.mass, rel=1e-4)
    assert ordinary.attention is None and everything.attention is None


@pytest.mark.parametrize("name", REQUESTS)
def test_attention_is_that_of_transformers(name: str, fresh: Qwen3VL, eager: Any) -> None:
    request = replace(REQUESTS[name], attention=True)
    expected, looks = by_transformers(eager, fresh, request)

    answer = choose(fresh, [request])[0]

    assert answer.logprobs == pytest.approx(expected, abs=1e-4)
    assert answer.attention == pytest.approx(looks, abs=1e-5)
    assert len(looks) == COUNT and max(looks) - min(looks) > 1e-3


def test_a_batch_of_all_kinds_of_requests_equals_single_ones(tiny_model: Qwen3VL) -> None:
    asked = [
        replace(request, prompt=question.prompt, attention=attention, visible_frames=visible_frames)
        for request, question in zip(REQUESTS.values(), OTHERS * len(REQUESTS), strict=False)
        for attention in (False, True)
        for visible_frames in (None, (0, 3))
    ]
    together = choose(like(tiny_model, plain=False), asked)

    for request, one in zip(asked, together, strict=True):
        alone = choose(like(tiny_model, plain=False), [request])[0]
        assert one.logprobs == pytest.approx(alone.logprobs, abs=1e-4)
        assert one.attention == (None if alone.attention is None else pytest.approx(alone.attention, abs=1e-5))
        assert (one.attention is None) == (not request.attention)


def kinds() -> list[Request]:
    """Every request with and without memory, attention, and both."""
    return [
        replace(request, attention=attention, visible_frames=visible_frames)
        for request in REQUESTS.values()
        for attention in (False, True)
        for visible_frames in (None, (), (0, 3))
    ]


def test_the_estimate_is_the_price_of_every_kind_of_request(fresh: Qwen3VL, tiny_checkpoint: Path) -> None:
    gauge, memo = cost_model_of(str(tiny_checkpoint)), CachedModel(fresh)
    embedded = Embedded(fresh, Vocabulary(frozenset()), "embedded:tiny")
    for request in kinds():
        estimate = fresh.cost(request)
        spent = choose(fresh, [request])[0].cost

        assert replace(spent, flops_computed=spent.flops) == estimate
        assert gauge.cost(request) == memo.cost(request) == embedded.cost(request) == estimate
        assert choose(gauge, [request])[0].cost == estimate


@pytest.mark.parametrize("attention", [False, True])
@pytest.mark.parametrize("name", REQUESTS)
def test_after_an_overview_the_memory_of_its_frames_costs_only_the_text(
    name: str, attention: bool, fresh: Qwen3VL
) -> None:
    overview = replace(REQUESTS[name], attention=True, keep_kv=True)
    first = choose(fresh, [overview])[0].cost
    probes = [replace(overview, visible_frames=visible_frames, attention=attention) for visible_frames in SEEN]

    costs = [posterior.cost for posterior in choose(fresh, probes)]

    assert first.flops_computed == first.flops
    for probe, cost in zip(probes, costs, strict=True):
        layout = fresh._layout(probe)
        tokens, known = len(layout) - layout.prefix, len(PreparedRequest(0, probe, layout).columns)
        watching = attention_flops(fresh.dims, tokens, known=known) if attention else 0.0
        assert cost.flops_computed == cost.flops == price_recall(fresh.dims, tokens, known=known).flops + watching


def text_flops(engine: Qwen3VL, request: Request) -> float:
    """What a question with attention costs after frames that are known."""
    dims, layout = engine.dims, engine._layout(request)
    watching = attention_flops(dims, len(layout) - layout.prefix, known=layout.prefix)
    return prefill_flops(dims, len(layout), known=layout.prefix) + head_flops(dims) + watching


def test_the_next_question_with_attention_pays_for_its_text(fresh: Qwen3VL) -> None:
    frames = noise_pool(COUNT)
    choose(fresh, [shown(frames, FIRST.prompt, FIRST.labels, attention=True, keep_kv=True)])
    later = shown(frames, SECOND.prompt, SECOND.labels, attention=True, keep_kv=True)

    cost = choose(fresh, [later])[0].cost

    assert cost.flops_computed == text_flops(fresh, later) < 0.7 * cost.flops
    assert cost.flops == fresh.cost(later).flops


def test_a_full_store_changes_only_the_cost(tiny_model: Qwen3VL) -> None:
    roomy, full = (like(tiny_model, plain=False) for _ in range(2))
    full.kept = Store(1)
    for request in kinds():
        a, b = choose(roomy, [request])[0], choose(full, [request])[0]
        assert a.logprobs == pytest.approx(b.logprobs, abs=1e-5)
        assert a.attention == (None if b.attention is None else pytest.approx(b.attention, abs=1e-6))
        assert a.cost.flops == b.cost.flops and a.cost.flops_computed <= b.cost.flops_computed
    assert len(full.kept) == 0 and len(roomy.kept) > 0


def watch_tower(engine: Qwen3VL, monkeypatch: pytest.MonkeyPatch) -> Mock:
    tower = Mock(wraps=engine._features.tower)
    monkeypatch.setattr(engine, "_features", replace(engine._features, tower=tower))
    return tower


def encoded(tower: Mock) -> list[tuple[int, int, int]]:
    """How many units of which rows and columns of patches, call by call."""
    return [(len(call.args[0]), *call.args[1:]) for call in tower.call_args_list]


def test_a_session_encodes_each_frame_once_at_each_size(fresh: Qwen3VL, monkeypatch: pytest.MonkeyPatch) -> None:
    tower = watch_tower(fresh, monkeypatch)
    frames = noise_pool(9)
    with Session(frames, model=fresh, k=3, effort="full", frames=2, small=SMALL) as session:
        first = session.ask(FIRST)
        assert encoded(tower) == [(9, 2, 4), (2, 4, 6)], "all frames small, and the kept ones as they are"
        tower.reset_mock()
        second = session.ask(SECOND)

    new = set(second.selection.indices) - set(first.selection.indices)
    assert encoded(tower) == ([(len(new), 4, 6)] if new else [])
    assert first.shown_native == second.shown_native == 2
    assert first.cost.overview.flops_computed == first.cost.overview.flops
    assert first.cost.focus.flops_computed < first.cost.focus.flops
    later = shown(frames, SECOND.prompt, SECOND.labels, pixels=SMALL)
    layout = fresh._layout(later)
    asked = prefill_flops(fresh.dims, len(layout), known=layout.prefix) + head_flops(fresh.dims)
    assert second.cost.overview.flops_computed == asked
    assert second.cost.probe.flops_computed == second.cost.probe.flops == text_flops(fresh, later), "the map's"


def test_single_frames_are_asked_about_from_the_memory_of_the_overview(
    fresh: Qwen3VL, monkeypatch: pytest.MonkeyPatch
) -> None:
    tower = watch_tower(fresh, monkeypatch)
    with Session(noise_pool(9), model=fresh, k=3, effort="quick", small=SMALL) as session:
        cost = session.ask(FIRST, show_map=True).cost.probe

    assert encoded(tower) == [(9, 2, 4)], "frames are encoded once"
    assert cost.calls == 1 + 3 and cost.visual_tokens == 0
    assert cost.flops_computed == cost.flops > 0


@pytest.mark.parametrize("changes", [{"visible_frames": (0,)}, {"attention": True}])
def test_the_plain_path_refuses_the_memory_of_frames(plain: Qwen3VL, changes: dict[str, Any]) -> None:
    assert not plain.capabilities.kv_reuse and not CachedModel(plain).capabilities.kv_reuse
    with pytest.raises(ModelError, match=r"cannot question the memory of frames$"):
        choose(plain, [one_size("single", **changes)])


def test_without_a_memory_rows_and_columns_are_probed_and_a_note_says_so(plain: Qwen3VL) -> None:
    frames = noise_pool(9)

    found = GridProbe(plain, probes="attention").select(frames, FIRST)

    assert NO_ATTENTION in found.notes
    fresh = GridProbe(plain, probes="fresh").select(frames, FIRST)
    assert found.scores == pytest.approx(fresh.scores) and NO_ATTENTION not in fresh.notes
    assert found.evidence is not None and found.evidence.kind == "probes" and len(found.probes) == 6


def test_a_session_on_a_model_without_memory_answers(plain: Qwen3VL) -> None:
    with Session(noise_pool(9), model=plain, k=3, effort="full") as session:
        answer = session.ask(FIRST)

    assert answer.reached.overview is not None and answer.reached.overview.attention is None
    assert answer.reached.by == "focus" and NO_ATTENTION in answer.selection.notes
    assert any(NO_ATTENTION in warning for warning in answer.warnings)


def test_a_memo_passes_memory_and_attention_on_and_keeps_them_apart(fresh: Qwen3VL) -> None:
    run = Mock(wraps=fresh.run)
    model = Mock(wraps=fresh, run=run, identity="tiny", capabilities=fresh.capabilities)
    memo = CachedModel(model)
    asked = [
        one_size("single", visible_frames=visible_frames, attention=looks)
        for visible_frames in (None, (), (0,))
        for looks in (False, True)
    ]

    first = choose(memo, asked)
    again = choose(memo, asked[::-1])

    assert memo.capabilities.kv_reuse and again == first[::-1] and memo.hits == len(asked)
    assert run.call_count == 1 and run.call_args.args[0] == asked
    assert [posterior.attention is not None for posterior in first] == [False, True] * 3
    assert len({posterior.logprobs for posterior in first[::2]}) == 3


def test_an_embedded_model_passes_memory_and_attention_on(fresh: Qwen3VL) -> None:
    embedded = Embedded(fresh, Vocabulary(frozenset()), "embedded:tiny")
    asked = [one_size("single", visible_frames=(0,), attention=looks) for looks in (False, True)]

    assert embedded.capabilities.kv_reuse
    for ours, theirs in zip(choose(embedded, asked), choose(fresh, asked), strict=True):
        assert ours.logprobs == pytest.approx(theirs.logprobs, abs=1e-5)
        assert (ours.attention is None) == (theirs.attention is None)


def brightness(request: Request) -> dict[str, float]:
    """As sure of A as the frames are bright; of B without frames."""
    light = [float(group.frames.pixels.mean()) for group in request.groups]
    return {"A": sum(light) / len(light) / 255 if light else 0.0, "B": 0.5}


def grays(*levels: int) -> FramePool:
    pixels = np.stack([np.full((32, 32, 3), level, dtype=np.uint8) for level in levels])
    return FramePool(pixels, tuple(float(i) for i in range(len(levels))), source="gray")


def test_a_scripted_model_answers_from_the_frames_it_may_see() -> None:
    model, frames = MockModel(brightness), grays(0, 255, 51)
    dark, bright, nothing = (shown(frames, visible_frames=visible_frames) for visible_frames in ((0,), (1,), ()))

    answers = choose(model, [dark, bright, nothing, shown(frames, attention=True)])

    assert [round(answer.probabilities["A"], 3) for answer in answers[:3]] == [0.0, 0.667, 0.0]
    assert answers[3].attention == pytest.approx((1.0, 2 / 3, 0.5 / 0.7))


def test_a_scripted_model_counts_the_frames_of_several_groups_in_the_order_shown() -> None:
    frames = grays(0, 255, 51, 255)
    groups = tuple(FrameGroup(frames.take(some), View(FrameSize())) for some in ([1, 3], [0, 2]))
    request = Request("Question: ?", Choose(("A", "B")), groups)

    looked, *single = choose(
        MockModel(brightness),
        [replace(request, attention=True), *(replace(request, visible_frames=(i,)) for i in range(4))],
    )

    assert [round(answer.probabilities["A"], 3) for answer in single] == [0.0, 0.667, 0.286, 0.667]
    assert looked.attention == tuple(answer.confidence for answer in single)


def test_a_question_without_frames_attends_to_none(fresh: Qwen3VL) -> None:
    request = Request(FIRST.prompt, Choose(FIRST.labels))
    for model in (fresh, MockModel(lambda asked: dict.fromkeys(asked.labels, 1.0))):
        ordinary, *others = choose(
            model, [request, replace(request, attention=True), replace(request, visible_frames=())]
        )
        assert others[0].attention == () and others[1].attention is None
        for answer in others:
            assert answer.logprobs == pytest.approx(ordinary.logprobs, abs=1e-5)


@pytest.mark.parametrize("name", REQUESTS)
def test_a_scripted_model_and_one_known_by_name_are_priced_alike(name: str) -> None:
    scripted: Model = MockModel(brightness)
    gauge = cost_model_of("Qwen/Qwen3-VL-2B-Instruct")
    request = REQUESTS[name]
    assert scripted.capabilities.kv_reuse and gauge.capabilities.kv_reuse
    costs = {
        kind: scripted.cost(each)
        for kind, each in {
            "ordinary": request,
            "attention": replace(request, attention=True),
            "some": replace(request, visible_frames=(0,)),
            "all": replace(request, visible_frames=tuple(range(COUNT))),
            "some with attention": replace(request, visible_frames=(0,), attention=True),
        }.items()
    }

    assert gauge.cost(replace(request, visible_frames=(0,), attention=True)) == costs["some with attention"]
    assert costs["some"].flops < costs["all"].flops < costs["ordinary"].flops < costs["attention"].flops
    assert costs["some"].flops < costs["some with attention"].flops
    looked = choose(gauge, [replace(request, attention=True)])[0]
    assert looked.attention == (0.0,) * COUNT and looked.cost == costs["attention"]


@pytest.mark.parametrize("visible_frames", [(5,), (-1,), (0, 99)])
def test_frames_that_are_not_there_cannot_be_seen(visible_frames: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="cannot see the frames"):
        one_size("single", visible_frames=visible_frames)


@pytest.mark.parametrize("changes", [{"visible_frames": (0,)}, {"attention": True}])
def test_the_memory_of_frames_needs_them_before_the_text(changes: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="frames_first"):
        one_size("single", prompt_order="text_first", **changes)


@pytest.mark.parametrize("order", ["frames_first", "text_first"])
def test_texts_that_are_read_in_parts_are_answered_as_in_one(tiny_model: Qwen3VL, order: Any) -> None:
    whole, apart = (like(tiny_model, plain=False) for _ in range(2))
    apart._language._scores = 500
    asked = [replace(each, prompt_order=order, keep_kv=True) for each in REQUESTS.values()]
    if order == "frames_first":
        asked += kinds()

    for a, b in zip(choose(whole, asked), choose(apart, asked), strict=True):
        assert a.logprobs == pytest.approx(b.logprobs, abs=1e-5)
        assert a.attention == (None if b.attention is None else pytest.approx(b.attention, abs=1e-5))
        assert a.cost.flops == b.cost.flops


class Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the bytes of the largest tensor that is made."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        for each in made if isinstance(made, tuple | list) else [made]:
            if isinstance(each, torch.Tensor):
                self.bytes = max(self.bytes, each.nbytes)
        return made


@pytest.mark.parametrize(
    "changes",
    [
        {"keep_kv": True},
        {"keep_kv": True, "attention": True},
        {"visible_frames": (0, 3)},
        {"prompt_order": "text_first"},
    ],
    ids=lambda changes: " ".join(changes),
)
def test_memory_grows_with_the_length_of_a_text_and_not_with_its_square(
    changes: dict[str, Any], tiny_model: Qwen3VL
) -> None:
    engine = like(tiny_model, plain=False)
    engine._language._scores = 2**12
    largest = []
    for words in (200, 800):
        with Largest() as watch:
            choose(engine, [replace(one_size("single", **changes), prompt="Question: " + "why " * words + "?")])
        largest.append(watch.bytes)

    assert largest[1] < 5 * largest[0], "4 times as many tokens; their square is 16 times as much"


PEAK = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
import numpy as np
from gridprobe import load_model
from gridprobe.models.base import Choose, FrameGroup, Request, View
from gridprobe.video import FrameSize
from gridprobe.video.frames import FramePool

def peak():
    return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) / 1024

model = load_model("embedded:nano", device="cpu")
frames = FramePool(np.zeros((4, 64, 64, 3), np.uint8), (0.0, 1.0, 2.0, 3.0), source="black")
group = FrameGroup(frames, View(FrameSize()))
for words in (4, 5000):
    before = peak()
    prompt = "Question: " + "red " * words + "?\\nA. red\\nB. blue\\nAnswer:"
    model.run([Request(prompt, Choose(("A", "B")), (group,), attention=True, keep_kv=True)])
print(peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_long_question_does_not_take_all_memory() -> None:
    run = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True, timeout=300)

    assert float(run.stdout) < 400, "MB; scores of all heads at once would be 3 × 5,000² × 4 bytes, several times"


def test_what_does_not_fit_into_memory_is_refused_before_it_runs(
    fresh: Qwen3VL, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_module, "free_bytes", lambda: 10_000_000)
    long = replace(one_size("single"), prompt="why " * 6000)
    with monkeypatch.context() as patch:
        patch.setattr(fresh, "_run", Mock(side_effect=AssertionError("it ran")))
        sentence = (
            r"^5 frames of \d+×\d+ and the question are [\d,]+ tokens, which take \d+\.\d GB, but only 0\.0 GB of "
            r"memory are free; use fewer or smaller frames, or a shorter question$"
        )
        with pytest.raises(TooLarge, match=sentence):
            choose(fresh, [long])

    assert choose(fresh, [one_size("single")])[0].labels, "a short one is answered"


def test_the_memory_that_is_free_is_no_more_than_the_limits_of_the_process() -> None:
    code = "import resource; resource.setrlimit(resource.RLIMIT_AS, (9 << 30, 9 << 30))\n"
    code += "from gridprobe.models.local.kv_cache import free_bytes; print(free_bytes())"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)

    assert 0 < int(run.stdout) < 9 << 30 and free_bytes() > 0


def test_a_question_that_nobody_waits_for_ends_within_its_pass(fresh: Qwen3VL) -> None:
    cancel, block = threading.Event(), fresh._language._block
    layers: list[int] = []

    def counting(*args: Any) -> Any:
        layers.append(len(layers))
        cancel.set()
        return block(*args)

    fresh._language._block = counting
    with listening(lambda event: None, cancel=cancel), pytest.raises(Cancelled):
        choose(fresh, [one_size("single")])

    assert len(layers) == 1 < fresh.dims.layers
    fresh._language._block = block
    assert choose(fresh, [one_size("single")])[0].labels
