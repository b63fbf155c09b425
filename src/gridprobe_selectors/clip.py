"""CLIP, SigLIP and SigLIP2 through transformers, without the checkpoint's code, pickled weights or torchvision.

Pictures  Through the checkpoint's own image processor, its PIL version: CLIP crops the centre, SigLIP squashes.
Texts     SigLIP was trained on text padded to its full length, without a mask, in lower case; other padding moves its
          vectors by as much as 0.45. A text that is too long is cut into equal pieces, whose vectors are averaged.
Features  Each frame is encoded once and kept, in memory and on disk, under its video, time, size and the encoder's
          fingerprint.
"""

import json
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from gridprobe._util import report
from gridprobe.errors import ModelError
from gridprobe.models.base import Cost
from gridprobe.models.local.checkpoint import find_folder
from gridprobe.models.local.loading import (
    file_stamps,
    find_device,
    find_dtype,
    fingerprint,
    label_of,
    quietly,
    read,
    read_config,
)
from gridprobe.selectors.base import Encoder, Vectors
from gridprobe.video import FrameCache, FramePool, FrameSize, cache_folder
from gridprobe_selectors.encoders import (
    EncoderDims,
    dims_of,
    encoder_cost,
    image_flops,
    lower_case,
    pieces,
    size_for,
    text_flops,
    without_punctuation,
)

# FeatureCache: vectors by key, in memory and on disk, both limited in bytes.

FORMAT = 1
"""Part of every key on disk; raised when the same encoder gives other vectors for the same frame."""
MEMORY_BYTES = 64 * 2**20
"""Room for about 15,000 vectors of SigLIP so400m."""
DISK_BYTES = 512 * 2**20


class FeatureCache:
    """Vectors of one encoder. The least recently used are dropped first; a broken folder only costs time.

    On disk they lie in `features` next to the frame cache, with a checksum each; see `gridprobe.video.cache`.
    """

    def __init__(self, identity: str, *, disk: bool = True, limit: int = MEMORY_BYTES) -> None:
        folder = cache_folder() if disk else None
        self._disk = FrameCache(folder.with_name("features"), DISK_BYTES) if folder else None
        self._identity, self._limit, self._bytes = identity, limit, 0
        self._known: OrderedDict[str, Vectors] = OrderedDict()

    def get(self, key: str) -> Vectors | None:
        """The vector; it counts as used now."""
        if key in self._known:
            self._known.move_to_end(key)
            return self._known[key]
        content = self._disk.read(self._on_disk(key)) if self._disk else None
        if content is None or not content or len(content) % 4:
            return None
        vector = np.frombuffer(content, dtype="<f4").astype(np.float32)
        self._keep(key, vector)
        return vector

    def put(self, vectors: dict[str, Vectors]) -> None:
        """Keep these vectors."""
        for key, vector in vectors.items():
            self._keep(key, vector)
        if self._disk:
            self._disk.write((self._on_disk(key), vector.astype("<f4").tobytes()) for key, vector in vectors.items())

    def _keep(self, key: str, vector: Vectors) -> None:
        if key not in self._known:
            self._bytes += vector.nbytes
        self._known[key] = vector
        while self._bytes > self._limit:
            _, dropped = self._known.popitem(last=False)
            self._bytes -= dropped.nbytes

    def _on_disk(self, key: str) -> str:
        return f"feature {FORMAT}\n{self._identity}\n{key}"


def frame_keys(frames: FramePool) -> list[str]:
    """A key for every frame: its own, and the decoder of a file, whose next version may give other pixels."""
    decoder = frames.info.decoder if frames.info else ""
    return [f"image\n{decoder}\n{key!r}" for key in frames.keys]


KINDS = ("clip", "siglip", "siglip2")
"""The values of `model_type` that are understood."""
CPU_BATCH, GPU_BATCH = 16, 128


@dataclass(frozen=True, eq=False)
class EncoderCheckpoint:
    """A loaded checkpoint."""

    model: Any
    tokenizer: Any
    processor: Any
    clean: Callable[[str], str]
    """What is done to a text before it is tokenized."""
    dims: EncoderDims


