"""The size a frame is shown at, and frames with identity."""

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gridprobe.errors import UsageError
from gridprobe.models import Packing, View
from gridprobe.options import Options
from gridprobe.video.frames import FramePool, FrameSize

QWEN_MAX = 786_432
"""Pixels of a frame in the reference preprocessing: 768 tokens of 32×32."""

sources = st.tuples(st.integers(16, 8000), st.integers(16, 8000)).filter(lambda wh: max(wh) <= 200 * min(wh))
limits = st.integers(16, 4096).map(lambda tokens: tokens * 1024)


def published_size(width: int, height: int, max_pixels: int) -> tuple[int, int]:
    """The rule of Qwen's own preprocessing as benchmarks.md 4.4 tells it: round, then scale by the root and floor."""
    w, h = (max(32, round(side / 32) * 32) for side in (width, height))
    if w * h > max_pixels:
        beta = math.sqrt(width * height / max_pixels)
        w, h = (max(32, math.floor(side / beta / 32) * 32) for side in (width, height))
    return w, h


# Sizes.


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ((1920, 1080), (1152, 640)),
        ((1080, 1920), (640, 1152)),
        ((3840, 2160), (1152, 640)),
        ((640, 360), (640, 352)),
        ((2048, 1536), (1024, 768)),
        ((1024, 768), (1024, 768)),
        ((720, 720), (704, 704)),  # 720 / 32 = 22.5 rounds to the even 22
        ((48, 48), (64, 64)),  # 1.5 rounds to the even 2
        ((1, 1), (32, 32)),
        ((10, 300), (32, 288)),
    ],
)
def test_native_size_of_the_reference_preprocessing(source: tuple[int, int], shown: tuple[int, int]) -> None:
    assert FrameSize(max_pixels=QWEN_MAX, multiple=32).fit(*source) == shown


def test_every_4_to_3_source_fills_1024_by_768_exactly() -> None:
    rule = FrameSize(max_pixels=QWEN_MAX, multiple=32)

    shown = {(4 * n, 3 * n): rule.fit(4 * n, 3 * n) for n in range(257, 1400)}

    # 786,432 = 1024·768: the scaled sides are whole multiples of 32, which rounding of doubles must not push lower.
    assert {source: size for source, size in shown.items() if size != (1024, 768)} == {}


@given(sources, limits)
def test_size_is_that_of_the_published_rule(source: tuple[int, int], max_pixels: int) -> None:
    assert FrameSize(max_pixels=max_pixels, multiple=32).fit(*source) == published_size(*source, max_pixels)


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ((1920, 1080), (224, 128)),
        ((1080, 1920), (128, 224)),
        ((1280, 720), (224, 128)),
        ((640, 480), (224, 160)),  # 168 / 32 = 5.25
        ((224, 224), (224, 224)),
        ((100, 100), (96, 96)),  # not enlarged to 224
        ((4000, 20), (224, 32)),
    ],
)
def test_longest_side_of_224_keeps_the_aspect_ratio(source: tuple[int, int], shown: tuple[int, int]) -> None:
    assert FrameSize(max_side=224, multiple=32).fit(*source) == shown


@pytest.mark.parametrize("source", [(1920, 1080), (1080, 1920), (32, 32), (7, 9)])
def test_square_squashes_every_source(source: tuple[int, int]) -> None:
    assert FrameSize(square=224).fit(*source) == (224, 224)


def test_without_limits_sides_are_only_rounded() -> None:
    assert FrameSize(multiple=32).fit(1920, 1080) == (1920, 1088)


def test_multiple_can_be_another() -> None:
    assert FrameSize(multiple=14).fit(100, 50) == (98, 56)


def test_both_limits_hold_together() -> None:
    assert FrameSize(max_side=640, max_pixels=131_072, multiple=32).fit(1920, 1080) == (480, 256)


@pytest.mark.parametrize(
    "rule", [FrameSize(multiple=32), FrameSize(max_pixels=QWEN_MAX, multiple=32), FrameSize(max_side=224, multiple=32)]
)
def test_longest_strip_is_200_to_1(rule: FrameSize) -> None:
    width, height = rule.fit(6400, 32)

    assert width > height == 32


def test_a_rule_that_knows_no_model_rounds_to_whole_pixels() -> None:
    assert FrameSize(max_side=224).fit(1920, 1080) == (224, 126)
    assert FrameSize(max_side=224).rounded_to(32).fit(1920, 1080) == (224, 128)


