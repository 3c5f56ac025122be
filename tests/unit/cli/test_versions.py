"""Version floors of runc and containerd."""

from __future__ import annotations

import pytest

from runner.cli.versions import below_floor, parse_version


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1.1.5+ds1", (1, 1, 5)),
        ("v2.0.7", (2, 0, 7)),
        ("1.6.20~ds1", (1, 6, 20)),
        ("runc version 1.3", (1, 3, 0)),
        ("1.3.3-rc.1", (1, 3, 2)),
        ("unknown", None),
    ],
)
def test_the_version_is_found_in_what_engines_report(text: str, expected: tuple[int, int, int] | None) -> None:
    """Distribution suffixes, prefixes and pre-releases do not hide the number."""
    assert parse_version(text) == expected


@pytest.mark.parametrize(
    ("component", "text", "is_old"),
    [
        *(("runc", text, True) for text in ("1.1.5+ds1", "1.2.7", "1.3.0", "1.3.3-rc.1", "0.9")),
        # The floor itself and later series; what has no floor or no number is not judged.
        *(("runc", text, False) for text in ("1.2.8", "1.3.3", "1.4.0", "HEAD-abcdef")),
        *(("containerd", "1.7.29", False), ("containerd", "2.2.0", False), ("docker-init", "0.19.0", False)),
    ],
)
def test_an_old_version_is_named_with_its_floor(component: str, text: str, *, is_old: bool) -> None:
    """Every series has its own floor, and the message carries version and advisory."""
    message = below_floor(component, text)
    assert (message is not None) is is_old
    if message is not None:
        assert text in message
        assert "1.2.8 or 1.3.3" in message
        assert "CVE-2025-31133" in message