class ClipEncoder(Encoder):
    """A loaded encoder."""

    def __init__(self, checkpoint: EncoderCheckpoint, identity: str, *, cache: bool = True) -> None:
        self._checkpoint, self._identity = checkpoint, identity
        self._frames = FeatureCache(identity, disk=cache)
        self._texts = FeatureCache(identity, disk=False)

    @property
    def identity(self) -> str:
        """Name, fingerprint and dtype."""
        return self._identity

    @property
    def image_size(self) -> FrameSize:
        """The encoder's side is the short side of a wide frame."""
        return size_for(self._checkpoint.dims)

    @property
    def scale(self) -> float:
        """The learned one."""
        return exp(self._checkpoint.model.logit_scale.item())

    @property
    def bias(self) -> float:
        """SigLIP's learned one, or 0."""
        learned = getattr(self._checkpoint.model, "logit_bias", None)
        return 0.0 if learned is None else float(learned.item())

    def images(self, frames: FramePool) -> Vectors:
        """One row for each frame; only those that are not known are encoded."""
        keys = frame_keys(frames)
        vectors = {key: self._frames.get(key) for key in keys}
        rows = {key: row for row, key in enumerate(keys) if vectors[key] is None}
        wanted = list(rows.values())
        step = GPU_BATCH if self._checkpoint.model.device.type == "cuda" else CPU_BATCH
        for start in range(0, len(wanted), step):
            some = wanted[start : start + step]
            new = dict(zip((keys[row] for row in some), self._encode(frames, some), strict=True))
            self._frames.put(new)
            vectors |= new
            report("features", start + len(some), len(wanted))
        return np.stack([vector for vector in (vectors[key] for key in keys) if vector is not None])

    def texts(self, texts: Sequence[str]) -> Vectors:
        """One row for each text: the mean of its pieces."""
        return np.stack([self._text(text) for text in texts])

    def image_cost(self, frames: FramePool) -> Cost:
        """One call for each frame."""
        keys = frame_keys(frames)
        each = image_flops(self._checkpoint.dims)
        new = len({key for key in keys if self._frames.get(key) is None})
        return encoder_cost(len(keys), flops=each * len(keys), computed=each * new)

    def text_cost(self, texts: Sequence[str]) -> Cost:
        """One call for each piece."""
        total = Cost()
        for text in texts:
            cut = self._pieces(text)
            flops = sum(text_flops(self._checkpoint.dims, self._count(piece)) for piece in cut)
            total += encoder_cost(len(cut), flops=flops, computed=flops if self._texts.get(text) is None else 0.0)
        return total

    def _encode(self, frames: FramePool, rows: list[int]) -> Vectors:
        pixels = [np.ascontiguousarray(frames.pixels[row]) for row in rows]
        checkpoint = self._checkpoint
        inputs = checkpoint.processor(images=pixels, return_tensors="pt", input_data_format="channels_last")
        return self._vectors(checkpoint.model.get_image_features, inputs)

    def _text(self, text: str) -> Vectors:
        vector = self._texts.get(text)
        if vector is None:
            dims, tokenizer = self._checkpoint.dims, self._checkpoint.tokenizer
            padding = "max_length" if dims.sigmoid else "longest"
            inputs = tokenizer(
                self._pieces(text),
                padding=padding,
                truncation=True,
                max_length=dims.text.tokens,
                return_tensors="pt",
            )
            names = ("input_ids",) if dims.sigmoid else ("input_ids", "attention_mask")
            vectors = self._vectors(self._checkpoint.model.get_text_features, {name: inputs[name] for name in names})
            vector = _unit(vectors.mean(axis=0, keepdims=True), self._identity)[0]
            self._texts.put({text: vector})
        return vector

    def _pieces(self, text: str) -> list[str]:
        return pieces(self._checkpoint.clean(text), self._count, self._checkpoint.dims.text.tokens)

    def _count(self, text: str) -> int:
        return len(self._checkpoint.tokenizer(text, truncation=False, verbose=False)["input_ids"])

    @torch.inference_mode()
    def _vectors(self, features: Callable[..., Any], inputs: Any) -> Vectors:
        model = self._checkpoint.model
        moved = {
            name: value.to(model.device, model.dtype if value.is_floating_point() else None)
            for name, value in inputs.items()
        }
        return _unit(features(**moved).pooler_output.float().cpu().numpy(), self._identity)