@given(sources, limits, st.none() | st.integers(1, 64).map(lambda n: 32 * n))
def test_sides_are_positive_multiples_of_32(source: tuple[int, int], max_pixels: int, max_side: int | None) -> None:
    width, height = FrameSize(max_pixels=max_pixels, max_side=max_side, multiple=32).fit(*source)

    assert width % 32 == height % 32 == 0
    assert min(width, height) >= 32


@given(sources, limits)
def test_size_is_never_above_max_pixels(source: tuple[int, int], max_pixels: int) -> None:
    width, height = FrameSize(max_pixels=max_pixels, multiple=32).fit(*source)

    # A strip so thin that its short side is held at 32 may exceed the limit, in the published rule as in ours.
    assert width * height <= max_pixels or min(width, height) == 32


@given(sources, st.integers(1, 100).map(lambda n: 32 * n))
def test_size_is_never_above_max_side(source: tuple[int, int], max_side: int) -> None:
    assert max(FrameSize(max_side=max_side, multiple=32).fit(*source)) <= max_side


@pytest.mark.parametrize(
    ("source", "frames", "shown"),
    [
        ((1920, 1080), 12, (1152, 640)),
        ((1920, 1080), 144, (1152, 640)),
        ((1920, 1080), 256, (1152, 640)),
        ((1280, 720), 144, (1184, 640)),
        ((1280, 720), 576, (832, 448)),
        ((1280, 720), 1024, (640, 352)),
        ((640, 360), 144, (640, 384)),
        ((640, 360), 1024, (608, 352)),
        ((320, 240), 13, (416, 352)),
        ((480, 270), 576, (512, 256)),
        ((854, 480), 144, (832, 512)),
        ((854, 480), 576, (800, 480)),
        ((224, 224), 144, (384, 384)),
        ((100, 80), 12, (448, 320)),
    ],
)
def test_the_papers_sizes_are_those_of_qwen_vl_utils(
    source: tuple[int, int], frames: int, shown: tuple[int, int]
) -> None:
    # What fetch_video(list of frames, image_patch_size=16) of qwen_vl_utils 0.0.14 made of so many frames.
    view = Options.from_preset("paper").full_view

    assert view.size_for(frames, 32).fit(*source) == shown


@pytest.mark.parametrize(("frames", "tokens"), [(301, 720), (512, 420), (2048, 120), (4096, 120)])
def test_tokens_of_a_pair_of_1080p_among_many(frames: int, tokens: int) -> None:
    # benchmarks.md 4.4, measured: 512 and 2,048 frames. At most 128 tokens are left to a pair, however many there are.
    width, height = Options.from_preset("paper").full_view.size_for(frames, 32).fit(1920, 1080)

    assert (width // 32) * (height // 32) == tokens


@given(sources, st.integers(1, 5000), st.sampled_from(["single", "pairs"]))
def test_pictures_of_one_pass_keep_within_their_total(source: tuple[int, int], frames: int, packing: Packing) -> None:
    rule = FrameSize(max_pixels=786_432, total_pixels=20_000_000)
    view = View(rule, packing)

    width, height = view.size_for(frames, 32).fit(*source)

    pictures = frames if packing == "single" else math.ceil(frames / 2)
    assert width * height * pictures <= 20_000_000 or min(width, height) == 32


@given(sources, limits)
def test_source_above_the_limit_is_enlarged_by_no_more_than_rounding(source: tuple[int, int], max_pixels: int) -> None:
    assume(source[0] * source[1] > max_pixels)

    shown = FrameSize(max_pixels=max_pixels).fit(*source)

    assert all(new <= max(32, old + 16) for new, old in zip(shown, source, strict=True))


@given(sources)
def test_source_without_a_limit_is_enlarged_by_no_more_than_rounding(source: tuple[int, int]) -> None:
    shown = FrameSize(max_side=8000).fit(*source)

    assert all(abs(new - old) <= 16 for new, old in zip(shown, source, strict=True))


@given(sources, limits)
def test_turning_the_source_turns_the_size(source: tuple[int, int], max_pixels: int) -> None:
    rule = FrameSize(max_pixels=max_pixels)

    assert rule.fit(*source) == rule.fit(*source[::-1])[::-1]


@given(st.tuples(st.integers(256, 4096), st.integers(256, 4096)))
def test_aspect_ratio_is_kept_within_the_rounding(source: tuple[int, int]) -> None:
    width, height = FrameSize(max_pixels=QWEN_MAX).fit(*source)

    # Each side is off by less than one multiple, downwards from the exact scale or to the nearest.
    exact = math.sqrt(min(1.0, QWEN_MAX / (source[0] * source[1])))
    assert abs(width - source[0] * exact) <= 32.001
    assert abs(height - source[1] * exact) <= 32.001


# Pools.


def pixels(frames: int = 4, height: int = 6, width: int = 8) -> npt.NDArray[np.uint8]:
    return np.arange(frames * height * width * 3, dtype=np.uint32).reshape(frames, height, width, 3).astype(np.uint8)


def pool(times: tuple[float, ...] = (0.0, 1.5, 3.0, 4.5)) -> FramePool:
    return FramePool(pixels(len(times)), times, source="0123456789abcdef", warnings=("odd",))


def test_pool_knows_its_length_and_size() -> None:
    assert (len(pool()), pool().width, pool().height) == (4, 8, 6)


def test_take_keeps_pixels_with_their_times() -> None:
    whole = pool()

    some = whole.take([1, 3])

    assert some.times == (1.5, 4.5)
    assert np.array_equal(some.pixels, whole.pixels[[1, 3]])


def test_take_keeps_where_the_frames_came_from() -> None:
    some = pool().take((0,))

    assert (some.source, some.warnings, some.info) == ("0123456789abcdef", ("odd",), None)


def test_take_keeps_the_order_given() -> None:
    whole = pool()

    turned = whole.take([3, 0, 3])

    assert turned.times == (4.5, 0.0, 4.5)
    assert np.array_equal(turned.pixels[0], whole.pixels[3])


def test_take_leaves_the_pool_alone() -> None:
    whole = pool()
    some = whole.take([0, 1])

    some.pixels[:] = 0

    assert np.array_equal(whole.pixels, pixels())


def test_take_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="one time for each frame, got 0 frames and 0 times"):
        pool().take([])


