"""MP4 files taken apart and put together again, for lengths and sizes that encoding would take too long to reach."""

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

Table = npt.NDArray[np.uint32]

PARENTS = {b"moov", b"trak", b"edts", b"mdia", b"minf", b"stbl"}
Change = Callable[[bytes, bytes], tuple[bytes, bytes]]


def looped(source: Path, target: Path, loops: int) -> Path:
    """A video that shows the same media `loops` times: the tables repeat, the media stay where they are, once."""
    data = source.read_bytes()
    boxes = dict(walk(data))
    frames = struct.unpack_from(">I", boxes[b"stsz"], 8)[0]
    chunks = struct.unpack_from(">I", boxes[b"stco"], 4)[0]

    def change(kind: bytes, body: bytes) -> tuple[bytes, bytes]:
        if kind in (b"stts", b"ctts", b"stco"):
            return kind, table(body, 4, entries(body, 4), loops)
        if kind == b"stsz":
            return kind, table(body, 8, entries(body, 8), loops)
        if kind == b"stss":
            return kind, table(body, 4, entries(body, 4), loops, step=[frames])
        if kind == b"stsc":
            return kind, table(body, 4, entries(body, 4).reshape(-1, 3), loops, step=[chunks, 0, 0])
        at = {b"mvhd": 16, b"mdhd": 16, b"tkhd": 20, b"elst": 8}.get(kind)
        if at is not None:
            (duration,) = struct.unpack_from(">I", body, at)
            body = body[:at] + struct.pack(">I", duration * loops) + body[at + 4 :]
        return kind, body

    target.write_bytes(rebuilt(data, change))
    return target


def with_hole(source: Path, target: Path, hole: int) -> Path:
    """The same video with `hole` bytes of nothing (sparse) before its media and its index."""
    data = source.read_bytes()
    at = data.index(b"mdat") - 4
    assert at < data.index(b"moov")

    def change(kind: bytes, body: bytes) -> tuple[bytes, bytes]:
        if kind != b"stco":
            return kind, body
        offsets = entries(body, 4).astype(">u8") + np.uint64(hole)
        return b"co64", body[:8] + offsets.astype(">u8").tobytes()

    with target.open("wb") as file:
        file.write(data[:at] + struct.pack(">I4sQ", 1, b"free", hole))
        file.seek(at + hole)
        file.write(rebuilt(data, change)[at:])
    return target


def walk(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Every box that holds no others, and its body."""
    at = 0
    while at < len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        body = data[at + 8 : at + length]
        yield from walk(body) if kind in PARENTS else [(kind, body)]
        at += length


def rebuilt(data: bytes, change: Change) -> bytes:
    parts, at = [], 0
    while at < len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        body = data[at + 8 : at + length]
        kind, body = (kind, rebuilt(body, change)) if kind in PARENTS else change(kind, body)
        parts += [struct.pack(">I4s", len(body) + 8, kind), body]
        at += length
    return b"".join(parts)


def entries(body: bytes, count_at: int) -> Table:
    return np.frombuffer(body, ">u4", offset=count_at + 4)


def table(body: bytes, count_at: int, rows: Table, loops: int, step: list[int] | None = None) -> bytes:
    """The table `loops` times over, each turn counted on by `step`."""
    (count,) = struct.unpack_from(">I", body, count_at)
    once = rows.reshape(count, -1).astype(np.int64)
    turns = np.arange(loops)[:, None, None] * np.array(step or [0])
    repeated: Table = (once[None] + turns).reshape(-1).astype(">u4")
    return body[:count_at] + struct.pack(">I", count * loops) + repeated.tobytes()
