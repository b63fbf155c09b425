"""Qwen3-VL checkpoints: from a folder on disk to an engine."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
import transformers
from safetensors import SafetensorError

from gridprobe.backends.local.checkpoint import first_line
from gridprobe.backends.local.fingerprint import file_stamps, fingerprint
from gridprobe.backends.qwen3vl.engine import MIN_MASS, Qwen3VL
from gridprobe.backends.qwen3vl.pixels import PatchSpec
from gridprobe.errors import ModelError, UsageError

__all__ = ["load"]

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load(
    name: str,
    folder: Path,
    *,
    device: str = "auto",
    dtype: str = "auto",
    attn_implementation: str = "sdpa",
    device_map: Any = None,
    quantization: Literal["4bit", "8bit"] | None = None,
    min_letter_mass: float = MIN_MASS,
    compile: bool = False,
) -> Qwen3VL:
    """Load a checkpoint.

    Args:
        name: what it is called in its identity.
        folder: the checkpoint.
        device: "auto" uses a GPU if there is one.
        dtype: "auto" is bfloat16 on a GPU and float32 on a CPU.
        attn_implementation: passed to transformers.
        device_map: passed to transformers; spreads a model over devices and replaces `device`.
        quantization: "4bit" or "8bit", through bitsandbytes.
        min_letter_mass: if the option letters get less than this share of the probability, it is an error.
        compile: fuse the model's blocks with torch.compile; pays after about a minute of questions on a GPU.
    """
    target = _device(device)
    kind = _dtype(dtype, target)
    options: dict[str, Any] = {"dtype": kind, "attn_implementation": attn_implementation}
    if quantization is not None:
        options["quantization_config"] = _quantization(quantization, kind)
    if device_map is not None or quantization is not None:
        options["device_map"] = device_map if device_map is not None else str(target)
    stamps = file_stamps(folder)
    config = _read(name, transformers.AutoConfig, folder)
    tokenizer = _read(name, transformers.AutoTokenizer, folder)
    model = _read_model(name, folder, options)
    if "device_map" not in options:
        model = model.to(target)
    spec = _patch_spec(folder, config)
    identity = f"{_label(name, folder)}@{fingerprint(folder)}:{kind}:{attn_implementation}:{quantization or 'full'}"
    if file_stamps(folder) != stamps:
        raise ModelError(f"the checkpoint {name} changed while it was loaded; try again when it is complete")
    return Qwen3VL(model, tokenizer, spec=spec, identity=identity, min_letter_mass=min_letter_mass, compile=compile)


def _label(name: str, folder: Path) -> str:
    """The model in its identity: the hub id, or the folder's own name, so that it may be anywhere."""
    return folder.resolve().name if folder == Path(name).expanduser() else name


def _read(name: str, kind: Any, folder: Path, **options: Any) -> Any:
    """Read a part of the checkpoint with transformers and report its errors in one sentence.

    Code in the checkpoint never runs. Without the argument, transformers asks on standard input.
    """
    try:
        return kind.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False, **options)
    except (OSError, ValueError, KeyError, ImportError, RuntimeError, SafetensorError) as error:
        raise ModelError(f"cannot load the checkpoint {name}: {first_line(error)}") from error


def _read_model(name: str, folder: Path, options: dict[str, Any]) -> Any:
    """Read the weights. transformers fills missing weights with random numbers; here that is an error."""
    kind = transformers.AutoModelForImageTextToText
    with _quiet_unless_watched():
        model, report = _read(name, kind, folder, use_safetensors=True, output_loading_info=True, **options)
    missing = sorted(report["missing_keys"])
    if missing:
        raise ModelError(f"the checkpoint {name} lacks {len(missing)} weights, {missing[0]} among them")
    return model.eval()


@contextmanager
def _quiet_unless_watched() -> Iterator[None]:
    """Show transformers' progress bar only on a terminal; it would write to a log file, too."""
    bars = transformers.utils.logging
    if sys.stderr.isatty() or not bars.is_progress_bar_enabled():
        yield
        return
    bars.disable_progress_bar()
    try:
        yield
    finally:
        bars.enable_progress_bar()


def _device(device: str) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
    except RuntimeError:
        raise UsageError(f"unknown device {device!r}; use auto, cpu, cuda or cuda:N") from None
    if found.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"device {device!r} was asked for, but torch finds no GPU; use --device cpu")
    return found


def _dtype(dtype: str, device: torch.device) -> torch.dtype:
    if dtype == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if dtype not in DTYPES:
        raise UsageError(f"unknown dtype {dtype!r}; use auto, {', '.join(DTYPES)}")
    return DTYPES[dtype]


def _quantization(bits: str, compute: torch.dtype) -> Any:
    if bits not in ("4bit", "8bit"):
        raise UsageError(f'unknown quantization {bits!r}; use "4bit" or "8bit"')
    return transformers.BitsAndBytesConfig(
        load_in_4bit=bits == "4bit", load_in_8bit=bits == "8bit", bnb_4bit_compute_dtype=compute
    )


def _patch_spec(folder: Path, config: Any) -> PatchSpec:
    """Mean and deviation come from the checkpoint's own files; transformers' defaults are another model's."""
    values: dict[str, Any] = {}
    for file in ("processor_config.json", "preprocessor_config.json", "video_preprocessor_config.json"):
        if (folder / file).is_file():
            found = json.loads((folder / file).read_text(encoding="utf-8"))
            values |= found.get("video_processor", found)
    vision = config.vision_config
    return PatchSpec(
        patch=vision.patch_size,
        merge=vision.spatial_merge_size,
        temporal=vision.temporal_patch_size,
        mean=tuple(values.get("image_mean", (0.5, 0.5, 0.5))),
        std=tuple(values.get("image_std", (0.5, 0.5, 0.5))),
    )
