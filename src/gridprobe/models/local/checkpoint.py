"""Checkpoints in a folder or on the Hugging Face hub; its family is found by its `model_type`.

A checkpoint is always loaded from a folder on disk, without the network. A hub id is searched in the local cache first
and downloaded only if it is not there; `HF_HUB_OFFLINE=1` forbids the download.
"""

import math
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gridprobe._util import parse_json
from gridprobe.errors import ModelError, UsageError
from gridprobe.models.base import CostModel, Model
from gridprobe.registry import FAMILIES, REFUSED, explain_missing

FILES = ("*.json", "*.safetensors", "*.txt", "*.jinja")
"""The files that are downloaded. Pickled weights never are."""


def load(name: str, *, revision: str | None = None, **options: Any) -> Model:
    """Load a checkpoint with the code of its family; `revision` is a branch, tag or commit of a hub checkpoint."""
    _check(name)
    with explain_missing("local"):
        folder = find_folder(name, revision)
        model: Model = _family(name, folder).load(name, folder, **options)
    return model


def wrap(model: Any, processor: Any, **options: Any) -> Model:
    """A model of transformers that is loaded already; what its processor would save is read as from a checkpoint."""
    if not hasattr(model, "config") or not hasattr(model, "state_dict"):
        raise UsageError(
            "a model is a name, a loaded model of transformers with its processor, or an object with run, cost, "
            f"capabilities and identity; got {type(model).__name__}"
        )
    if not hasattr(processor, "tokenizer") or not hasattr(processor, "save_pretrained"):
        raise UsageError(
            f"a loaded model needs its processor, got {type(processor).__name__}: "
            "load_model(model, processor=AutoProcessor.from_pretrained(NAME))"
        )
    name = str(getattr(model.config, "_name_or_path", "") or type(model).__name__)
    with TemporaryDirectory() as folder:
        model.config.save_pretrained(folder)
        processor.save_pretrained(folder)
        wrapped: Model = _family(name, Path(folder)).load(name, Path(folder), loaded=model, **options)
    return wrapped


def cost_model(name: str) -> CostModel:
    """The cost model of a checkpoint on this machine, or of one that a family knows by name; nothing is downloaded."""
    folder = local_folder(name)
    modules = {entry.target: entry for entry in FAMILIES.values()}
    families = [_family(name, folder)] if folder else [entry.load() for entry in modules.values()]
    for family in families:
        costs: CostModel | None = family.cost_model(name, folder)
        if costs is not None:
            return costs
    names = ", ".join(each for family in families for each in family.KNOWN)
    raise UsageError(f"cannot plan for {name!r}: it is no checkpoint folder on this machine, nor one of {names}")


def find_folder(name: str, revision: str | None = None) -> Path:
    """The checkpoint as a folder on disk."""
    folder = Path(name).expanduser()
    if _is_path(name):
        if not (folder / "config.json").is_file():
            raise ModelError(f"{name} is not a checkpoint folder: there is no config.json in it")
        return folder
    import huggingface_hub

    reason: Exception | None = None
    for local_only in (True, False):
        try:
            snapshot = Path(
                huggingface_hub.snapshot_download(
                    name, revision=revision, local_files_only=local_only, allow_patterns=list(FILES)
                )
            )
        except (OSError, ValueError) as error:  # the hub's own errors are OSErrors; a malformed id is a ValueError
            reason = error
            continue
        if not local_only or _complete(snapshot):
            return snapshot
    raise ModelError(f"cannot find the model {name}: no such folder, not in the local cache, and {_why(name, reason)}")


def _why(name: str, error: Exception | None) -> str:
    """Why the hub gave no model, and the way out, in place of its own paragraphs."""
    from huggingface_hub import constants, errors

    folder = "or download the model on another machine and name its folder"
    if constants.HF_HUB_OFFLINE:
        return f"HF_HUB_OFFLINE is set, so nothing is downloaded; unset it, {folder}"
    if isinstance(error, errors.GatedRepoError):
        return f"it is gated; accept its terms at https://huggingface.co/{name}, and set HF_TOKEN"
    if isinstance(error, errors.RepositoryNotFoundError):
        return "the hub has no model of this name; check the spelling, or set HF_TOKEN if it is private"
    if isinstance(error, errors.LocalEntryNotFoundError | ConnectionError | TimeoutError):
        return f"the Hugging Face hub cannot be reached; check the connection, {folder}"
    return first_line(error)


