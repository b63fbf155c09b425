"""Rows -> items: checked fields, options, gold letters, and a Problem for each unusable row."""

import codecs
import csv
import hashlib
import io
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from gridprobe._util import is_utf8, printable
from gridprobe.errors import DataError, UsageError
from gridprobe.question import NO_TEXT
from gridprobe_eval.benchmarks.base import Benchmark, DataProblem, Item

# Annotation files -> rows, and video names -> paths.

VIDEO_SUFFIXES = (".mp4", ".MP4", ".mkv", ".webm", ".avi", ".mov")


def find_files(data: Path, *patterns: str) -> list[Path]:
    """The files that match the first pattern with any match, sorted by name."""
    for pattern in patterns:
        files = sorted(path for path in data.glob(pattern) if path.is_file()) if data.is_dir() else []
        if files:
            return files
    if not data.exists():
        raise DataError(f"{data} does not exist; name the folder of the files with --data")
    state = "" if data.is_dir() else ", which is not a folder"
    raise DataError(f"no {' or '.join(patterns)} in {data}{state}; see docs/evaluation.md for where files belong")


def find_split(data: Path, patterns: Mapping[str, Sequence[str]], split: str) -> list[Path]:
    """The files of a split; if there are only those of another split, the error names it."""
    try:
        return find_files(data, *patterns[split])
    except DataError:
        for other, names in patterns.items():
            files = [path for name in names for path in data.glob(name)]
            if files:
                raise DataError(
                    f"{data} has no files of split={split} ({patterns[split][0]}), but {files[0].name} of "
                    f"split={other}; ask for --with split={other}, or add the missing file"
                ) from None
        raise


def fingerprint(files: Sequence[Path]) -> str:
    """The first twelve hex digits of the SHA-256 of the files' content."""
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def read_rows(*paths: Path) -> list[Any]:
    """The rows of parquet, JSON, JSON Lines or CSV files. A line that is not JSON is returned as a DataError.

    Bytes that are not UTF-8 become surrogates, which `gather` refuses in the rows that have them.
    """
    return [row for path in paths for row in numbered_rows(path).values()]


def numbered_rows(path: Path) -> dict[str, Any]:
    """The same by where each row is: "line 3" of a JSON Lines file, "row 3" of another."""
    rows = _rows(path)
    return rows if isinstance(rows, dict) else {f"row {count}": row for count, row in enumerate(rows, start=1)}


def _rows(path: Path) -> list[Any] | dict[str, Any]:
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
        return {f"line {n}": _line(line) for n, line in enumerate(text.split("\n"), start=1) if line.strip()}
    return _table(text, path) if path.suffix == ".csv" else _array(text, path)


