"""What a result may hold, and what of it reaches PostgreSQL."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from runner.store.clean import to_jsonb


def written(value: object) -> object:
    """What is sent for a value, read again."""
    sent = to_jsonb(value)
    assert sent is not None
    return json.loads(sent.obj)


@pytest.mark.parametrize(
    ("value", "clean"),
    [
        ({"a": ["ü", 1, 0.1, None, True]}, {"a": ["ü", 1, 0.1, None, True]}),
        (["a\x00b"], ["a\ufffdb"]),
        ({"\x00": 1}, {"\ufffd": 1}),
        (["\ud800"], ["\ufffd"]),
        ([float("nan")], ["nan"]),
        (["\\u0000"], ["\\u0000"]),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
    ],
    ids=["fit", "a NUL", "a NUL in a key", "a lone surrogate", "NaN", "what only looks like a NUL", "a moment"],
)
def test_each_thing_that_postgresql_does_not_take_is_replaced(value: object, clean: object) -> None:
    """Whichever of them it is, and nothing else is touched."""
    assert written(value) == clean


def test_what_json_has_no_word_for_is_refused() -> None:
    """A bug in a result, not a value of a submission."""
    with pytest.raises(TypeError, match="bytes does not belong into a result"):
        to_jsonb({"a": b""})
