"""Every number here is printed in the paper or worked out in benchmarks.md, part 5."""

import pytest

from gridprobe.models.base import CONVENTIONS, Cost
from gridprobe.models.qwen3vl.pricing import (
    QWEN3_VL,
    ModelDims,
    VisionDims,
    honest_language_flops,
    price,
    published_flops,
    vision_flops,
)

T = 1e12
FULL_HD = (40, 72)
"""Patches of a 640×1152 frame, which is what 1920×1080 becomes."""
PROBE = (14, 14)
"""Patches of a 224×224 frame."""
PRINTED = 0.06
"""Half a unit in the last place of a number printed with one decimal, and a little."""

sizes = ("2B", "4B", "8B")


def table(name: str, *columns: float) -> list[tuple[str, float]]:
    """One row of a printed table: a value for each model size."""
    return list(zip(sizes, columns, strict=True))


# The paper's all-frames rows.


@pytest.mark.parametrize(
    ("size", "tokens", "printed"),
    [
        ("2B", 52_759, 820),
        ("4B", 52_798, 1415),
        ("8B", 52_767, 2441),
        ("2B", 54_471, 868),
        ("4B", 54_462, 1493),
        ("8B", 54_464, 2574),
    ],
)
def test_published_convention_gives_the_papers_number_to_the_digit(size: str, tokens: int, printed: int) -> None:
    assert published_flops(QWEN3_VL[size], tokens) / T == pytest.approx(printed, abs=0.51)


@pytest.mark.parametrize(("size", "printed"), table("Video-MME-v2", 820, 1415, 2441))
def test_one_token_count_explains_all_of_video_mme_v2(size: str, printed: float) -> None:
    assert published_flops(QWEN3_VL[size], 52_770) / T == pytest.approx(printed, rel=0.002)


@pytest.mark.parametrize(("size", "printed"), table("LongVideoBench", 868, 1493, 2574))
def test_one_token_count_explains_all_of_longvideobench(size: str, printed: float) -> None:
    assert published_flops(QWEN3_VL[size], 54_460) / T == pytest.approx(printed, rel=0.002)


def test_probe_stage_of_the_papers_collated_row() -> None:
    # The row is 66.6 T: 24 probes of 553 tokens (47.4 T) and one pass over an image of 4096 tokens (19.2 T with text).
    assert 24 * published_flops(QWEN3_VL["2B"], 553) / T == pytest.approx(47.4, abs=PRINTED)


# The table at 52,700 tokens.


@pytest.mark.parametrize(("size", "printed"), table("authors' convention", 818.4, 1410.5, 2435.8))
def test_published_total_at_52700_tokens(size: str, printed: float) -> None:
    assert published_flops(QWEN3_VL[size], 52_700) / T == pytest.approx(printed, abs=PRINTED)


@pytest.mark.parametrize(("size", "printed"), table("honest LM", 467.1, 1202.0, 1551.2))
def test_honest_language_model_at_52700_tokens(size: str, printed: float) -> None:
    assert honest_language_flops(QWEN3_VL[size], 52_700) / T == pytest.approx(printed, abs=PRINTED)


@pytest.mark.parametrize(("size", "printed"), table("vision tower, 144 frames", 195.0, 195.9, 262.1))
def test_vision_tower_on_144_frames_of_full_hd(size: str, printed: float) -> None:
    assert vision_flops(QWEN3_VL[size].vision, [(72, *FULL_HD)]) / T == pytest.approx(printed, abs=PRINTED)


@pytest.mark.parametrize(("size", "printed"), table("honest total", 662.1, 1397.9, 1813.3))
def test_honest_total_of_a_pass_over_all_frames(size: str, printed: float) -> None:
    assert price(QWEN3_VL[size], 52_700, [(72, *FULL_HD)]).tflops == pytest.approx(printed, abs=0.11)


@pytest.mark.parametrize(("size", "printed"), table("authors' convention", 818.4, 1410.5, 2435.8))
def test_published_price_has_no_vision_tower(size: str, printed: float) -> None:
    assert price(QWEN3_VL[size], 52_700, [(72, *FULL_HD)]).tflops_paper == pytest.approx(printed, abs=PRINTED)


@pytest.mark.parametrize(
    ("size", "attention", "linear"), [("2B", 318.5, 148.5), ("4B", 819.1, 383.0), ("8B", 819.1, 732.1)]
)
def test_honest_terms_have_the_printed_sizes(size: str, attention: float, linear: float) -> None:
    # F(N) = a·N + b·N(N+1) + c, so F(2N) - 2F(N) + c = b·2N² leaves the attention; one token has a + 2b + c.
    dims, n = QWEN3_VL[size], 52_700
    head = honest_language_flops(dims, 0)

    quadratic = (honest_language_flops(dims, 2 * n) - 2 * honest_language_flops(dims, n) + head) / (2 * n * n)

    assert quadratic * n * (n + 1) / T == pytest.approx(attention, abs=PRINTED)
    rest = honest_language_flops(dims, n) - head - quadratic * n * (n + 1)
    assert rest / T == pytest.approx(linear, abs=PRINTED)


