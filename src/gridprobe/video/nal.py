"""Which H.264 and HEVC packets hold an unreferenced picture, according to the headers of their NAL units.

A decoder can skip such pictures itself, but then it does not report a damaged reference that looks like one. So a
packet is droppable only if its units fill it to the byte and are all of a known kind.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

__all__ = ["Kind", "kind_rule"]

START_CODE = b"\0\0\1"
H264_SLICE, H264_HARMLESS = 1, frozenset({6, 9, 12})
"""A slice of a non-IDR picture; supplemental information, delimiter and filler."""
HEVC_NOT_REFERENCED, HEVC_HARMLESS = frozenset({0, 2, 4, 6, 8}), frozenset({35, 38, 39, 40})
"""TRAIL_N, TSA_N, STSA_N, RADL_N and RASL_N; delimiter, filler and supplemental information."""


class Kind(NamedTuple):
    """What a packet's headers say."""

    droppable: bool = False
    """Whether no picture in the same temporal layer refers to it."""
    layer: int = 0
    """Its temporal layer; pictures in a higher layer may still refer to it."""


def kind_rule(codec: str, extradata: bytes | None) -> Callable[[bytes], Kind] | None:
    """A function that classifies a stream's packets; None for other codecs.

    The extradata say whether units are prefixed with their length (MP4, Matroska) or with start codes.
    """
    if codec not in ("h264", "hevc"):
        return None
    classify, offset = (_h264, 4) if codec == "h264" else (_hevc, 21)
    if extradata and extradata[0] == 1 and len(extradata) > offset:
        size = (extradata[offset] & 3) + 1
        return lambda data: classify(list(_by_length(data, size)))
    return lambda data: classify(list(_by_start_code(data)))


def _by_length(data: bytes, size: int) -> Iterator[bytes]:
    """The first two bytes of every unit; b"" for a length that does not fit, then nothing more."""
    offset = 0
    while offset < len(data):
        length = int.from_bytes(data[offset : offset + size], "big")
        offset += size
        if not 2 <= length <= len(data) - offset:
            yield b""
            return
        yield data[offset : offset + 2]
        offset += length


def _by_start_code(data: bytes) -> Iterator[bytes]:
    offset = data.find(START_CODE)
    if offset < 0 or data[:offset].strip(b"\0"):
        yield b""
    while offset >= 0:
        yield data[offset + 3 : offset + 5]
        offset = data.find(START_CODE, offset + 3)


def _h264(units: list[bytes]) -> Kind:
    if any(len(unit) < 2 or unit[0] & 0xE0 for unit in units):  # the forbidden bit, or a reference
        return Kind()
    kinds = {unit[0] & 31 for unit in units}
    return Kind(H264_SLICE in kinds and kinds - {H264_SLICE} <= H264_HARMLESS)


def _hevc(units: list[bytes]) -> Kind:
    if any(len(unit) < 2 or unit[0] & 0x81 or unit[1] & 0xF8 for unit in units):  # forbidden bit, or another layer
        return Kind()
    kinds = {unit[0] >> 1 for unit in units}
    layer = max((unit[1] & 7 for unit in units), default=1) - 1
    slices = kinds & HEVC_NOT_REFERENCED
    return Kind(bool(slices) and kinds - slices <= HEVC_HARMLESS, layer)