def _unit(vectors: Vectors, identity: str) -> Vectors:
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    if not (np.isfinite(lengths).all() and (lengths > 0).all()):
        raise ModelError(f"the {identity} gave a vector without a direction; check its weights, or use float32")
    return np.asarray(vectors / lengths, dtype=np.float32)


def load(
    name: str,
    *,
    label: str = "",
    device: str = "auto",
    dtype: str = "auto",
    cache: bool = True,
    made: type[ClipEncoder] = ClipEncoder,
) -> ClipEncoder:
    """Load an encoder.

    Args:
        name: a checkpoint folder or a Hugging Face id.
        label: what it is called in its identity, if not by its name.
        device: "auto" uses a GPU if there is one.
        dtype: "auto" is float16 on a GPU and float32 on a CPU.
        cache: whether features are kept on disk.
        made: the class of the encoder.
    """
    folder = _folder(name)
    target = find_device(device)
    kind = torch.float16 if dtype == "auto" and target.type == "cuda" else find_dtype(dtype, target)
    stamps = file_stamps(folder)
    config = _config(name, folder)
    checkpoint = EncoderCheckpoint(
        model=_model(name, folder, config, kind).to(target),
        tokenizer=_tokenizer(name, folder, config.model_type),
        processor=read(name, transformers.AutoImageProcessor, folder, backend="pil"),
        clean=_clean(config.model_type, folder),
        dims=dims_of(config),
    )
    identity = f"encoder:{label or label_of(name, folder)}@{fingerprint(folder)}:{kind}"
    if file_stamps(folder) != stamps:
        raise ModelError(f"the checkpoint {name} changed while it was loaded; try again when it is complete")
    return made(checkpoint, identity, cache=cache)


def _folder(name: str) -> Path:
    try:
        return find_folder(name)
    except ModelError as error:
        raise ModelError(
            f"{error}; the selector takes another encoder as its argument, see gridprobe list encoders"
        ) from error


def dims(name: str, folder: Path) -> EncoderDims:
    """The widths of a checkpoint; no weights are read."""
    return dims_of(_config(name, folder))


def _config(name: str, folder: Path) -> Any:
    config = read_config(name, folder)
    if config.model_type not in KINDS:
        raise ModelError(f"{name} is a {config.model_type} model, which is no encoder; use one of {', '.join(KINDS)}")
    return config


def _model(name: str, folder: Path, config: Any, dtype: torch.dtype) -> Any:
    """Read the weights. transformers fills missing weights with random numbers; here that is an error."""
    with quietly():
        options = {"use_safetensors": True, "output_loading_info": True, "config": config, "dtype": dtype}
        model, report = read(name, transformers.AutoModel, folder, **options)
    missing = sorted(report["missing_keys"])
    if missing:
        raise ModelError(f"the checkpoint {name} lacks {len(missing)} weights, {missing[0]} among them")
    return model.eval()


def _tokenizer(name: str, folder: Path, kind: str) -> Any:
    """SigLIP's own tokenizer class needs sentencepiece, and SigLIP2's pads on the left; tokenizer.json does neither."""
    whole = kind != "clip" and (folder / "tokenizer.json").is_file()
    return read(name, transformers.PreTrainedTokenizerFast if whole else transformers.AutoTokenizer, folder)


def _tokenizer_class(folder: Path) -> str:
    try:
        name = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8")).get("tokenizer_class")
    except (OSError, ValueError, AttributeError, RecursionError):
        return ""
    return name if isinstance(name, str) else ""


def _clean(kind: str, folder: Path) -> Callable[[str], str]:
    if kind == "clip":
        return str
    return without_punctuation if _tokenizer_class(folder).startswith("SiglipTokenizer") else lower_case
