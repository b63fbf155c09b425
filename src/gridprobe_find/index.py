"""The index: one LanceDB folder with a vector for every sampled frame, the spoken lines, and a row for each video.

    meta.json         the encoder; whoever opens the index with another one is refused
    videos.lance      path -> key, what the file was, how it was sampled; a video counts once its row is here
    frames.lance      key, time, shot, vector
    lines.lance       key, start, end, text
    pending.json      keys whose rows may lack their video, or outlive it: the next writer removes such rows
    write.lock        held while rows of one video are written, never while one is decoded

A writer that is killed anywhere leaves either a whole video or rows that nobody reads. Frames and lines are stored
under a key that is new for every attempt, and readers ask only for keys that `videos` has.
"""

import errno
import json
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from gridprobe._util import parse_json, write_whole
from gridprobe.errors import Attempt, DataError, RunError, UsageError
from gridprobe.registry import explain_missing
from gridprobe.video.subtitles import Segment
from gridprobe_eval import disk
from gridprobe_find.propose import Curve

FORMAT = 1
META, PENDING, LOCK = "meta.json", "pending.json", "write.lock"
TABLES = ("videos", "frames", "lines")
ENOUGH_FOR_ANN = 200_000
"""Frames from which an approximate index pays: exact search takes 0.3 s for them, see speed/find.py."""
REFINE, PROBES = 5, 40
"""How many times as many neighbours are compared exactly, and how many parts of the approximate index are read."""
NEIGHBOURS, ROUNDS = 1000, 4
"""Frames that one search returns, and how often it is repeated without the videos that were found so far."""
KEEP_VERSIONS = timedelta(minutes=10)
"""Old versions of a table stay that long for readers that began with them."""
FULL = ("no space left", "os error 28", "disk quota", "file too large")
PANICS = ("RustPanic", "PanicException")

Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True)
class IndexedVideo:
    """A video in the index."""

    path: str
    key: str
    identity: str
    """What the file was when it was read: size, time, content at both ends, its lines, and how it was sampled."""
    duration: float
    fps: float
    frames: int
    lines: int
    every: float
    """Seconds from frame to frame."""


@dataclass(frozen=True, eq=False)
class NewRows:
    """What one video brings."""

    times: Vectors
    shots: npt.NDArray[np.int32]
    vectors: Vectors
    lines: tuple[Segment, ...] = ()


@dataclass(frozen=True)
class IndexMeta:
    """What an index was made with."""

    encoder: str
    """The name that loads it."""
    identity: str
    """The encoder's own, with the fingerprint of its weights."""
    width: int


