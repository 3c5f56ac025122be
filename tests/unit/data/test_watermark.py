"""When runs of an older export may be taken as they are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runner.data.runs import ranges
from runner.data.watermark import Changes, Seen, Watermark, changes, key_proof, unchanged

BLOCK = 4096


def mark(seen: str = "100:100:", **changes: object) -> Watermark:
    """Of three blocks with five rows each and two hosts, first seen in blocks 0 and 1."""
    made = Watermark(
        seen=Seen.parse(seen),
        text=seen,
        history="one",
        key=None,
        hosts=[7, BLOCK + 3],
        leaderboards=2,
        blocks={0: (5, "a"), 1: (5, "b"), 2: (5, "c")},
        codes={0: 9, 1: 9},
    )
    return replace(made, **changes)  # type: ignore[arg-type]


SAME = {None: (2, 0), 0: (5, 0), 1: (5, 0), 2: (5, 0)}


def test_what_nothing_wrote_to_is_unchanged() -> None:
    """And what was written to, or lost a row, is not; a new block is not known."""
    new = mark("200:200:")
    assert unchanged(mark(), new, SAME) == {0, 1, 2}
    assert unchanged(mark(), new, {**SAME, 2: (5, 1)}) == {0, 1}
    assert unchanged(mark(), new, {**SAME, 2: (4, 0), 3: (9, 9)}) == {0, 1}
    assert unchanged(mark(), new, {key: value for key, value in SAME.items() if key != 2}) == {0, 1}
    assert unchanged(None, new, SAME) == frozenset()


def test_a_changed_leaderboard_changes_everything() -> None:
    """Its demand decides which scores count."""
    assert unchanged(mark(), mark("200:200:"), {**SAME, None: (2, 1)}) == frozenset()
    assert unchanged(mark(), mark("200:200:"), {**SAME, None: (3, 0)}) == frozenset()


CODES = {0: (9, 0), 1: (9, 0)}


def test_blocks_that_only_grew_are_told_from_those_that_changed() -> None:
    """A new row; a row that was written again or has gone; a block that has gone; codes that came, and that changed."""
    new = mark("200:200:")

    def found(versions: dict[int | None, tuple[int, int]], codes: dict[int, tuple[int, int]]) -> tuple[set[int], ...]:
        told = changes(mark(), new, versions, codes)
        assert told is not None
        return set(told.appended), set(told.rewritten), set(told.code_blocks)

    assert found(SAME, CODES) == (set(), set(), set())
    assert found({**SAME, 2: (7, 2), 3: (4, 4)}, {**CODES, 1: (12, 3), 2: (1, 1)}) == ({2, 3}, set(), set())
    assert found({**SAME, 1: (5, 1), 2: (4, 0)}, CODES) == (set(), {1, 2}, set())
    # A row that was there came with one that has gone since.
    assert found({**SAME, 2: (5, 1), 3: (4, 3)}, {**CODES, 1: (9, 1)}) == (set(), {2, 3}, {1})
    assert found({key: value for key, value in SAME.items() if key != 2}, {0: (9, 0)}) == (set(), {2}, {1})
    assert changes(None, new, SAME, CODES) is None
    assert changes(mark(), new, {**SAME, None: (2, 1)}, CODES) is None
    assert changes(mark(), mark("200:200:", history="two"), SAME, CODES) is None
    assert Changes(appended=frozenset(), rewritten=frozenset(), code_blocks=frozenset()) == changes(
        mark(), new, SAME, CODES
    )


@pytest.mark.parametrize("change", [{"history": "two"}, {"key": "k"}])
def test_another_history_or_key_has_nothing_in_common(change: dict[str, object]) -> None:
    """After a restore, or on another server; hosts are named otherwise with another key."""
    assert unchanged(mark(), mark("200:200:", **change), SAME) == frozenset()


@pytest.mark.parametrize(
    ("older", "newer", "covers"),
    [
        ("100:100:", "100:100:", True),
        ("90:100:90,95", "100:110:", True),
        ("90:100:90,95", "95:110:95,105", True),
        # The newer one does not see a transaction that the older one saw.
        ("90:100:90", "95:110:95", False),
        # It is the older one, or so much younger that numbers repeat.
        ("100:100:", "99:99:", False),
        ("100:100:", f"{2**31 + 100}:{2**31 + 100}:", False),
        ("100:100:", f"{2**31 + 99}:{2**31 + 99}:", True),
    ],
)
def test_a_snapshot_that_saw_less_is_no_younger_one(older: str, newer: str, *, covers: bool) -> None:
    """As that of a server that was set back."""
    assert Seen.parse(newer).covers(Seen.parse(older)) is covers
    assert bool(unchanged(mark(older), mark(newer), SAME)) is covers


def test_a_host_with_another_number_changes_the_blocks_behind_it() -> None:
    """Without a key, hosts are numbered in the order of their first runs."""
    new = mark("200:200:")
    # A new host at the end changes no other.
    assert unchanged(mark(), replace(new, hosts=[7, BLOCK + 3, 2 * BLOCK]), SAME) == {0, 1, 2}
    # One between the two renumbers the second; one that is gone may renumber those behind it.
    assert unchanged(mark(), replace(new, hosts=[7, 9, BLOCK + 3]), SAME) == frozenset()
    assert unchanged(mark(), replace(new, hosts=[7, BLOCK + 9]), SAME) == {0}
    assert unchanged(mark(), replace(new, hosts=[7]), SAME) == {0}
    # The run that was a host's first may be another host's now.
    assert unchanged(mark(), new, {**SAME, 1: (5, 1)}) == {0}
    assert unchanged(mark(key="k"), replace(new, key="k"), {**SAME, 1: (5, 1)}) == {0, 2}


def test_a_watermark_survives_the_manifest() -> None:
    """And what is none is no watermark."""
    made = mark("90:100:90,95")
    assert Watermark.from_json(made.to_json()) == made
    for strange in (None, 5, {}, {**made.to_json(), "seen": "x"}, {**made.to_json(), "blocks": [1]}):
        assert Watermark.from_json(strange) is None


def test_a_key_is_not_in_its_proof() -> None:
    """Two keys have two."""
    assert key_proof(None) is None
    assert key_proof(b"k" * 16) != key_proof(b"l" * 16)


@pytest.mark.parametrize(
    ("known", "last", "expected"),
    [
        ([], -1, [(0, 2**31 - 1)]),
        ([], 3, [(0, 2**31 - 1)]),
        ([0, 1], 1, []),
        ([0, 1], 2, [(2 * BLOCK, 2**31 - 1)]),
        ([1, 3], 5, [(0, BLOCK - 1), (2 * BLOCK, 3 * BLOCK - 1), (4 * BLOCK, 2**31 - 1)]),
    ],
)
def test_what_is_not_known_is_read_in_stretches(known: list[int], last: int, expected: list[tuple[int, int]]) -> None:
    """The last one has no end."""
    assert list(ranges(known, last)) == expected
