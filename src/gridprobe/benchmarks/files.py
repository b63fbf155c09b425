"""Annotation files -> rows, and video names -> paths."""

import codecs
import csv
import hashlib
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from gridprobe.errors import DataError

__all__ = ["Media", "find_files", "find_split", "fingerprint", "read_object", "read_rows"]

VIDEO_SUFFIXES = (".mp4", ".MP4", ".mkv", ".webm", ".avi", ".mov")


def find_files(data: Path, *patterns: str) -> list[Path]:
    """The files that match the first pattern with any match, sorted by name."""
    for pattern in patterns:
        found = sorted(path for path in data.glob(pattern) if path.is_file()) if data.is_dir() else []
        if found:
            return found
    state = "" if data.is_dir() else ", which is not a folder"
    raise DataError(f"no {' or '.join(patterns)} in {data}{state}; see docs/evaluation.md for where files belong")


def find_split(data: Path, patterns: Mapping[str, Sequence[str]], split: str) -> list[Path]:
    """The files of a split; if there are only those of another split, the error names it."""
    try:
        return find_files(data, *patterns[split])
    except DataError:
        for other, names in patterns.items():
            found = [path for name in names for path in data.glob(name)]
            if found:
                raise DataError(
                    f"{data} has no files of split={split} ({patterns[split][0]}), but {found[0].name} of "
                    f"split={other}; ask for --with split={other}, or add the missing file"
                ) from None
        raise


def fingerprint(files: Sequence[Path]) -> str:
    """The first twelve hex digits of the SHA-256 of the files' content."""
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def read_rows(path: Path) -> list[Any]:
    """The rows of a parquet, JSON, JSON Lines or CSV file. A line that is not JSON is returned as a DataError.

    Bytes that are not UTF-8 become surrogates, which `gather` refuses in the rows that have them.
    """
    try:
        if path.suffix == ".parquet":
            return _parquet(path)
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error}") from error
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DataError(f"cannot read {path}: it is UTF-16; save it as UTF-8")
    text = content.decode("utf-8-sig", "surrogateescape")
    if path.suffix == ".jsonl":
        return [_line(line) for line in text.split("\n") if line.strip()]
    return _table(text, path) if path.suffix == ".csv" else _array(text, path)


def read_object(path: Path, content: str) -> dict[str, Any]:
    """The JSON object in a file; `content` says in an error what it should hold."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"cannot read {path}: {error}") from error
    if not isinstance(found, dict):
        raise DataError(f"{path} must hold one JSON object of {content}")
    return found


def _parquet(path: Path) -> list[Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError:
        raise DataError(f"reading {path.name} needs pyarrow; run: pip install 'gridprobe[eval]'") from None
    try:
        rows: list[Any] = parquet.read_table(path).to_pylist()
    except pyarrow.ArrowException as error:
        raise DataError(f"{path} is not a readable parquet file: {error}") from error
    return rows


def _table(text: str, path: Path) -> list[Any]:
    try:
        return list(csv.DictReader(io.StringIO(text, newline="")))
    except csv.Error as error:
        raise DataError(f"{path} is not a readable CSV file: {error}") from error


def _line(line: str) -> Any:
    try:
        return json.loads(line, parse_int=_whole)
    except (ValueError, RecursionError) as error:
        return DataError(f"not a JSON object ({error})")


def _whole(digits: str) -> int | DataError:
    """A whole number, or an error in its place if Python refuses to read so many digits."""
    try:
        return int(digits)
    except ValueError:
        return DataError(f"a whole number of {len(digits)} digits is too long")


def _array(text: str, path: Path) -> list[Any]:
    try:
        rows = json.loads(text, parse_int=_whole)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(rows, list):
        raise DataError(f"{path} must hold a JSON array of questions, not a single {type(rows).__name__}")
    return rows


class Media:
    """Finds files by name in several folders and their subfolders; the first folder that has a file wins.

    Folders are listed once, so that thousands of questions do not each access the disk.
    """

    def __init__(self, data: Path, *folders: str) -> None:
        self._data = data
        self._folders = folders

    def find(self, *names: str, deep: bool = True) -> Path:
        """The first of these names that exists, for a video also in another container; else where it should be.

        Without `deep`, a file in a subfolder is found only by a name of the form "folder/name".
        """
        for name in names:
            stem, dot, suffix = name.rpartition(".")
            others = (f"{stem}{each}" for each in VIDEO_SUFFIXES) if dot + suffix in VIDEO_SUFFIXES else ()
            for known in (name, *others):
                if known in self._index:
                    return self._index[known]
                if deep and known in self._inside:
                    return self._inside[known]
        return self._home / names[0]

    def has(self, name: str) -> bool:
        """Whether a file with exactly this name exists."""
        return name in self._index or name in self._inside

    @cached_property
    def _home(self) -> Path:
        existing = [name for name in self._folders if name != "." and (self._data / name).is_dir()]
        return self._data / (existing or self._folders)[0]

    @cached_property
    def _index(self) -> dict[str, Path]:
        index: dict[str, Path] = {}
        for folder in self._folders:
            for path in _listing(self._data / folder, deeper=folder != "."):
                index.setdefault(path.relative_to(self._data / folder).as_posix(), path)
        return index

    @cached_property
    def _inside(self) -> dict[str, Path]:
        return {path.name: path for path in reversed(self._index.values())}


def _listing(folder: Path, *, deeper: bool) -> Iterator[Path]:
    """The files in a folder, then those in its subfolders."""
    if not folder.is_dir():
        return
    inner = []
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.is_dir():
                inner.append(folder / entry.name)
            else:
                yield folder / entry.name
    for each in inner if deeper else ():
        yield from _listing(each, deeper=False)