class LibraryIndex:
    """An open index. `open_index` opens one."""

    def __init__(self, folder: Path, meta: IndexMeta) -> None:
        self.folder, self.meta = folder, meta
        with guarded(folder):
            self._tables = self._open()

    def videos(self) -> list[IndexedVideo]:
        """All videos that are completely in the index, by path."""
        with guarded(self.folder):
            rows = self._tables["videos"].search().limit(None).to_arrow().to_pylist()
        return sorted((IndexedVideo(**row) for row in rows), key=lambda video: video.path)

    def add(self, video: IndexedVideo, rows: NewRows) -> None:
        """Put a video into the index in place of what was there under its path."""
        with self._writing() as before:
            known = {row.path: row for row in before}
            if known.get(video.path) and known[video.path].identity == video.identity:
                return  # another writer was faster
            old = [known[video.path].key] if video.path in known else []
            self._pend([video.key, *old])
            self._add_rows(video.key, rows)
            self._upsert([video])
            self._settle()

    def alias(self, video: IndexedVideo) -> None:
        """Add another path of a file whose rows are here already."""
        with self._writing() as before:
            if any(row.key == video.key for row in before):
                self._pend([row.key for row in before if row.path == video.path])
                self._upsert([video])
                self._settle()

    def drop(self, paths: Iterable[str]) -> None:
        """Forget these videos."""
        gone = set(paths)
        with self._writing() as before:
            rows = [row for row in before if row.path in gone]
            if rows:
                self._pend([row.key for row in rows])
                self._tables["videos"].delete(f"path IN ({_quoted(row.path for row in rows)})")
                self._settle()

    def recover(self) -> None:
        """Remove what an interrupted writer left, if there is any."""
        if (self.folder / PENDING).exists():
            with self._writing():
                pass

    def tidy(self) -> None:
        """Join small fragments, drop old versions, and keep the search indices up to date."""
        with self._writing():
            for table in self._tables.values():
                table.optimize(cleanup_older_than=KEEP_VERSIONS)
            frames = self._tables["frames"]
            if frames.count_rows() >= ENOUGH_FOR_ANN and not frames.list_indices():
                from lancedb.index import BTree, IvfPq

                frames.create_index("key", config=BTree())
                frames.create_index(
                    "vector", config=IvfPq(distance_type="dot", num_sub_vectors=_parts(self.meta.width))
                )

    def curves(self, keys: Sequence[str], query: Vectors) -> dict[str, Curve]:
        """Similarity over time of each of these videos, compared exactly."""
        with guarded(self.folder):
            search = self._tables["frames"].search().where(f"key IN ({_quoted(keys)})")
            table = search.select(["key", "time", "shot", "vector"]).limit(None).to_arrow()
        vectors = np.asarray(table["vector"].combine_chunks().flatten(), np.float32).reshape(-1, self.meta.width)
        times, shots = (table[name].to_numpy() for name in ("time", "shot"))
        names = table["key"].combine_chunks().dictionary_encode()
        places, scores = names.indices.to_numpy(), vectors @ query
        curves = {}
        for number, key in enumerate(names.dictionary.to_pylist()):
            rows = np.flatnonzero(places == number)
            rows = rows[np.argsort(times[rows], kind="stable")]
            curves[key] = Curve(times[rows].astype(np.float64), shots[rows], scores[rows].astype(np.float64))
        return curves

    def nearest(
        self, query: Vectors, *, most: int, exact: bool = False, within: Mapping[str, IndexedVideo] | None = None
    ) -> dict[str, float]:
        """The videos with the most similar frames, with the similarity of the best; the approximate index serves.

        Of some of the videos, only these are searched.
        """
        best: dict[str, float] = {}
        with guarded(self.folder):
            frames = self._tables["frames"].count_rows()
            some = within is not None and sum(video.frames for video in within.values()) < frames
            for _ in range(ROUNDS):
                search = self._tables["frames"].search(query, vector_column_name="vector").distance_type("dot")
                search = search.bypass_vector_index() if exact else search.nprobes(PROBES).refine_factor(REFINE)
                left = set(within or ()) - best.keys()
                if some:
                    search = search.where(f"key IN ({_quoted(left)})", prefilter=True)
                elif best:
                    search = search.where(f"key NOT IN ({_quoted(best)})", prefilter=True)
                rows = search.limit(NEIGHBOURS).select(["key", "_distance"]).to_arrow()
                for key, distance in zip(rows["key"].to_pylist(), rows["_distance"].to_pylist(), strict=True):
                    best.setdefault(key, 1.0 - distance)
                if len(best) >= most or rows.num_rows < NEIGHBOURS:
                    break
        return dict(sorted(best.items(), key=lambda each: -each[1])[:most])

    def spoken(self, text: str, *, most: int) -> list[tuple[str, Segment]]:
        """The lines that share words with the text, best first, each with its video's key."""
        from lancedb.query import MatchQuery

        with guarded(self.folder):
            if not self._tables["lines"].count_rows():
                return []
            search = self._tables["lines"].search(MatchQuery(text, "text"), query_type="fts")
            rows = search.limit(most).to_arrow().to_pylist()
        return [(row["key"], Segment(row["start"], row["end"], row["text"])) for row in rows]

    def size(self) -> int:
        """Bytes on disk."""
        return sum(file.stat().st_size for file in self.folder.rglob("*") if file.is_file())

    def _open(self) -> dict[str, Any]:
        database = _connect(self.folder)
        present = set(database.list_tables().tables)
        missing = [name for name in TABLES if name not in present]
        if missing and len(missing) < len(TABLES) and not (self.folder / LOCK).exists():
            raise ValueError(f"{missing[0]} is missing")
        if missing:
            with _locked(self.folder):
                for name in missing:
                    table = database.create_table(name, schema=_schema(name, self.meta.width), exist_ok=True)
                    if name == "lines" and not table.list_indices():
                        _index_text(table)
        return {name: database.open_table(name) for name in TABLES}

    @contextmanager
    def _writing(self) -> Iterator[list[IndexedVideo]]:
        """The lock, with what an interrupted writer left removed; gives the videos that are there."""
        with guarded(self.folder, writing=True), _locked(self.folder):
            for table in self._tables.values():
                table.checkout_latest()
            self._settle()
            yield self.videos()

    def _pend(self, keys: Sequence[str]) -> None:
        write_whole(self.folder / PENDING, json.dumps(list(keys)).encode(), durable=True)

    def _settle(self) -> None:
        """Remove the rows of pending keys that no video has."""
        file = self.folder / PENDING
        if not file.exists():
            return
        used = {video.key for video in self.videos()}
        orphans = [key for key in cast(list[str], parse_json(file.read_bytes())) if key not in used]
        for name in ("frames", "lines") if orphans else ():
            self._tables[name].delete(f"key IN ({_quoted(orphans)})")
        file.unlink()

    def _add_rows(self, key: str, rows: NewRows) -> None:
        import pyarrow as pa

        width = self.meta.width
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.vectors.astype(np.float16).ravel()), width)
        frames = {"key": [key] * len(rows.times), "time": rows.times, "shot": rows.shots, "vector": vectors}
        self._tables["frames"].add(pa.table(frames, schema=_schema("frames", width)))
        if rows.lines:
            values = {name: [getattr(line, name) for line in rows.lines] for name in ("start", "end", "text")}
            lines = {"key": [key] * len(rows.lines), **values}
            self._tables["lines"].add(pa.table(lines, schema=_schema("lines", width)))

    def _upsert(self, videos: Sequence[IndexedVideo]) -> None:
        import pyarrow as pa

        table = pa.Table.from_pylist([vars(video) for video in videos], schema=_schema("videos", 0))
        self._tables["videos"].merge_insert("path").when_matched_update_all().when_not_matched_insert_all().execute(
            table
        )


