"""Whether the clock of an MPEG transport stream starts again within the file, as in joined recordings.

FFmpeg seeks by timestamps, so of two parts with the same timestamps only one is ever found.
"""

from gridprobe.video.files import VideoFile

__all__ = ["timestamps_restart"]

PACKET, SYNC = 188, 0x47
PLACES, BLOCK = 64, 128 * 1024
"""Where the clock is read: at the beginnings of so many equal parts of the file, or fewer, in so many bytes."""
WRAP = 1 << 33
"""The clock counts 90,000 ticks a second and starts again here, after 26 hours, which is no restart."""
SLACK = 90_000
"""Ticks by which the clock may go back."""


def timestamps_restart(file: VideoFile) -> bool:
    """Whether a clock of the file goes back between two of the places where it is read."""
    last: dict[int, int] = {}
    try:
        with open(file.path, "rb") as handle:
            for place in range(0, file.size, max(BLOCK, file.size // PLACES)):
                handle.seek(place)
                for stream, clock in _clocks(handle.read(BLOCK)):
                    before = last.get(stream, clock)
                    if SLACK < before - clock < WRAP // 2:
                        return True
                    last[stream] = clock
    except OSError:  # deleted in the meantime, which the next pass notices
        pass
    return False


def _clocks(block: bytes) -> list[tuple[int, int]]:
    """The program clock references in a block, with the numbers of their streams."""
    start = next((at for at in range(min(PACKET, len(block))) if _is_aligned(block, at)), None)
    found = []
    for at in range(start or 0, len(block) - 12 if start is not None else 0, PACKET):
        packet = block[at : at + 12]
        if packet[0] == SYNC and packet[3] & 0x20 and packet[4] >= 7 and packet[5] & 0x10:
            clock = int.from_bytes(packet[6:11], "big") >> 7
            found.append(((packet[1] & 0x1F) << 8 | packet[2], clock))
    return found


def _is_aligned(block: bytes, at: int) -> bool:
    return all(block[place] == SYNC for place in range(at, min(len(block), at + 5 * PACKET), PACKET))
