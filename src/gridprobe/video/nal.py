"""Which H.264 and HEVC packets hold an unreferenced picture, according to the headers of their NAL units.

A decoder can skip such pictures itself, but then it does not report a damaged reference that looks like one. So a
packet is droppable only if its units fill it to the byte and are all of a known kind.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

__all__ = ["Kind", "kind_rule", "recovery_rule"]

START_CODE = b"\0\0\1"
H264_SLICE, H264_HARMLESS = 1, frozenset({6, 9, 12})
"""A slice of a non-IDR picture; supplemental information, delimiter and filler."""
H264_IDR, H264_SEI, RECOVERY_POINT = 5, 6, 6
"""A picture that nothing before it is needed for; supplemental information; the kind of it that marks a refresh."""
HEVC_NOT_REFERENCED, HEVC_HARMLESS = frozenset({0, 2, 4, 6, 8}), frozenset({35, 38, 39, 40})
"""TRAIL_N, TSA_N, STSA_N, RADL_N and RASL_N; delimiter, filler and supplemental information."""


class Kind(NamedTuple):
    """What a packet's headers say."""

    droppable: bool = False
    """Whether no picture in the same temporal layer refers to it."""
    layer: int = 0
    """Its temporal layer; pictures in a higher layer may still refer to it."""


def kind_rule(codec: str, extradata: bytes | None) -> Callable[[memoryview], Kind] | None:
    """A function that classifies a stream's packets; None for other codecs.

    The extradata say whether units are prefixed with their length (MP4, Matroska) or with start codes.
    """
    if codec not in ("h264", "hevc"):
        return None
    classify, offset = (_h264, 4) if codec == "h264" else (_hevc, 21)
    if extradata and extradata[0] == 1 and len(extradata) > offset:
        size = (extradata[offset] & 3) + 1
        return lambda data: classify(list(_by_length(data, size)))
    return lambda data: classify(list(_by_start_code(bytes(data))))


def recovery_rule(codec: str, extradata: bytes | None) -> Callable[[memoryview], int] | None:
    """A function that says after how many frames decoding from a packet is right; None for codecs other than H.264.

    It is 0 for real keyframes. Intra refresh renews a strip of the picture in every frame instead: FFmpeg calls the
    packet where a round begins a keyframe too, but pictures are only whole when the round is over.
    """
    if codec != "h264":
        return None
    if extradata and extradata[0] == 1 and len(extradata) > 4:
        size = (extradata[4] & 3) + 1
        return lambda data: _recovery(list(_whole_by_length(data, size)))
    return lambda data: _recovery([memoryview(unit) for unit in bytes(data).split(START_CODE)[1:]])


def _recovery(units: list[memoryview]) -> int:
    if any(unit[:1] and unit[0] & 31 == H264_IDR for unit in units):
        return 0
    return max((_recovery_count(bytes(unit[1:])) for unit in units if unit[:1] and unit[0] & 31 == H264_SEI), default=0)


def _recovery_count(message: bytes) -> int:
    """The recovery_frame_cnt of a supplemental information unit; 0 if it has none."""
    message, at = message.replace(b"\0\0\3", b"\0\0"), 0
    while at + 2 < len(message):
        kind, at = _varied(message, at)
        size, at = _varied(message, at)
        if kind == RECOVERY_POINT:
            return _exp_golomb(message[at : at + size])
        at += size
    return 0


def _varied(message: bytes, at: int) -> tuple[int, int]:
    """A number written as 255, 255, …, rest; and where it ends."""
    value = 0
    while at < len(message) and message[at] == 255:
        value, at = value + 255, at + 1
    return value + (message[at] if at < len(message) else 0), at + 1


def _exp_golomb(payload: bytes) -> int:
    bits = "".join(f"{byte:08b}" for byte in payload[:8])
    zeros = len(bits) - len(bits.lstrip("0"))
    return int(bits[zeros : 2 * zeros + 1], 2) - 1 if len(bits) > 2 * zeros else 0


def _whole_by_length(data: memoryview, size: int) -> Iterator[memoryview]:
    offset = 0
    while offset + size < len(data):
        length = int.from_bytes(data[offset : offset + size], "big")
        yield data[offset + size : offset + size + length]
        offset += size + length


def _by_length(data: memoryview, size: int) -> Iterator[bytes]:
    """The first two bytes of every unit; b"" for a length that does not fit, then nothing more."""
    offset = 0
    while offset < len(data):
        length = int.from_bytes(data[offset : offset + size], "big")
        offset += size
        if not 2 <= length <= len(data) - offset:
            yield b""
            return
        yield bytes(data[offset : offset + 2])
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