def new_key() -> str:
    """A key for the rows of one attempt to index a video."""
    return uuid.uuid4().hex


def default_folder() -> Path:
    """Where the index is unless it is named: next to the frame cache."""
    from gridprobe.video import cache_folder

    frames = cache_folder()
    if frames is None:
        raise UsageError("the cache is off (GRIDPROBE_CACHE), so the index needs a folder: --index DIR")
    return frames.with_name("index")


def read_meta(folder: Path) -> IndexMeta | None:
    """What the index in a folder was made with; None if there is none."""
    file = folder / META
    if not file.exists():
        if folder.is_dir() and any(each.name != LOCK for each in folder.iterdir()):
            if any((folder / f"{name}.lance").exists() for name in TABLES):
                raise _damaged(folder, f"{META} is missing")
            raise UsageError(f"{folder} is not empty and holds no index; name another folder with --index")
        return None
    try:
        fields = parse_json(file.read_bytes())
        if fields.pop("format") != FORMAT:
            raise ValueError("it has another format")
        return IndexMeta(**fields)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise _damaged(folder, f"{META}: {error}") from error


def open_index(folder: Path, made_with: IndexMeta | None = None, *, rebuild: bool = False) -> LibraryIndex:
    """Open the index in a folder, or make it if `made_with` says with which encoder; `rebuild` makes it anew."""
    with explain_missing("find"):
        _connect(None)
    if rebuild:
        _clear(folder)
    meta = read_meta(folder)
    if meta is None:
        if made_with is None:
            raise UsageError(f"there is no index in {folder}; make one with gridprobe index FOLDER")
        with guarded(folder, writing=True):
            folder.mkdir(parents=True, exist_ok=True)
            write_whole(folder / META, json.dumps({"format": FORMAT, **vars(made_with)}).encode(), durable=True)
        meta = made_with
    if made_with is not None and (made_with.identity, made_with.width) != (meta.identity, meta.width):
        raise UsageError(
            f"the index in {folder} was made with the encoder {meta.identity}, not with {made_with.identity}; use "
            f"--encoder {meta.encoder}, another folder with --index, or make it anew with gridprobe index --rebuild"
        )
    return LibraryIndex(folder, meta)


