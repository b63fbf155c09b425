"""Tiny CLIP and SigLIP checkpoints with random weights, made on the spot, and a scripted encoder."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gridprobe.models.base import Cost
from gridprobe.selectors.base import Encoder, Vectors
from gridprobe.video import FramePool, FrameSize

SIDE = 32
WORDS = ("a", "red", "circle", "dog", "on", "the", "beach", "where", "is", "it", "blue")


def make_encoder(folder: Path, kind: str) -> Path:
    """Write a checkpoint of the given `model_type`, as a released one is laid out."""
    import torch
    import transformers

    torch.manual_seed(0)
    names = {"clip": "CLIP", "siglip": "Siglip", "siglip2": "Siglip2"}
    tokenizer = _tokenizer(sigmoid=kind != "clip")
    text = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 48,
        "vocab_size": len(tokenizer),
        "max_position_embeddings": 8,
        "bos_token_id": 2,
        "eos_token_id": 1,
        "pad_token_id": 0,
    }
    vision: dict[str, Any] = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 48,
        "patch_size": 8,
    }
    vision |= {"num_patches": 16} if kind == "siglip2" else {"image_size": SIDE}
    extra = {"projection_dim": 24} if kind == "clip" else {}
    text |= {"projection_size": 32} if kind != "clip" else {}
    config = getattr(transformers, f"{names[kind]}Config")(text_config=text, vision_config=vision, **extra)
    model = getattr(transformers, f"{names[kind]}Model")(config).eval()
    with torch.no_grad():  # transformers' own initialisation is so small that no input would make a difference
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.normal_(0.0, parameter.shape[-1] ** -0.5)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if kind == "siglip":
        settings = json.loads((folder / "tokenizer_config.json").read_text())
        (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "tokenizer_class": "SiglipTokenizer"}))
    (folder / "preprocessor_config.json").write_text(json.dumps(_processor(kind, names[kind])))
    return folder


def _processor(kind: str, name: str) -> dict[str, Any]:
    sizes: dict[str, dict[str, Any]] = {
        "clip": {"size": {"shortest_edge": SIDE}, "crop_size": {"height": SIDE, "width": SIDE}},
        "siglip": {"size": {"height": SIDE, "width": SIDE}},
        "siglip2": {"patch_size": 8, "max_num_patches": 16},
    }
    return {"image_processor_type": f"{name}ImageProcessor", **sizes[kind]}


def _tokenizer(*, sigmoid: bool) -> Any:
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    ids = {token: place for place, token in enumerate(("<pad>", "<end>", "<start>", "<unknown>", *WORDS))}
    core = Tokenizer(models.WordLevel(ids, unk_token="<unknown>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    template = "$A <end>" if sigmoid else "<start> $A <end>"
    core.post_processor = processors.TemplateProcessing(
        single=template, special_tokens=[("<start>", ids["<start>"]), ("<end>", ids["<end>"])]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token="<start>",
        eos_token="<end>",
        pad_token="<pad>",
        unk_token="<unknown>",
        model_max_length=8,
    )


class ScriptedEncoder(Encoder):
    """An encoder whose vectors a test writes down. The text is the first axis."""

    def __init__(self, frame: Callable[[int], Sequence[float]], name: str = "scripted") -> None:
        """`frame` takes a frame's level of gray and returns its vector, which is brought to length 1."""
        self._frame, self._name = frame, name
        self.seen: list[int] = []

    @property
    def identity(self) -> str:
        return f"encoder:{self._name}"

    @property
    def image_size(self) -> FrameSize:
        return FrameSize(max_side=64)

    @property
    def scale(self) -> float:
        return 1.0

    @property
    def bias(self) -> float:
        return 0.0

    def images(self, frames: FramePool) -> Vectors:
        levels = [int(frame[0, 0, 0]) for frame in frames.pixels]
        self.seen += levels
        vectors = np.array([self._frame(level) for level in levels], dtype=np.float64)
        return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)

    def texts(self, texts: Sequence[str]) -> Vectors:
        width = len(self._frame(0))
        return np.eye(1, width, dtype=np.float32).repeat(len(texts), axis=0)

    def image_cost(self, frames: FramePool) -> Cost:
        return Cost(calls=len(frames), flops=1e6 * len(frames), flops_computed=1e6 * len(frames))

    def text_cost(self, texts: Sequence[str]) -> Cost:
        return Cost(calls=len(texts), flops=1e3 * len(texts), flops_computed=1e3 * len(texts))


def matching(cosine: Callable[[int], float], *, width: int = 8) -> ScriptedEncoder:
    """Frames of the given cosine with the text; what is left of each points in a direction of its own."""

    def vector(level: int) -> list[float]:
        value = cosine(level)
        rest = np.random.default_rng(level).normal(size=width - 1)
        rest *= np.sqrt(max(0.0, 1.0 - value**2)) / np.linalg.norm(rest)
        return [value, *rest.tolist()]

    return ScriptedEncoder(vector)
