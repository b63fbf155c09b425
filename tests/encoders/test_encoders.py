"""Encoders: the same vectors as transformers' own, cut texts, known features, prices, and what is refused."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode

from encoder_checkpoints import SIDE, make_encoder
from gridprobe.errors import ModelError, UsageError
from gridprobe.selectors.base import LazyEncoder, load_encoder
from gridprobe.video import FramePool
from gridprobe_selectors.clip import ClipEncoder, FeatureCache, load
from gridprobe_selectors.encoders import KNOWN, image_flops, pieces, text_flops, without_punctuation

KINDS = ("clip", "siglip", "siglip2")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("encoders")
    return {kind: make_encoder(root / kind, kind) for kind in KINDS}


def pool(count: int = 5, *, seed: int = 0) -> FramePool:
    pixels = np.random.default_rng(seed).integers(0, 256, (count, 40, 56, 3), dtype=np.uint8)
    return FramePool.from_arrays(pixels)


def rows(encoder: ClipEncoder, frames: FramePool) -> Any:
    return encoder.images(frames)


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_are_those_of_transformers(kind: str, folders: dict[str, Path]) -> None:
    encoder, frames = load(str(folders[kind]), device="cpu", cache=False), pool()
    model = transformers.AutoModel.from_pretrained(folders[kind], trust_remote_code=False).eval()
    processor = transformers.AutoImageProcessor.from_pretrained(folders[kind], backend="pil", trust_remote_code=False)
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folders[kind], trust_remote_code=False)
    padding = {} if kind == "clip" else {"padding": "max_length", "max_length": 8}
    ids = tokenizer("a red circle", return_tensors="pt", **padding)["input_ids"]

    with torch.inference_mode():
        images = model.get_image_features(**processor(images=list(frames.pixels), return_tensors="pt")).pooler_output
        text = model.get_text_features(input_ids=ids).pooler_output
    found = encoder.images(frames), encoder.texts(["a red circle"])

    for mine, theirs in zip(found, (images, text), strict=True):
        assert mine.dtype == np.float32
        np.testing.assert_allclose(mine, torch.nn.functional.normalize(theirs, dim=-1), atol=1e-6)


def test_siglip_pads_its_text_and_has_a_bias(folders: dict[str, Path]) -> None:
    encoder = load(str(folders["siglip"]), device="cpu", cache=False)
    model = transformers.AutoModel.from_pretrained(folders["siglip"], trust_remote_code=False).eval()
    with torch.inference_mode():
        short = model.get_text_features(input_ids=torch.tensor([[4, 5, 6, 1]])).pooler_output
    unpadded = torch.nn.functional.normalize(short, dim=-1).numpy()

    assert np.abs(encoder.texts(["a red circle"]) - unpadded).max() > 0.01
    assert encoder.bias == pytest.approx(model.logit_bias.item())
    assert encoder.scale == pytest.approx(model.logit_scale.exp().item())
    assert load(str(folders["clip"]), device="cpu", cache=False).bias == 0.0


def test_siglip_reads_no_case_and_no_punctuation(folders: dict[str, Path]) -> None:
    encoder = load(str(folders["siglip"]), device="cpu", cache=False)
    plain, loud = encoder.texts(["a red circle", "A  red, CIRCLE!"])

    assert np.array_equal(plain, loud)
    assert without_punctuation("Where's the “dog”?") == "wheres the “dog”"


def test_a_long_text_is_the_mean_of_equal_pieces(folders: dict[str, Path]) -> None:
    encoder = load(str(folders["clip"]), device="cpu", cache=False)
    whole, first, second = encoder.texts(["a red dog on the blue beach where", "a red dog on", "the blue beach where"])

    mean = (first + second) / 2
    np.testing.assert_allclose(whole, mean / np.linalg.norm(mean), atol=1e-6)
    assert encoder.text_cost(["a red dog on the blue beach where"]).calls == 2


@pytest.mark.parametrize(("text", "limit"), [("a b c d e f g", 3), ("abcdefgh ij", 3), ("one", 2), ("", 1), ("x y", 2)])
def test_pieces_fit_and_lose_nothing(text: str, limit: int) -> None:
    def count(piece: str) -> int:
        return len(piece) - piece.count(" ")  # a token for every letter

    cut = pieces(text, count, limit)

    assert all(count(piece) <= limit for piece in cut)
    assert "".join(cut).replace(" ", "") == text.replace(" ", "")


def test_features_are_computed_once_and_the_bill_says_so(folders: dict[str, Path]) -> None:
    encoder, frames = load(str(folders["clip"]), device="cpu", cache=False), pool()
    before = encoder.image_cost(frames) + encoder.text_cost(["a dog"])
    first = encoder.images(frames.take([0, 1])), encoder.texts(["a dog"])
    after = encoder.image_cost(frames) + encoder.text_cost(["a dog"])

    assert before.calls == after.calls == 6
    assert before.flops == after.flops == before.flops_computed == before.flops_paper
    assert after.flops_computed == pytest.approx(before.flops * 3 / 5, rel=0.05)
    assert np.array_equal(encoder.images(frames)[:2], first[0])
    assert encoder.image_cost(frames).flops_computed == 0


def test_features_are_found_on_disk_by_another_process(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRIDPROBE_CACHE", str(tmp_path))
    first, frames = load(str(folders["clip"]), device="cpu"), pool()
    vectors = first.images(frames)

    again = load(str(folders["clip"]), device="cpu")
    other = load(str(folders["siglip"]), device="cpu")

    assert again.image_cost(frames).flops_computed == 0 < other.image_cost(frames).flops_computed
    assert np.array_equal(again.images(frames), vectors)
    assert load(str(folders["clip"]), device="cpu", cache=False).image_cost(frames).flops_computed > 0


def test_memory_for_features_is_bounded() -> None:
    cache = FeatureCache("encoder:x", disk=False, limit=100)
    cache.put({str(number): np.ones(8, np.float32) for number in range(5)})

    assert [cache.get(str(number)) is not None for number in range(5)] == [False, False, True, True, True]


def test_equal_frames_of_a_pool_are_encoded_once(folders: dict[str, Path]) -> None:
    encoder = load(str(folders["clip"]), device="cpu", cache=False)
    frames = pool(1).take([0, 0, 0])

    assert encoder.images(frames).shape == (3, 24)


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_prices_are_what_torch_counts(kind: str, folders: dict[str, Path]) -> None:
    encoder = load(str(folders[kind]), device="cpu", cache=False)
    model = transformers.AutoModel.from_pretrained(
        folders[kind], attn_implementation="eager", trust_remote_code=False
    ).eval()
    with FlopCounterMode(display=False) as images, torch.inference_mode():
        model.get_image_features(pixel_values=torch.zeros(1, 3, SIDE, SIDE))
    with FlopCounterMode(display=False) as texts, torch.inference_mode():
        model.get_text_features(input_ids=torch.tensor([[4, 5, 6, 7, 8, 9, 10, 1]]))

    assert encoder.image_cost(pool(1)).flops == pytest.approx(images.get_total_flops(), rel=0.01)
    # torch counts all pairs of a causal attention
    assert encoder.text_cost(["a red circle dog on the"]).flops == pytest.approx(texts.get_total_flops(), rel=0.03)


def test_known_encoders_have_the_known_price() -> None:
    large, so400m = KNOWN["openai/clip-vit-large-patch14"], KNOWN["google/siglip-so400m-patch14-384"]

    assert image_flops(large) == pytest.approx(162e9, rel=0.01)  # 81.1 G multiply-adds
    assert image_flops(so400m) == pytest.approx(670e9, rel=0.02)
    assert text_flops(so400m, 1) == text_flops(so400m, 64)
    assert text_flops(large, 10) < text_flops(large, 77)


def test_identity_follows_the_bytes(folders: dict[str, Path], tmp_path: Path) -> None:
    one, same = (load(str(folders["clip"]), device="cpu", cache=False).identity for _ in range(2))
    other = load(str(folders["siglip"]), device="cpu", cache=False).identity

    assert one == same != other and one.startswith("encoder:clip@") and one.endswith("torch.float32")


def test_an_encoder_travels_by_name_and_refuses_to_work_unloaded() -> None:
    named = pickle.loads(pickle.dumps(LazyEncoder("clip")))

    assert named == LazyEncoder("clip") and named.identity == "encoder:clip"
    for use in (named.images, named.texts, named.image_cost, named.text_cost):
        with pytest.raises(ModelError, match="the encoder clip is not loaded"):
            use(pool() if "image" in use.__name__ else ["a"])
    assert LazyEncoder().or_else("siglip").name == "siglip" and named.or_else("siglip") is named


def test_unknown_names_are_refused_before_anything_is_loaded() -> None:
    with pytest.raises(UsageError, match="unknown encoder 'clipp'; did you mean 'clip'"):
        LazyEncoder("clipp")
    with pytest.raises(UsageError, match="takes no argument"):
        load_encoder("embedded:x")


def test_what_is_no_encoder_is_refused(tiny_checkpoint: Path, folders: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="qwen3_vl model, which is no encoder"):
        load_encoder(f"clip:{tiny_checkpoint}")
    broken = make_encoder(tmp_path / "broken", "clip")
    (broken / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="cannot load the checkpoint"):
        load_encoder(f"clip:{broken}")


def test_vectors_that_are_not_numbers_are_refused(tmp_path: Path) -> None:
    encoder = load(str(make_encoder(tmp_path / "nan", "clip")), device="cpu", cache=False)
    encoder._checkpoint.model.visual_projection.weight.data.fill_(float("nan"))

    with pytest.raises(ModelError, match="without a direction"):
        encoder.images(pool())


class TestEmbedded:
    def test_it_knows_gridworld_and_warns_about_other_words(self) -> None:
        encoder = load_encoder("embedded", device="cpu", cache=False)

        assert encoder.identity.startswith("encoder:embedded@")
        assert encoder.notes("a red circle") == ()
        assert encoder.notes("a red dog") == ('the embedded encoder met "dog", which it has never seen',)

    def test_it_finds_a_frame_by_its_caption(self) -> None:
        encoder = load_encoder("embedded", device="cpu", cache=False)
        words = json.loads((Path(__file__).parents[2] / "src/gridprobe_world/weights/vocabulary.json").read_text())

        assert {"red", "circle"} <= set(words)
        assert encoder.texts(["a red circle"]).shape == (1, 128) == encoder.images(pool(1)).shape