def test_take_outside_the_pool_is_an_error() -> None:
    with pytest.raises(IndexError):
        pool().take([4])


def test_keys_name_source_time_and_size() -> None:
    read = replace(pool((0.0, 2.5)), info=object())  # type: ignore[arg-type]  # as if read from a file

    assert read.keys == (("0123456789abcdef", 0.0, 8, 6), ("0123456789abcdef", 2.5, 8, 6))


def test_frames_a_caller_put_together_are_known_by_their_content_too() -> None:
    one, other = (FramePool(np.full((1, 6, 8, 3), value, np.uint8), (0.0,), "clip") for value in (1, 2))

    assert one.keys != other.keys
    assert one.keys == FramePool(np.full((1, 6, 8, 3), 1, np.uint8), (0.0,), "clip").keys


def test_frame_keeps_its_key_in_any_subset() -> None:
    whole = pool()

    assert whole.take([2, 0]).keys == (whole.keys[2], whole.keys[0])


def test_frames_of_other_videos_and_sizes_have_other_keys() -> None:
    one = FramePool(pixels(1), (1.0,), source="a")
    video = FramePool(pixels(1), (1.0,), source="b")
    size = FramePool(pixels(1, 8, 6), (1.0,), source="a")

    assert len({*one.keys, *video.keys, *size.keys}) == 3


def test_repr_shows_shapes_and_no_pixels() -> None:
    assert repr(pool()) == "FramePool(4 frames of 8×6, 0.0–4.5 s, source=0123456789ab)"


@pytest.mark.parametrize(
    "bad",
    [
        pixels().astype(np.float32),
        pixels().astype(np.int8),
        pixels()[0],
        pixels()[..., :1],
        np.zeros((4, 6, 8, 4), np.uint8),
        np.zeros((4, 3, 6, 8), np.uint8),
    ],
    ids=["float", "signed", "one frame", "grey", "alpha", "channels first"],
)
def test_frames_must_be_8_bit_rgb(bad: npt.NDArray[np.uint8]) -> None:
    with pytest.raises(UsageError, match=r"frames must be uint8 of shape \(n, h, w, 3\), got"):
        FramePool(bad, (0.0, 1.0, 2.0, 3.0), source="a")


@pytest.mark.parametrize(("frames", "times"), [(4, (0.0, 1.0)), (1, (0.0, 1.0)), (0, ()), (1, ()), (0, (1.0,))])
def test_pool_needs_one_time_for_each_frame(frames: int, times: tuple[float, ...]) -> None:
    with pytest.raises(UsageError, match=f"got {frames} frames and {len(times)} times"):
        FramePool(pixels(frames), times, source="a")


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_times_must_be_finite(bad: float) -> None:
    with pytest.raises(UsageError, match="frame times must be finite"):
        FramePool(pixels(2), (0.0, bad), source="a")
