"""Texts cut by their bytes as HTML, and the budget of a page."""

from __future__ import annotations

import html

import pytest

from runner.base.safe import visible
from runner.extras.gateway.sizes import Budget, cut, cut_start

TEXTS = ["", "plain", "<" * 500, '"&' * 300, "ä" * 500, "语" * 500, "😀" * 200, "a<b&c" * 100, "\ud800" * 50]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("most", [4, 5, 7, 60, 61, 62, 63, 64, 10_000])
def test_a_cut_text_has_at_most_so_many_bytes_and_is_whole_html(text: str, most: int) -> None:
    """At its beginning and at its end; no character and no entity is halved."""
    readable = visible(text)
    for made, part in ((cut(text, most), str.startswith), (cut_start(text, most), str.endswith)):
        assert len(made.encode()) <= most
        back = html.unescape(str(made))
        assert "<" not in made
        assert part(readable, back.strip("…"))
        if back != readable:
            assert "…" in made


def test_what_fits_is_not_touched() -> None:
    """But escaped."""
    assert str(cut("a < b", 60)) == str(cut_start("a < b", 60)) == "a &lt; b"


def test_a_room_is_shared() -> None:
    """Texts and lines take what is left; what does not fit is left out."""
    budget = Budget(1000)
    assert len(budget.text("x" * 5000, 700)) <= 700
    assert 0 < len(budget.end("y" * 5000, 700)) <= 1000 - 700
    assert budget.text("z" * 100, 100) == ""
    assert Budget(100).lines([30, 40, 50], lambda item: item) == [30, 40]