def read_object(path: Path, content: str) -> dict[str, Any]:
    """The JSON object in a file; `content` says in an error what it should hold."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"cannot read {path}: {error}") from error
    if not isinstance(value, dict):
        raise DataError(f"{path} must hold one JSON object of {content}")
    return value


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
    """A whole number, or an error in its place if Python refuses to read that many digits."""
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
            for candidate in (name, *others):
                if candidate in self._index:
                    return self._index[candidate]
                if deep and candidate in self._inside:
                    return self._inside[candidate]
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


Row = Mapping[str, Any]
MAX_NAME, MAX_PATH = 255, 4095
"""Bytes in the name of a file or folder, and in a path, on Linux; elsewhere not more."""


def gather(
    name: str,
    rows: Iterable[Any] | Mapping[str, Any],
    make: Callable[[Row], Item],
    *,
    files: Sequence[Path],
    key: str = "id",
) -> Benchmark:
    """Make an item of every row. An unusable row becomes a Problem, identified by its place and its `key` field.

    Rows without a place of their own, such as "line 3", are counted.
    """
    items: dict[str, Item] = {}
    problems, places = [], dict[str, str]()
    numbered = ((f"row {count}", row) for count, row in enumerate(rows, start=1))
    for place, row in rows.items() if isinstance(rows, Mapping) else numbered:
        try:
            if not isinstance(row, Mapping):
                raise row if isinstance(row, DataError) else DataError("the row is not an object with fields")
            _check(row)
            item = _usable(make(row))
            if item.id in items:
                raise DataError(f"the id {item.id} occurs a second time; only the first counts")
            items[item.id], places[item.id] = item, place
        except (DataError, UsageError) as error:
            row_id = known(row.get(key)) if isinstance(row, Mapping) else None
            where = place if row_id is None else f"{place} ({printable(str(row_id)[:80])})"
            problems.append(DataProblem(where, printable(str(error))))
    if not items and not problems:
        raise DataError(f"{', '.join(str(path) for path in files)}: no question in it")
    version = f"{name}-{len(items) + len(problems)}-{fingerprint(files)}"
    return Benchmark(name, version, tuple(items.values()), tuple(problems), places=places)


def _check(row: Row) -> None:
    """Refuse text that cannot be written to a file or named as one, and what the reader of the file refused."""
    values = [(str(field), part) for field, value in row.items() for part in (field, value)]
    while values:
        field, value = values.pop()
        if isinstance(value, DataError):
            raise value
        if isinstance(value, str) and ("\0" in value or not is_utf8(value)):
            raise DataError(f"{field!r} is not valid text: {value[:80]!r} has a NUL, or bytes that are not UTF-8")
        if isinstance(value, Mapping):
            values += [(field, part) for pair in value.items() for part in pair]
        elif isinstance(value, list):
            values += [(field, part) for part in value]


def _usable(item: Item) -> Item:
    """The item, if its texts can be written to files and its paths can be paths."""
    for path in (item.video, item.subtitles or Path()):
        if not _can_be_a_path(path):
            raise DataError(f"no file can have the name {str(path)[-60:]!r}")
    try:
        kept = [item.id, item.group, dict(item.bins), dict(item.extra)]
        json.dumps(kept, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        raise DataError("a text of the row has half a surrogate pair, which is not a character") from None
    except (ValueError, RecursionError):
        raise DataError("a number of the row is infinite or too large, or the row is nested too deeply") from None
    return item


def _can_be_a_path(path: Path) -> bool:
    """Whether there may be such a file. The folder that the user named may be any bytes, which Python reads as text."""
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError:  # half a surrogate pair, from another file than that of the rows
        return False
    return b"\0" not in encoded and len(encoded) <= MAX_PATH and max(map(len, encoded.split(b"/"))) <= MAX_NAME


def choose(name: str, value: Any, allowed: Sequence[Any]) -> None:
    """Raise UsageError unless an option's value is one of those allowed."""
    if value not in allowed or not any(type(value) is type(each) for each in allowed):
        shown = ", ".join(str(each).lower() if isinstance(each, bool) else str(each) for each in allowed)
        raise UsageError(f"{name} must be one of {shown}; got {value!r}")


def known(value: Any) -> Any:
    """The value, or None if it is a table's notation for a missing one. Not for text: an option may read "None"."""
    missing = value is None or (isinstance(value, float) and math.isnan(value))
    return None if missing or (isinstance(value, str) and value.strip() in ("", "None", "nan")) else value


def text(row: Row, field: str, *, strip: bool = True) -> str:
    """A required text field, stripped unless its white space counts."""
    value = row.get(field)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if value is None or (isinstance(value, str) and not value.strip()):
        raise DataError(f"{field} is missing")
    if not isinstance(value, str):
        raise DataError(f"{field} must be text, got {value!r}")
    return value.strip() if strip else value


def verbatim(value: Any, name: str) -> str:
    """A text with its white space, or NO_TEXT for an empty or missing one: for benchmarks that ask such a row, too."""
    if value is not None and not isinstance(value, str):
        raise DataError(f"{name} must be text, got {value!r}")
    return value if value and value.strip() else NO_TEXT