@pytest.mark.parametrize(
    ("size", "attention", "rest"), [("2B", 637.0, 32.8 + 148.5), ("4B", 1023.8, 41.0 + 345.7), ("8B", 1638.1, 797.7)]
)
def test_published_terms_have_the_printed_sizes(size: str, attention: float, rest: float) -> None:
    dims, n = QWEN3_VL[size], 52_700

    quadratic = published_flops(dims, 2 * n) / 2 - published_flops(dims, n)

    assert quadratic / T == pytest.approx(attention, abs=PRINTED)
    assert (published_flops(dims, n) - quadratic) / T == pytest.approx(rest, abs=2 * PRINTED)


def test_vocabulary_head_is_counted_once_in_the_honest_convention() -> None:
    assert honest_language_flops(QWEN3_VL["2B"], 0) == 2 * 2048 * 151_936


# Other lengths.


@pytest.mark.parametrize(
    ("size", "authors", "language", "vision"),
    [("2B", 49.3, 39.8, 19.1), ("4B", 104.2, 102.6, 19.2), ("8B", 213.6, 194.1, 26.3)],
)
def test_24_probes_of_575_tokens(size: str, authors: float, language: float, vision: float) -> None:
    dims, grids = QWEN3_VL[size], [(6, *PROBE)]

    probes = sum((price(dims, 575, grids) for _ in range(24)), Cost())

    assert probes.tflops_paper == pytest.approx(authors, abs=PRINTED)
    assert 24 * honest_language_flops(dims, 575) / T == pytest.approx(language, abs=PRINTED)
    assert 24 * vision_flops(dims.vision, grids) / T == pytest.approx(vision, abs=PRINTED)
    assert probes.tflops == pytest.approx(language + vision, abs=2 * PRINTED)


def test_one_probe_of_the_2b_model() -> None:
    assert published_flops(QWEN3_VL["2B"], 575) / T == pytest.approx(2.054, abs=0.0006)


def test_vision_tower_that_sees_each_of_144_probe_frames_once() -> None:
    assert vision_flops(QWEN3_VL["2B"].vision, [(72, *PROBE)]) / T == pytest.approx(9.6, abs=PRINTED)


@pytest.mark.parametrize(
    ("size", "authors", "language", "vision"),
    [("2B", 159.2, 101.4, 73.1), ("4B", 291.7, 261.2, 73.5), ("8B", 534.4, 393.0, 98.3)],
)
def test_focused_pass_over_53_frames(size: str, authors: float, language: float, vision: float) -> None:
    dims, grids = QWEN3_VL[size], [(27, *FULL_HD)]

    assert published_flops(dims, 19_889) / T == pytest.approx(authors, abs=PRINTED)
    assert honest_language_flops(dims, 19_889) / T == pytest.approx(language, abs=PRINTED)
    assert vision_flops(dims.vision, grids) / T == pytest.approx(vision, abs=PRINTED)
    assert price(dims, 19_889, grids).tflops == pytest.approx(language + vision, abs=2 * PRINTED)


def test_focused_pass_over_8_frames() -> None:
    dims = QWEN3_VL["2B"]

    assert published_flops(dims, 3_145) / T == pytest.approx(13.1, abs=PRINTED)
    assert honest_language_flops(dims, 3_145) / T == pytest.approx(10.0, abs=PRINTED)
    assert vision_flops(dims.vision, [(4, *FULL_HD)]) / T == pytest.approx(10.8, abs=PRINTED)


# By hand, on a model small enough to count.

TINY = ModelDims(
    hidden=4,
    layers=2,
    heads=2,
    kv_heads=1,
    head_dim=3,
    ffn=5,
    vocab=7,
    vision=VisionDims(depth=1, hidden=2, ffn=3, out=4, mergers=1, patch=1, temporal_patch=1, merge=2),
)


def test_published_count_of_a_tiny_model() -> None:
    # d=4, d_kv=4·1/2=2, N=3. Layer and token: 2(16 + 2·4·2) + 4·3·4 + 2·16 + 6·4·5 = 64 + 48 + 32 + 120 = 264.
    # 3 tokens · 2 layers · 264 = 1584, and the head at all positions 2·3·4·7 = 168.
    assert published_flops(TINY, 3) == 1584 + 168


def test_honest_count_of_a_tiny_model() -> None:
    # q = 2·3 = 6, kv = 3. Token: 2·4·6 + 4·4·3 + 2·6·4 + 6·4·5 = 48 + 48 + 48 + 120 = 264; three of them 792.
    # Attention: 6 pairs (1+2+3), each 4q = 24: 144. 2 layers · (792 + 144) = 1872, and one head 2·4·7 = 56.
    assert honest_language_flops(TINY, 3) == 1872 + 56


