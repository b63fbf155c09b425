"""Layouts: the half of a prompt that shows the frames is laid out once; what comes out is the same as without that."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from gridprobe.models import Choose, FrameGroup, Request, View
from gridprobe.models.local.kv_cache import LONG, steady_attention
from gridprobe.models.local.layout import PreparedRequest
from gridprobe.models.qwen3vl.engine import Qwen3VL
from gridprobe.models.qwen3vl.prompt import KEPT_HALVES, GridLayout, Layouts
from gridprobe.video import FramePool, FrameSize


def pool(count: int = 4, *, start: float = 0.0, side: int = 64, value: int = 0) -> FramePool:
    pixels = np.full((count, side, side, 3), value, np.uint8)
    return FramePool.from_arrays(pixels, [start + number for number in range(count)])


def request(frames: FramePool, view: View | None = None, **changes: Any) -> Request:
    groups = (FrameGroup(frames, view or View(FrameSize(max_side=64))),)
    return Request(**{"prompt": "Which?", "task": Choose(("A", "B")), "groups": groups, **changes})


def layouts_of(model: Qwen3VL) -> Layouts:
    spec = model._spec
    return Layouts(model._encode_text, model._special, patch=spec.patch, merge=spec.merge)


def same(one: GridLayout, other: GridLayout) -> bool:
    fields = ("ids", "visual", "positions", "owners")
    equal = all(np.array_equal(getattr(one, name), getattr(other, name)) for name in fields)
    return equal and (one.sizes, one.prefix, one.patch) == (other.sizes, other.prefix, other.patch)


REQUESTS = [
    request(pool()),
    request(pool(), prompt="Another question, longer?"),
    request(pool(5)),
    request(pool(start=7.5)),
    request(pool(), View(FrameSize(max_side=64), packing="pairs")),
    request(pool(), View(FrameSize(max_side=32))),
    request(pool(), View(FrameSize(max_side=64), timestamps="none")),
    request(pool(), between=("one", "", "two", "", "three")),
    request(pool(), between=("", "", "two", "", "three")),
    request(pool(), prompt_order="text_first"),
    request(pool(), prompt_order="text_first", prompt="Another question?"),
    request(pool(), groups=()),
    request(pool(), groups=(request(pool()).groups[0], request(pool(3, start=0.5)).groups[0])),
]


def test_a_known_half_changes_nothing(tiny_model: Qwen3VL) -> None:
    known = layouts_of(tiny_model)
    for _ in range(2):
        for asked in REQUESTS:
            assert same(known.of(asked), layouts_of(tiny_model).of(asked)), asked


def test_frames_are_laid_out_once_for_many_questions(tiny_model: Qwen3VL, monkeypatch: pytest.MonkeyPatch) -> None:
    known, made = layouts_of(tiny_model), list[Request]()
    lay_out = known._frames

    def counted(asked: Request, sizes: Sequence[tuple[int, int]], numbers: range) -> list[str | list[int]]:
        if numbers:
            made.append(asked)
        return lay_out(asked, sizes, numbers)

    monkeypatch.setattr(known, "_frames", counted)
    for number in range(5):
        known.of(request(pool(), prompt=f"Question {number}?"))
    assert len(made) == 1
    for start in range(2 * KEPT_HALVES):
        known.of(request(pool(start=1.0 + start)))
    assert len(known._kept) == KEPT_HALVES


def test_the_positions_of_two_halves_go_on_from_one_to_the_other(tiny_model: Qwen3VL) -> None:
    """By the rule itself, token by token: text advances by one, a unit by its longer side."""
    layout = layouts_of(tiny_model).of(request(pool(), between=("one", "", "two", "", "three")))
    multiple, at, place = tiny_model.capabilities.frame_multiple, 0, 0
    units = iter(layout.sizes)
    while place < len(layout):
        if not layout.visual[place]:
            assert layout.positions[:, place].tolist() == [at, at, at]
            at, place = at + 1, place + 1
            continue
        width, height = next(units)
        rows, columns = height // multiple, width // multiple
        expected = [[at, at + row, at + column] for row in range(rows) for column in range(columns)]
        assert layout.positions[:, place : place + rows * columns].T.tolist() == expected
        at, place = at + max(rows, columns), place + rows * columns
    assert next(units, None) is None


def test_stems_differ_where_frames_sizes_or_text_do(tiny_model: Qwen3VL) -> None:
    layouts = layouts_of(tiny_model)

    def prefix(asked: Request) -> object:
        return PreparedRequest(0, asked, layouts.of(asked)).prefix

    first = prefix(request(pool()))
    assert first == prefix(request(pool(), prompt="Another question?")), "the frames are the same"
    others = [
        request(pool(value=9)),
        request(pool(start=0.01)),  # the same time markers
        request(pool(), View(FrameSize(max_side=32))),
        request(pool(), between=("", "", "two", "", "")),
        request(pool(), prompt_order="text_first"),
    ]
    assert len({first, *map(prefix, others)}) == 1 + len(others)
    texts = [prefix(request(frames, prompt_order="text_first")) for frames in (pool(), pool(value=9))]
    assert texts[0] == texts[1], "no frame is part of a stem that is text"


def test_cudnn_prepares_no_kernel_for_each_length() -> None:
    flags: Any = torch.backends.cuda
    gpu, enabled = torch.device("cuda"), flags.cudnn_sdp_enabled()
    with steady_attention(gpu, tokens=LONG - 1):
        assert not flags.cudnn_sdp_enabled()
        assert flags.flash_sdp_enabled() and flags.mem_efficient_sdp_enabled()
    for device, tokens in ((gpu, LONG), (torch.device("cpu"), 0)):
        with steady_attention(device, tokens=tokens):
            assert flags.cudnn_sdp_enabled() == enabled
    assert flags.cudnn_sdp_enabled() == enabled