def whole(row: Row, field: str) -> int:
    """A required whole number, which may be written as 3.0 or "3"."""
    value = number(row, field)
    if value is None or value != int(value):
        raise DataError(f"{field} must be a whole number, got {row.get(field)!r}")
    return int(value)


def number(row: Row, field: str) -> float | None:
    """A number, or None if it is missing."""
    value = known(row.get(field))
    try:
        parsed = None if value is None or isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        raise DataError(f"{field} must be a number, got {value!r:.80}") from None
    except OverflowError:
        raise DataError(f"{field} must be a number below 1e308, got a longer one") from None
    if parsed is not None and not math.isfinite(parsed):
        raise DataError(f"{field} must be a finite number, got {value!r}")
    return parsed


def duration(row: Row) -> float | None:
    """The length of the video in seconds, or None if it is missing."""
    seconds = number(row, "duration")
    if seconds is not None and seconds <= 0:
        raise DataError(f"duration must be a positive number of seconds, got {row['duration']!r}")
    return seconds


def letter(value: Any, options: Sequence[str]) -> str:
    """The gold letter, which must belong to an option."""
    labels = ascii_uppercase[: len(options)]
    label = value.strip() if isinstance(value, str) else value
    if not isinstance(label, str) or len(label) != 1 or label not in labels:
        raise DataError(f"the answer {value!r} is not the letter of an option, {', '.join(labels)}")
    return label


def letter_at(index: int, options: Sequence[str]) -> str:
    """The gold letter of the option at a zero-based index."""
    if not 0 <= index < len(options):
        raise DataError(f"the answer {index} is not the number of an option, 0 to {len(options) - 1}")
    return ascii_uppercase[index]


def unlabelled(options: Any) -> list[str]:
    """Options without their letter prefixes: "A. text" becomes "text"."""
    if not isinstance(options, list) or not 0 < len(options) <= len(ascii_uppercase):
        raise DataError(f"the options must be a list of 2 to 26 texts, got {options!r}")
    return [_after(f"{label}.", option) for label, option in zip(ascii_uppercase, options, strict=False)]


def split_options(block: str, mark: str = "{}.") -> list[str]:
    """Split a text into options: one per line, lettered from A without a gap. No option ever changes its letter.

    Letters inside a line are searched for only if there is a single line, since initials ("John F. Kennedy") look like
    them; if the line can be split in more than one way, the row is refused.
    """
    lines = [line for line in block.split("\n") if line.strip()]
    if len(lines) > len(ascii_uppercase):
        raise DataError(f"{len(lines)} lines of options are more than there are letters")
    if len(lines) > 1:
        return [_after(mark.format(label), line) for label, line in zip(ascii_uppercase, lines, strict=False)]
    return _split_line(block.strip(), mark)


def _after(mark: str, option: Any) -> str:
    if not isinstance(option, str) or not option.strip().startswith(mark):
        raise DataError(f"the option {option!r} should start with {mark!r}")
    return option.strip()[len(mark) :].strip()


def _split_line(line: str, mark: str) -> list[str]:
    places = [[m.start() for m in re.finditer(rf"(?<!\S){re.escape(mark.format(c))}", line)] for c in ascii_uppercase]
    first: list[int] = []
    for starts in places:
        later = [place for place in starts if not first or place > first[-1]]
        if not later:
            break
        first.append(later[0])
    last: list[int] = []
    for starts in reversed(places[: len(first)]):
        last.insert(0, max(place for place in starts if not last or place < last[0]))
    if not first or first[0] != 0 or first != last:
        raise DataError(f"the options {line!r} cannot be split in exactly one way")
    ends = [*first[1:], len(line)]
    parts = [line[start:end] for start, end in zip(first, ends, strict=True)]
    return [_after(mark.format(label), part) for label, part in zip(ascii_uppercase, parts, strict=False)]