def test_vision_count_of_a_tiny_tower() -> None:
    # 2 groups of 2×2 patches, h=2: P = 8. Patch values 3·1·1 = 3: 2·8·2·3 = 96.
    # Block: 8·(8·4 + 4·2·3) = 448, attention 2 groups · 4·2·4² = 256. Merger, 4h = 8: 2 tokens · (2·64 + 2·8·4) = 384.
    assert vision_flops(TINY.vision, [(2, 2, 2)]) == 96 + 448 + 256 + 384


def test_attention_of_the_tower_stays_within_a_group() -> None:
    tower = QWEN3_VL["2B"].vision

    assert vision_flops(tower, [(2, *PROBE)]) == vision_flops(tower, [(1, *PROBE), (1, *PROBE)])
    assert vision_flops(tower, [(1, 14, 28)]) > vision_flops(tower, [(2, *PROBE)])


# Cost.


def test_price_counts_one_call_its_tokens_and_its_visual_tokens() -> None:
    cost = price(QWEN3_VL["2B"], 575, [(6, *PROBE)])

    assert (cost.calls, cost.tokens, cost.visual_tokens) == (1, 575, 6 * 7 * 7)


def test_visual_tokens_of_the_papers_baseline() -> None:
    assert price(QWEN3_VL["2B"], 52_700, [(72, *FULL_HD)]).visual_tokens == 51_840


def test_price_of_a_call_without_frames_has_no_vision() -> None:
    cost = price(QWEN3_VL["2B"], 90, [])

    assert cost.visual_tokens == 0
    assert cost.flops == honest_language_flops(QWEN3_VL["2B"], 90)


def test_costs_add_field_by_field() -> None:
    total = Cost(1, 2, 3, 4.0, 5.0) + Cost(10, 20, 30, 40.0, 50.0)

    assert total == Cost(calls=11, tokens=22, visual_tokens=33, flops=44.0, flops_paper=55.0)


def test_empty_cost_is_the_zero_of_addition() -> None:
    cost = price(QWEN3_VL["4B"], 575, [(6, *PROBE)])

    assert cost + Cost() == Cost() + cost == cost


def test_tflops_are_flops_over_1e12() -> None:
    cost = Cost(flops=3.5e12, flops_paper=7e11)

    assert (cost.tflops, cost.tflops_paper) == (3.5, 0.7)


def test_calls_are_priced_one_by_one_because_attention_is_quadratic() -> None:
    dims = QWEN3_VL["2B"]
    one_by_one = sum((price(dims, 575, []) for _ in range(24)), Cost())
    summed = price(dims, 24 * 575, [])

    # The tokens are the same; the summed call has 24 times the attention of the 24 calls.
    assert one_by_one.tokens == summed.tokens
    assert summed.tflops_paper > 1.8 * one_by_one.tflops_paper
    assert summed.tflops > 1.4 * one_by_one.tflops


def test_every_convention_is_a_number_of_a_cost() -> None:
    assert all(isinstance(getattr(Cost(), name), float) for name in CONVENTIONS)
    assert set(CONVENTIONS) == {"tflops", "tflops_computed", "tflops_paper"}


# The dimensions, by way of the parameter counts of the released checkpoints.


@pytest.mark.parametrize(
    ("size", "parameters", "tied"),
    [("2B", 1_720_574_976, True), ("4B", 4_022_468_096, True), ("8B", 8_190_735_360, False)],
)
def test_text_dimensions_give_the_parameter_count(size: str, parameters: int, tied: bool) -> None:
    m = QWEN3_VL[size]
    d, q, kv = m.hidden, m.heads * m.head_dim, m.kv_heads * m.head_dim

    # Query, key, value and output projections, gate, up and down, two norms, and the norms of query and key heads.
    layer = 2 * d * q + 2 * d * kv + 3 * d * m.ffn + 2 * d + 2 * m.head_dim

    assert m.layers * layer + (1 if tied else 2) * m.vocab * d + d == parameters


@pytest.mark.parametrize(("size", "parameters"), [("2B", 406_957_056), ("4B", 415_347_712), ("8B", 576_388_336)])
def test_vision_dimensions_give_the_parameter_count(size: str, parameters: int) -> None:
    v = QWEN3_VL[size].vision
    h, merged = v.hidden, v.hidden * v.merge**2
    embedding = 3 * v.temporal_patch * v.patch**2 * h + h + 48 * 48 * h
    block = (3 * h * h + 3 * h) + (h * h + h) + (2 * h * v.ffn + v.ffn + h) + 4 * h
    projection = merged * merged + merged + merged * v.out + v.out
    # The final merger normalises before merging (2h), those of deepstack after it (8h).
    norms = 2 * h + (v.mergers - 1) * 2 * merged

    assert embedding + v.depth * block + v.mergers * projection + norms == parameters


@pytest.mark.parametrize("size", sizes)
def test_tower_feeds_the_width_of_the_language_model(size: str) -> None:
    assert QWEN3_VL[size].vision.out == QWEN3_VL[size].hidden