@contextmanager
def guarded(folder: Path, *, writing: bool = False) -> Iterator[None]:
    """Turn what LanceDB and the file system raise into one sentence."""
    with Attempt() as attempt:  # LanceDB's panics have a class that cannot be imported
        yield
    error = attempt.error
    if error is None:
        return
    known = isinstance(error, OSError | RuntimeError | ValueError | KeyError | TypeError)
    if not known and type(error).__name__ not in PANICS:
        raise error
    reason = " ".join(str(error).split())
    if writing and (getattr(error, "errno", 0) == errno.ENOSPC or any(word in reason.lower() for word in FULL)):
        raise RunError(
            f"the disk of the index {folder} is full; what is in it is safe: make room, then repeat the command"
        ) from error
    if isinstance(error, PermissionError):
        raise UsageError(f"may not write to the index {folder}; name another folder with --index") from error
    raise _damaged(folder, reason) from error


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = disk.lock(folder / LOCK, wait=True)
    assert descriptor is not None
    try:
        yield
    finally:
        disk.close(descriptor)


def _damaged(folder: Path, reason: str) -> DataError:
    return DataError(f"the index {folder} cannot be read ({reason[:160]}); make it anew with gridprobe index --rebuild")


def _connect(folder: Path | None) -> Any:
    os.environ.setdefault("LANCE_LOG", "error")  # its warnings about missing files are our normal start
    import lancedb

    return None if folder is None else lancedb.connect(str(folder))


def _schema(name: str, width: int) -> Any:
    import pyarrow as pa

    text, real, whole = pa.string(), pa.float32(), pa.int32()
    columns: dict[str, Mapping[str, Any]] = {
        "videos": {"path": text, "key": text, "identity": text, "duration": pa.float64(), "fps": pa.float64()}
        | {"frames": whole, "lines": whole, "every": pa.float64()},
        "frames": {"key": text, "time": real, "shot": whole, "vector": pa.list_(pa.float16(), width)},
        "lines": {"key": text, "start": real, "end": real, "text": text},
    }
    return pa.schema(list(columns[name].items()))


def _index_text(table: Any) -> None:
    """Full-text search by Unicode's words, so that it works in scripts without spaces."""
    from lancedb.index import FTS

    table.create_index("text", config=FTS(base_tokenizer="icu", remove_stop_words=False))


def _parts(width: int) -> int:
    """Into how many parts a vector is cut for the approximate index: 8 numbers each, if they fit."""
    return next(parts for parts in range(max(1, width // 8), 0, -1) if width % parts == 0)


def _quoted(values: Iterable[str]) -> str:
    return ", ".join("'" + value.replace("'", "''") + "'" for value in values) or "''"


def _clear(folder: Path) -> None:
    """Remove an index, and nothing else that may be in its folder."""
    with guarded(folder, writing=True):
        for name in TABLES:
            shutil.rmtree(folder / f"{name}.lance", ignore_errors=True)
        for name in (META, PENDING):
            (folder / name).unlink(missing_ok=True)
