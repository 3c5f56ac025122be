"""Row groups, and digests of rows."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from runner.extras.data import tables
from runner.extras.data.tables import Digest, groups


def pieces(sizes: list[int], chance: random.Random) -> list[pa.Table]:
    """Rows with code of these sizes, in pieces of any length."""
    whole = pa.table({"row": list(range(len(sizes))), "code_bytes": pa.array(sizes, pa.int64())})
    cuts = sorted(chance.choices(range(len(sizes) + 1), k=5))
    return [whole.slice(first, last - first) for first, last in zip([0, *cuts], [*cuts, len(sizes)], strict=True)]


@pytest.mark.parametrize("code_bytes", [None, 100])
def test_groups_depend_on_the_rows_alone(monkeypatch: pytest.MonkeyPatch, code_bytes: int | None) -> None:
    """Whatever pieces they come in; no group has more rows or bytes than it may, but for a single row."""
    monkeypatch.setattr(tables, "GROUP_ROWS", 7)
    chance = random.Random(3)  # noqa: S311 - the same sizes each time
    for count in (0, 1, 7, 14, 60):
        sizes = [chance.choice((0, 1, 30, 70, 300)) for _ in range(count)]
        cuts = [[group.to_pydict() for group in groups(pieces(sizes, chance), code_bytes=code_bytes)] for _ in range(5)]
        assert all(cut == cuts[0] for cut in cuts)
        assert [row for group in cuts[0] for row in group["row"]] == list(range(count))
        for group in cuts[0]:
            assert 1 <= len(group["row"]) <= 7
            assert code_bytes is None or len(group["row"]) == 1 or sum(group["code_bytes"]) <= code_bytes


def test_a_digest_is_of_the_rows_alone() -> None:
    """Whatever pieces they come in; another value, another order or a null gives another one."""
    chance = random.Random(3)  # noqa: S311 - the same sizes each time
    sizes = [chance.randint(0, 9) for _ in range(tables._DIGEST_ROWS * 2 + 5)]

    def digest(rows: list[pa.Table]) -> str:
        made = Digest()
        for piece in rows:
            made.add(piece)
        return made.hex()

    whole = pa.table({"row": list(range(len(sizes))), "code_bytes": pa.array(sizes, pa.int64())})
    changed = whole.set_column(1, "code_bytes", pa.array([None, *sizes[1:]], pa.int64()))
    assert {digest(pieces(sizes, chance)) for _ in range(3)} == {digest([whole])}
    others = (whole.slice(1), changed, whole.take([*range(1, len(sizes)), 0]))
    assert len({digest([each]) for each in (whole, *others)}) == 4