def first_line(error: object) -> str:
    """An error's message on one line of bounded length."""
    text = " ".join(str(error).split())
    return f"{text[:240]}…" if len(text) > 240 else text


def unreadable() -> tuple[type[Exception], ...]:
    """What transformers raises for a checkpoint whose files are damaged, or hold values of other types."""
    from huggingface_hub.errors import StrictDataclassError
    from safetensors import SafetensorError

    usual = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, ImportError, RuntimeError)
    return (*usual, SafetensorError, StrictDataclassError)


def _is_path(name: str) -> bool:
    return name.startswith((".", "/", "~")) or Path(name).expanduser().exists()


def _check(name: str) -> None:
    if not _is_path(name) and name.count("/") != 1:
        raise UsageError(
            f"{name!r} is neither a folder that exists nor a Hugging Face id (owner/name); see `gridprobe list models`"
        )


def local_folder(name: str) -> Path | None:
    """A checkpoint that is on this machine: a folder, or a snapshot in the cache; nothing is downloaded."""
    folder = Path(name).expanduser()
    if (folder / "config.json").is_file():
        return folder
    try:
        from huggingface_hub import snapshot_download

        snapshot = Path(snapshot_download(name, local_files_only=True))
    except (ModuleNotFoundError, OSError, ValueError):
        return None
    return snapshot if (snapshot / "config.json").is_file() else None


def _family(name: str, folder: Path) -> Any:
    """The code of the checkpoint's family. transformers is not asked: it would suggest trusting remote code."""
    kind = checked_config(name, folder).get("model_type")
    if not isinstance(kind, str):
        raise ModelError(f"cannot load the checkpoint {name}: its config.json names no model_type")
    if kind not in FAMILIES:
        reason = f": {REFUSED[kind]}" if kind in REFUSED else "; see `gridprobe list models`"
        raise ModelError(f"{name} is of the model family {first_line(kind)}, which gridprobe cannot run{reason}")
    return FAMILIES[kind].load()


BOUNDS = {
    "image_size": 4096,
    "vocab_size": 1 << 22,
    "position_embeddings": 1 << 24,
    "layers": 1024,
    "depth": 1024,
    "heads": 4096,
    "experts": 1 << 14,
    "channels": 4096,
    "_size": 1 << 17,
    "_dim": 1 << 17,
}
"""The most that a field of config.json with this in its name may say, several times what released models need."""


def checked_config(name: str, folder: Path) -> dict[str, Any]:
    """config.json, unless it names code on the hub or a size that would take forever to build; {} if it is no object.

    transformers takes OWNER/KERNEL as an attention implementation, which it would download and run.
    """
    try:
        config = parse_json((folder / "config.json").read_bytes())
    except (OSError, ValueError):
        config = None
    parts = [("", config)]
    for path, part in parts:  # which grows
        for field, value in part.items() if isinstance(part, dict) else ():
            place = f"{path}{first_line(field)}"
            if "_implementation" in field and "/" in repr(value):
                raise ModelError(f"{name}: {place} in config.json names code on the hub, {value!r:.80}; remove it")
            values = value if isinstance(value, list) else [value]
            bound = next((most for key, most in BOUNDS.items() if key in field), math.inf)
            if any(type(each) in (int, float) and each > bound for each in values):
                raise ModelError(f"{name}: {place} in config.json is {value!r:.80}, more than {bound}")
            parts += [(f"{place}.", each) for each in values]
    return config if isinstance(config, dict) else {}


def _complete(folder: Path) -> bool:
    """Whether a cached snapshot holds its weights; an interrupted download leaves an index without shards."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            shards = set(parse_json(index.read_bytes())["weight_map"].values())
            return all((folder / shard).is_file() for shard in shards)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):  # damaged, so that it is downloaded again
            return False
    return (folder / "model.safetensors").is_file()
