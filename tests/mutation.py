"""Plain mutation: bytes overwritten, moved and cut, and JSON whose values are replaced by odd ones."""

import json
import random
from typing import Any

NUMBERS = (0, 1, -1, 127, 128, 255, 256, 32767, 65535, 2**31 - 1, -(2**31), 2**32 - 1, 2**63, 10**400)
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, -(2**70), 10**400, 0.5, -0.0, 1e308, -1e308, 5e-324),
    *(float("nan"), float("inf"), "", " ", "a", "A", "nan", "1e999", "\0", "\ud800", "\u2028", "\x1b[31m", "../x", "/"),
    *(
        "x" * 5000,
        "http://x/y",
        "data:,",
        "upload://0",
        "00:00:01.5",
        ":".join(["99"] * 400),
        [],
        {},
        [[]],
        [None],
        {"": None},
    ),
)
TOKENS = (
    *(
        b"\0",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"\xed\xa0\x80",
        b"\n\n",
        b"\r",
        b"-->",
        b"NaN",
        b"1e999",
        b"null",
        b"[" * 3000,
    ),
    *(b'{"a":' * 3000, b"9" * 5000, b"\xe2\x80\xa8", b'"', b",", b"\\ud800", b"moov", b"mdat", b"\xff\xff\xff\xff"),
)


def mutated(data: bytes, chance: random.Random, others: tuple[bytes, ...] = ()) -> bytes:
    """A copy with one to eight changes, of the JSON inside where there is some."""
    for _ in range(chance.choice((1, 1, 2, 4, 8))):
        if chance.random() < 0.6 and (changed := _json_changed(data, chance)) is not None:
            data = changed
        else:
            data = _bytes_changed(data, chance, others)
    return data


def _json_changed(data: bytes, chance: random.Random) -> bytes | None:
    """Change one value of a JSON document, or of one line of JSON Lines; None if there is no JSON."""
    lines = [data] if data.count(b"\n") < 2 or data[:1] == b"[" else data.split(b"\n")
    place = chance.randrange(len(lines))
    try:
        value = json.loads(lines[place])
    except (ValueError, RecursionError):
        return None
    try:
        lines[place] = json.dumps(_value_changed(value, chance)).encode()
    except (ValueError, RecursionError):  # an integer of 5,000 digits, a deep list
        return None
    return b"\n".join(lines)


def _value_changed(value: Any, chance: random.Random) -> Any:
    if isinstance(value, (dict, list)) and value and chance.random() < 0.85:
        key = chance.choice(list(value) if isinstance(value, dict) else range(len(value)))
        how = chance.random()
        if how < 0.1:
            del value[key]
        elif how < 0.15 and isinstance(value, dict):
            value[chance.choice(("", "id", "\ud800", "x" * 300))] = chance.choice(ODD)
        elif how < 0.2 and isinstance(value, list):
            value.extend(value[:1] * chance.choice((1, 2, 100)))
        else:
            value[key] = _value_changed(value[key], chance)
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool) and chance.random() < 0.5:
        return chance.choice((value + 1, value - 1, -value, value * 1000, chance.choice(NUMBERS)))
    return chance.choice(ODD)


def _bytes_changed(data: bytes, chance: random.Random, others: tuple[bytes, ...]) -> bytes:
    changed = bytearray(data)
    at, size = chance.randrange(len(data) + 1), chance.choice((1, 1, 2, 4, 8, 16, 64, 1000))
    how = chance.randrange(8)
    if how == 0:
        changed[at : at + size] = chance.randbytes(min(size, len(data) - at))
    elif how == 1:
        del changed[at : at + size]
    elif how == 2:
        changed[at:at] = chance.choice(TOKENS)
    elif how == 3:
        changed[at:at] = changed[at : at + size] * chance.choice((1, 2, 20))
    elif how == 4:
        del changed[at:]
    elif how == 5:
        number = chance.choice(NUMBERS) % 2**32
        changed[at : at + 4] = number.to_bytes(4, chance.choice(("big", "little")))
    elif how == 6 and others:
        other = chance.choice(others)
        start = chance.randrange(len(other) + 1)
        changed[at : at + size] = other[start : start + size]
    elif at < len(changed):
        changed[at] ^= 1 << chance.randrange(8)
    return bytes(changed)
