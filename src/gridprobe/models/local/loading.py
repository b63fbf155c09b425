"""A checkpoint's parts through transformers: never unpickled, never with code of the checkpoint, never by the network.

`opened` is what every local engine's `load` does: device, dtype, weights, identity, and a check that the folder did not
change meanwhile.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import torch
import transformers

from gridprobe._util import report
from gridprobe.errors import ModelError, UsageError
from gridprobe.models.local.checkpoint import checked_config, first_line, unreadable
from gridprobe.registry import suggestion
from gridprobe.video import FrameCache, cache_folder

# fingerprint(): a hash over every byte of a checkpoint that can affect an answer, wherever the folder is.
#
# Files  Weights, configurations, tokenizer and templates directly in the folder, and the weights that an index or
#        config.json names elsewhere. Links, as in the hub's cache, are followed.
# Cache  Reading 16 GB takes many seconds, so the hash of a large file is kept in `hashes` beside the frame cache. The
# key
#        holds the file's path, device, inode, size and both times: an edit that restores the time of modification still
#        sets the time of change. A broken cache only costs time.

Stamps = Mapping[str, tuple[int, ...]]
"""For each file of a checkpoint what its cached hash depends on: device, inode, size and times."""

SUFFIXES = frozenset({".json", ".safetensors", ".jinja", ".txt", ".model"})
INDEX = ".safetensors.index.json"
DIGITS = 16
CHUNK = 1 << 23
LARGE = 1 << 25
"""Smaller files are read every time, in a few hundredths of a second."""
SAMPLED = 256
"""About that many numbers of each weight of a loaded model are hashed."""
CACHE_BYTES = 1 << 20
"""Room for some ten thousand hashes."""


def fingerprint(folder: Path) -> str:
    """The hash of a checkpoint, from the names and contents of its files."""
    place = cache_folder()
    cache = FrameCache(place.with_name("hashes"), CACHE_BYTES) if place else None
    digest = hashlib.sha256()
    with _one_sentence(folder):
        for name in _names(folder):
            digest.update(f"{name!a} {_file_hash(folder / name, cache).hex()}\n".encode())
    return digest.hexdigest()[:DIGITS]


def file_stamps(folder: Path) -> Stamps:
    """What changes when a file of the checkpoint is written or replaced; weights are not read."""
    with _one_sentence(folder):
        return {name: _stamp(os.stat(folder / name)) for name in _names(folder)}


@contextmanager
def _one_sentence(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ModelError(f"cannot read {error.filename or folder} of the checkpoint: {error.strerror}") from error


def _names(folder: Path) -> list[str]:
    names = {file.name for file in folder.iterdir() if file.suffix in SUFFIXES}
    explicit = _read_json(folder / "config.json").get("transformers_weights")
    names |= {explicit} if isinstance(explicit, str) else set()
    for index in [name for name in names if name.endswith(INDEX)]:
        shards = _read_json(folder / index).get("weight_map")
        names |= {shard for shard in shards.values() if isinstance(shard, str)} if isinstance(shards, dict) else set()
    return sorted(name for name in names if (folder / name).is_file())


def _read_json(file: Path) -> dict[str, Any]:
    """The file's JSON object, or an empty one; reporting a bad file is left to the loader."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _file_hash(file: Path, cache: FrameCache | None) -> bytes:
    """SHA-256 of a file's content, from the cache if it is large and unchanged."""
    stamp = _stamp(os.stat(file))
    if cache is None or stamp[2] < LARGE:
        return _content_hash(file)
    key = f"sha256\n{os.path.realpath(file)!a}\n{stamp}"
    cached = cache.read(key)
    if cached is not None:
        return cached
    digest = _content_hash(file)
    if _stamp(os.stat(file)) == stamp:  # otherwise it may be a hash of partly old and partly new content
        cache.write([(key, digest)])
    return digest


def _content_hash(file: Path) -> bytes:
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        size, done = os.fstat(stream.fileno()).st_size, 0
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
            done += len(chunk)
            if size >= LARGE:
                report("hash", done >> 20, size >> 20)
    return digest.digest()


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class LoadOptions:
    """How a checkpoint is loaded."""

    device: str = "auto"
    """"auto" uses a GPU if there is one."""
    dtype: str = "auto"
    """"auto" is bfloat16 on a GPU and float32 on a CPU."""
    attn_implementation: str = "sdpa"
    """Passed to transformers."""
    device_map: Any = None
    """Passed to transformers; spreads a model over devices and replaces `device`."""
    quantization: Literal["4bit", "8bit"] | None = None
    """Through bitsandbytes."""
    loaded: Any = None
    """A model of transformers to use as it is; the options above are for others."""

    @classmethod
    def of(cls, **options: Any) -> "LoadOptions":
        """From what a caller gave; an unknown name is an error that suggests the right one."""
        names = [each.name for each in fields(cls)]
        for name in options:
            if name not in names:
                raise UsageError(f"unknown option {name!r} of a local model; {suggestion(name, names[:-1])}")
        if (model := options.get("loaded")) is None:
            return cls(**options)
        if len(options) > 1:
            name = next(name for name in options if name != "loaded")
            raise UsageError(f"the model is loaded already; leave out {name}=")
        bits: Literal["4bit", "8bit"] = "4bit" if getattr(model, "is_loaded_in_4bit", False) else "8bit"
        quantization = bits if getattr(model, "is_quantized", False) else None
        return cls(attn_implementation=model.config._attn_implementation, quantization=quantization, loaded=model)


