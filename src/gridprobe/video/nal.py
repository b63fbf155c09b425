"""Which packets of H.264 and HEVC hold a picture that no other refers to, told from the headers of their NAL units.

A decoder can be told to skip such pictures, but then it also keeps silent about a damaged reference that looks like
one. So a packet counts as droppable only if its units fit it to the byte and are all of a known kind.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

__all__ = ["Kind", "kind_rule"]

START_CODE = b"\0\0\1"
H264_SLICE, H264_HARMLESS = 1, frozenset({6, 9, 12})
"""A slice of a picture that is not an IDR; supplemental information, delimiter and filler."""
HEVC_NOT_REFERENCED, HEVC_HARMLESS = frozenset({0, 2, 4, 6, 8}), frozenset({35, 38, 39, 40})
"""TRAIL_N, TSA_N, STSA_N, RADL_N and RASL_N; delimiter, filler and supplemental information."""


class Kind(NamedTuple):
    """What a packet's headers say."""

    droppable: bool = False
    """Whether no picture of the same temporal layer refers to it."""
    layer: int = 0
    """Its temporal layer; pictures of a higher one may still refer to it."""


def kind_rule(codec: str, extradata: bytes | None) -> Callable[[bytes], Kind] | None:
    """The rule for a stream, None for codecs that are not looked into.

    The extradata say whether units are prefixed by their length (MP4, Matroska) or by start codes.
    """
    if codec not in ("h264", "hevc"):
        return None
    judge, at = (_h264, 4) if codec == "h264" else (_hevc, 21)
    if extradata and extradata[0] == 1 and len(extradata) > at:
        size = (extradata[at] & 3) + 1
        return lambda data: judge(list(_by_length(data, size)))
    return lambda data: judge(list(_by_start_code(data)))


def _by_length(data: bytes, size: int) -> Iterator[bytes]:
    """The first two bytes of every unit; nothing where the lengths do not add up."""
    at = 0
    while at < len(data):
        length = int.from_bytes(data[at : at + size], "big")
        at += size
        if not 2 <= length <= len(data) - at:
            yield b""
            return
        yield data[at : at + 2]
        at += length


def _by_start_code(data: bytes) -> Iterator[bytes]:
    at = data.find(START_CODE)
    if at < 0 or data[:at].strip(b"\0"):
        yield b""
    while at >= 0:
        yield data[at + 3 : at + 5]
        at = data.find(START_CODE, at + 3)


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
