"""What the client sends: any text, as something that the database takes."""

from __future__ import annotations

import json

import pytest

from runner.extras.trainers.client import Item
from runner.extras.trainers.client.items import MAX_BYTES, MAX_ITEMS, calls
from runner.extras.trainers.client.sources import Entry, entry_of


def test_equal_content_has_an_equal_key() -> None:
    """And anything else another one."""
    one = Item(reference="r", candidate="c")
    assert one.key == Item(reference="r", candidate="c").key
    others = [
        Item(reference="rc", candidate=""),
        Item(reference="r", candidate="c", entry_point="Net"),
        Item(reference="r", candidate="c", settings={"inputs": 1}),
    ]
    assert len({item.key for item in (one, *others)}) == 4
    assert Item(reference="r", candidate="c", key="mine").key == "mine"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a\0b", "the candidate has a NUL character at position 1"),
        ("a\ud800", "the candidate has a lone surrogate at position 1"),
        (None, "the candidate is not a text"),
        (float("nan"), "the candidate is not a text"),
        ("é" * 600_000, "the candidate has 1200000 bytes, expected at most 1000000"),
    ],
)
def test_what_no_database_stores_goes_as_a_sentence(text: str, sentence: str) -> None:
    """Not the text itself; two such texts under one key are still told apart."""
    ((item,),) = calls([Item(reference="r", candidate=text, key="k")])
    sent = item.as_json()
    assert sent["invalid"] == sentence
    assert "candidate" not in sent
    assert len(json.dumps(sent)) < 1000
    assert sent["sha256"] != Item(reference="r", candidate=f"\0{text}", key="k").as_json()["sha256"]


def test_settings_are_sent_without_what_json_columns_refuse() -> None:
    """The database then says what is wrong with them."""
    sent = Item(reference="r", candidate="c", settings={"a\0": ["\ud800"]}).as_json()
    assert sent["settings"] == {"a�": ["�"]}
    assert (sent["reference"], sent["candidate"]) == ("r", "c")


def test_numbers_and_objects_that_json_lacks_are_sent_as_texts() -> None:
    """So that they are refused as a setting of their own item, and not as a call."""
    sent = Item(reference="r", candidate="c", settings={"a": float("nan"), "b": [-float("inf")], "c": {1}}).as_json()
    assert sent["settings"] == {"a": "nan", "b": ["-inf"], "c": "{1}"}
    assert json.loads(json.dumps(sent, allow_nan=False)) == sent
    plain = {"a": 1, "b": 0.5, "c": True, "d": None}
    assert Item(reference="r", candidate="c", settings=plain).as_json()["settings"] == plain


@pytest.mark.parametrize("key", [0, False, 0.0, "0", "x"])
def test_a_key_of_a_line_is_its_key(key: object) -> None:
    """Also where it is nothing as a truth value."""
    row = {"reference": "r", "candidate": "c", "key": key}
    entry = entry_of(row, "line 1")
    assert isinstance(entry, Entry)
    assert entry.item.key == str(key)


def test_portions_are_bounded() -> None:
    """By number and by size."""
    small = [Item(reference="r", candidate="c", key=str(n)) for n in range(2 * MAX_ITEMS + 1)]
    assert [len(part) for part in calls(small)] == [MAX_ITEMS, MAX_ITEMS, 1]
    large = [Item(reference="r", candidate="x" * 900_000, key=str(n)) for n in range(80)]
    assert all(sum(len(item.candidate) for item in part) <= MAX_BYTES for part in calls(large))
    assert [item for part in calls(large) for item in part] == large
