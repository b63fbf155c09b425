"""Text from outside cannot control the terminal."""

import pytest

from gridprobe._util import one_line, printable


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("a\rb\u202ec", r"a\rb\u202ec"),
        ("\x1b[2J\n\x9b", r"\x1b[2J\n\x9b"),
        ("line\u2028paragraph\u2029", r"line\u2028paragraph\u2029"),
        ("half \udc80", r"half \udc80"),
        ("two  spaces", "two  spaces"),
        ("汉字 é 👩‍🚀", "汉字 é 👩‍🚀"),
    ],
)
def test_printable_escapes_control_characters(text: str, safe: str) -> None:
    assert printable(text) == safe


def test_one_line_also_folds_white_space() -> None:
    assert one_line("a\n\t b\x1b[31m\u202ec\x07") == "a b\\x1b[31m\\u202ec\\x07"
    assert one_line("half \udc80") == "half ?"
    assert one_line("汉字 é 👩‍🚀") == "汉字 é 👩‍🚀"