@dataclass(frozen=True, eq=False)
class Opened:
    """A loaded checkpoint."""

    config: Any
    tokenizer: Any
    model: Any
    identity: str
    """Name, fingerprint, dtype and settings."""


def opened(name: str, folder: Path, options: LoadOptions) -> Opened:
    """Load a checkpoint; `name` is what it is called in its identity."""
    if options.loaded is not None:
        return _of_loaded(name, folder, options)
    target = find_device(options.device)
    kind = find_dtype(options.dtype, target)
    arguments: dict[str, Any] = {"dtype": kind, "attn_implementation": options.attn_implementation}
    if options.quantization is not None:
        arguments["quantization_config"] = _quantization(options.quantization, kind)
    if options.device_map is not None or options.quantization is not None:
        arguments["device_map"] = options.device_map if options.device_map is not None else str(target)
    stamps = file_stamps(folder)
    config = read_config(name, folder)
    tokenizer = read(name, transformers.AutoTokenizer, folder)
    model = _read_model(name, folder, {"config": config, **arguments})
    if "device_map" not in arguments:
        model = model.to(target)
    settings = f"{kind}:{options.attn_implementation}:{options.quantization or 'full'}"
    identity = f"{label_of(name, folder)}@{fingerprint(folder)}:{settings}"
    if file_stamps(folder) != stamps:
        raise ModelError(f"the checkpoint {name} changed while it was loaded; try again when it is complete")
    return Opened(config, tokenizer, model, identity)


def _of_loaded(name: str, folder: Path, options: LoadOptions) -> Opened:
    """A model that is in memory. Its weights may be in no file, so some of each stand for them in its identity."""
    model = options.loaded.eval()
    digest = hashlib.sha256(fingerprint(folder).encode())
    for key, weight in model.state_dict().items():
        digest.update(f"{key} {tuple(weight.shape)} {weight.dtype}\n".encode())
        if not weight.is_meta:
            some = weight.detach().flatten()[:: max(1, weight.numel() // SAMPLED)]
            digest.update(some.float().cpu().numpy().tobytes())
    settings = f"{model.dtype}:{options.attn_implementation}:{options.quantization or 'full'}"
    identity = f"{Path(name).name if os.path.isdir(name) else name}@{digest.hexdigest()[:DIGITS]}:{settings}"
    config, tokenizer = (read(name, kind, folder) for kind in (transformers.AutoConfig, transformers.AutoTokenizer))
    return Opened(config, tokenizer, model, identity)


def label_of(name: str, folder: Path) -> str:
    """The model in its identity: the hub id, or the folder's own name, so that it may be anywhere."""
    return folder.resolve().name if folder == Path(name).expanduser() else name


def read(name: str, kind: Any, folder: Path, **options: Any) -> Any:
    """Read a part of the checkpoint with transformers and report its errors in one sentence.

    Code in the checkpoint never runs. Without the argument, transformers asks on standard input.
    """
    try:
        return kind.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False, **options)
    except unreadable() as error:
        raise ModelError(f"cannot load the checkpoint {name}: {first_line(error)}") from error


def read_config(name: str, folder: Path) -> Any:
    """The checkpoint's configuration, which decides nothing about the code that runs."""
    checked_config(name, folder)
    config = read(name, transformers.AutoConfig, folder)
    config._attn_implementation = None  # and with it those of its parts
    return config


def _read_model(name: str, folder: Path, options: dict[str, Any]) -> Any:
    """Read the weights. transformers fills missing weights with random numbers; here that is an error."""
    kind = transformers.AutoModelForImageTextToText
    with quietly():
        model, report = read(name, kind, folder, use_safetensors=True, output_loading_info=True, **options)
    missing = sorted(report["missing_keys"])
    if missing:
        raise ModelError(f"the checkpoint {name} lacks {len(missing)} weights, {missing[0]} among them")
    return model.eval()


@contextmanager
def quietly() -> Iterator[None]:
    """Hide transformers' progress bar, unless GRIDPROBE_VERBOSE is set."""
    bars = transformers.utils.logging
    if os.environ.get("GRIDPROBE_VERBOSE") or not bars.is_progress_bar_enabled():
        yield
        return
    bars.disable_progress_bar()
    try:
        yield
    finally:
        bars.enable_progress_bar()


def find_device(device: str) -> torch.device:
    """The device of a name; "auto" is a GPU if there is one."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        target = torch.device(device)
    except RuntimeError:
        raise UsageError(f"unknown device {device!r}; use auto, cpu, cuda or cuda:N") from None
    if target.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"device {device!r} was asked for, but torch finds no GPU; use --device cpu")
    return target


def find_dtype(dtype: str | torch.dtype, device: torch.device) -> torch.dtype:
    """The type of a name, or of torch; "auto" is bfloat16 on a GPU, and float32 elsewhere."""
    dtype = str(dtype).removeprefix("torch.")
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
