"""Text of strangers must not command the terminal."""

from __future__ import annotations

import pytest

from runner.base.safe import one_line, printable, tail


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b[2J\x1b[1;1Hroot#", "\\x1b[2J\\x1b[1;1Hroot#"),
        ("\x1b]0;owned\x07", "\\x1b]0;owned\\x07"),
        ("a\rb", "a\\x0db"),
        ("\x9b31m", "\\x9b31m"),
        ("abc\u202edef", "abc\\u202edef"),
        ("bell\a back\b del\x7f", "bell\\x07 back\\x08 del\\x7f"),
        ("tag\U000e0001", "tag\\U000e0001"),
        ("half \ud800", "half \\ud800"),
        ("line\u2028separator", "line\\u2028separator"),
        ("x\u3164 = 1", "x\\u3164 = 1"),
        ("\ufe00\U000e0100x\ufe0f\ufe0f", "\\ufe00\\U000e0100x\\ufe0f\\ufe0f"),
    ],
)
def test_control_and_format_characters_become_visible(hostile: str, shown: str) -> None:
    """Escape sequences, overwriting, direction overrides and surrogates are printed as escapes."""
    assert printable(hostile) == shown
    assert printable(hostile).encode()


def test_ordinary_text_is_untouched() -> None:
    """Newlines, tabs and other scripts stay; Windows line ends become plain ones."""
    text = "Größe\t3 µs\n日本 你好 ❤\ufe0f\n"
    assert printable(text) == text
    assert printable("a\r\nb") == "a\nb"


def test_a_cell_stays_one_line_and_a_tail_says_how_much_is_missing() -> None:
    """A message with newlines cannot fake further rows; the last lines are kept, in order, and the rest is counted."""
    assert "\n" not in one_line("fail\nrank 1 mallory\t0.1")
    assert one_line("a\nb") == "a⏎ b"
    text = "".join(f"line {number}\n" for number in range(100))
    assert tail(text, lines=2) == ("line 98\nline 99", 98)
    assert tail("only\n", lines=5) == ("only", 0)
