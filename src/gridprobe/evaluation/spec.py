"""Spec: everything that decides the results of a run. Two runs with equal specs may share a folder, others may not."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from importlib.metadata import PackageNotFoundError, version
from typing import Any, get_args, get_origin, get_type_hints

from gridprobe._version import __version__
from gridprobe.errors import DataError, UsageError
from gridprobe.settings import Settings
from gridprobe.video import FrameSize, Limits

__all__ = ["SCHEMA", "Spec", "changed_settings", "parse_changes"]

SCHEMA = "gridprobe.spec/1"
PACKAGES = ("av", "numpy", "torch", "transformers")
NOT_COMPARED = ("data", "versions")
"""Where the data lie may differ between machines, their content is in `benchmark_version`; versions are only told."""
NESTED: dict[str, type[FrameSize] | type[Limits]] = {
    "probe_pixels": FrameSize,
    "native_pixels": FrameSize,
    "limits": Limits,
}


@dataclass(frozen=True)
class Spec:
    """A run's spec.json."""

    benchmark: str
    benchmark_version: str
    data: str
    selector: str
    model: str
    answer_model: str | None
    settings: Mapping[str, Any]
    """All of `Settings` but what stands here by itself."""
    subtitles: str | None = None
    template: str | None = None
    seed: int = 0
    limit: int | None = None
    ids: Sequence[str] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """The benchmark's own, such as its split."""
    versions: Mapping[str, str] = field(default_factory=lambda: installed())

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
    def from_json(cls, text: str, *, where: str) -> "Spec":
        """Read a spec.json; its fingerprint must be that of what it says."""
        try:
            content = json.loads(text)
            spec = cls(**{each.name: content[each.name] for each in fields(cls)})
        except (ValueError, TypeError, KeyError) as error:
            raise DataError(f"{where} is not the spec of a run ({error}); name another folder") from error
        if content.get("schema") != SCHEMA or content.get("fingerprint") != spec.fingerprint:
            raise DataError(f"{where} was written by another version of gridprobe or changed by hand; start a new run")
        return spec

    def require_same(self, known: "Spec", *, where: str) -> None:
        """Refuse to go on with a run that was begun with another spec."""
        differing = list(_differences(known._plain(), self._plain()))
        if differing:
            told = "; ".join(f"{name} was {_short(old)} and is now {_short(new)}" for name, old, new in differing)
            raise UsageError(f"{where} was begun with another spec: {told}; name another folder with --out")


def _differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Names and both values of what differs, down to single settings."""
    for name in dict.fromkeys((*old, *new)):
        before, after = old.get(name), new.get(name)
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
    found = {"gridprobe": __version__}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def parse_changes(texts: Sequence[str]) -> dict[str, Any]:
    """Settings from texts such as "gamma0=0.3", "ties=earliest" or 'limits={"seconds": 300}'."""
    changes: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"--set takes name=value, got {text!r}")
        try:
            changes[name] = json.loads(value)
        except ValueError:
            changes[name] = value
    return changes


def changed_settings(preset: str, changes: Mapping[str, Any]) -> Settings:
    """A preset with changes as plain JSON values; a value of the wrong kind is an error."""
    values = dict(changes)
    for name in NESTED.keys() & values.keys():
        if isinstance(values[name], Mapping):
            values[name] = _nested(name, values[name])
    settings = Settings.from_preset(preset)
    hints = get_type_hints(Settings)
    for name in hints.keys() & values.keys():
        if not _fits(values[name], hints[name]):
            raise UsageError(f"{values[name]!r} is no value for the setting {name!r}; see gridprobe.settings.Settings")
    return settings.changed(**values)


def _nested(name: str, values: Mapping[str, Any]) -> FrameSize | Limits:
    try:
        return NESTED[name](**values)
    except TypeError:
        known = ", ".join(each.name for each in fields(NESTED[name]))
        raise UsageError(f"the setting {name!r} has the fields {known}, got {', '.join(map(str, values))}") from None


def _fits(value: Any, kind: Any) -> bool:
    if get_origin(kind) is None:
        wanted = (int, float) if kind is float else kind
        return isinstance(value, wanted) and (kind is bool or not isinstance(value, bool))
    choices = get_args(kind)
    return any(_fits(value, choice) if isinstance(choice, type) or get_origin(choice) else value == choice
               for choice in choices)  # fmt: skip
