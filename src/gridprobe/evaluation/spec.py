"""Spec: everything that decides the results of a run. Two runs with equal specs may share a folder, others may not."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gridprobe import __version__
from gridprobe._util import parse_json
from gridprobe.errors import DataError, UsageError

__all__ = ["SCHEMA", "SPEC_FILE", "Spec"]

SCHEMA = "gridprobe.spec/2"
SPEC_FILE = "spec.json"
PACKAGES = ("av", "numpy", "pillow", "torch", "transformers")
NOT_COMPARED = ("data", "versions")
"""Where the data are may differ between machines (`benchmark_version` covers their content); versions are noted."""

RETIRED = {"setup.sampling.decoder": "pyav"}
"""Options that older runs have, with the value that is the only one now."""


@dataclass(frozen=True)
class Spec:
    """A run's spec.json."""

    benchmark: str
    benchmark_version: str
    data: str
    setup: Mapping[str, Any]
    """What `Plan.describe` says, with the models' names."""
    subtitles: str = "none"
    seed: int = 0
    limit: int | None = None
    ids: Sequence[str] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """The benchmark's own, such as its split."""
    versions: Mapping[str, str] = field(default_factory=lambda: installed())

    @property
    def selector(self) -> str:
        """How frames are chosen."""
        return str(self.setup["selector"]["name"])

    @property
    def models(self) -> tuple[str, ...]:
        """The models that are asked: those of the selector, then the answering one, each once."""
        return tuple(dict.fromkeys([*_models(self.setup["selector"]), str(self.setup["answerer"])]))

    @property
    def fingerprint(self) -> str:
        """A hash of everything that is compared."""
        compared = {name: value for name, value in self._plain().items() if name not in NOT_COMPARED}
        return hashlib.sha256(json.dumps(compared, sort_keys=True).encode()).hexdigest()[:16]

    def _plain(self) -> dict[str, Any]:
        return json.loads(json.dumps(asdict(self)))  # type: ignore[no-any-return]  # tuples become lists, as on disk

    def to_json(self) -> str:
        """The content of spec.json."""
        content = {"schema": SCHEMA, **self._plain(), "fingerprint": self.fingerprint}
        return json.dumps(content, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def read(cls, folder: Path) -> "Spec":
        """The spec of a run folder."""
        file = folder / SPEC_FILE
        try:
            text = file.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise UsageError(f"{folder} is not a run: it holds no {SPEC_FILE}; name a folder that eval wrote") from None
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"cannot read {file}: {error}") from error
        return cls.from_json(text, where=str(file))

    @classmethod
    def from_json(cls, text: str, *, where: str) -> "Spec":
        """Read the content of a spec.json; its fingerprint must be that of what it says."""
        try:
            content = parse_json(text)
            spec = cls(**{each.name: content[each.name] for each in fields(cls)})
            _ = spec.selector, spec.models
            same = content.get("schema") == SCHEMA and content.get("fingerprint") == spec.fingerprint
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise DataError(f"{where} is not the spec of a run ({error!r:.80}); name another folder") from error
        if not same:
            raise DataError(f"{where} was written by another version of gridprobe or changed by hand; start a new run")
        return spec

    def other_rows_alone(self, known: "Spec") -> bool:
        """Whether nothing but the benchmark's rows differs from a run that was begun."""
        return [name for name, *_ in _differences(known._plain(), self._plain())] == ["benchmark_version"]

    def require_same(self, known: "Spec", *, where: str) -> None:
        """Refuse to go on with a run that was begun with another spec."""
        differing = list(_differences(known._plain(), self._plain()))
        if differing:
            changes = "; ".join(f"{name} was {_short(old)} and is now {_short(new)}" for name, old, new in differing)
            raise UsageError(f"{where} was begun with another spec: {changes}; name another folder with --out")


def _models(selector: Mapping[str, Any]) -> Iterator[str]:
    """The models of a selector's description, or of the selectors within it."""
    for name, value in selector.items():
        if name == "model":
            yield str(value)
        elif isinstance(value, Mapping):
            yield from _models(value)


def _differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Names and both values of what differs, down to single settings."""
    for name in dict.fromkeys((*old, *new)):
        only = RETIRED.get(prefix + name)
        before, after = old.get(name, only), new.get(name, only)
        if before == after or (not prefix and name in NOT_COMPARED):
            continue
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            yield from _differences(before, after, f"{prefix}{name}.")
        else:
            yield prefix + name, before, after


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}…"


def installed() -> dict[str, str]:
    """Versions of what turns a video and a question into an answer."""
    found = {name: _version(name) for name in PACKAGES}
    return {"gridprobe": __version__, **{name: known for name, known in found.items() if known is not None}}


@cache
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
