"""What an export notes of its snapshot, so that the next one need not read everything again, and is exact all the same.

A row of PostgreSQL carries the transaction that wrote it. All transactions before the oldest one that ran at the time
of an export had ended. So a row that an earlier one wrote was there, as it is. Where a block of submissions has no
newer row, and as many rows as then, its rows are the same: none has come, and by the count none has gone.

That holds within one history of one database, for which see `Snapshot.watermark`, and only for a snapshot that sees
all that the older one saw.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from runner.data.tables import block_of

_HALF: Final = 2**31
_ALL: Final = 2**32


@dataclass(frozen=True, kw_only=True)
class Seen:
    """The transactions that a snapshot sees: those before `until`, but for those that ran."""

    since: int
    until: int
    running: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> Seen:
        """From PostgreSQL's text. Raises ValueError for any other."""
        first, last, running = text.split(":")
        return cls(since=int(first), until=int(last), running=frozenset(int(one) for one in running.split(",") if one))

    def covers(self, older: Seen) -> bool:
        """Whether it sees all that the older one saw, and is not so much younger that numbers may repeat."""
        return (
            self.until >= older.until
            and {one for one in self.running if one < older.until} <= older.running
            and self.until - older.since < _HALF
        )

    @property
    def number(self) -> int:
        """`since` as rows carry it."""
        return self.since % _ALL


@dataclass(frozen=True, kw_only=True)
class Watermark:
    """Notes about an export's runs."""

    seen: Seen
    text: str
    history: str
    #: Proves that hosts are named with the same key; no key: None.
    key: str | None
    #: The first submission on each host, in the order of the hosts' numbers.
    hosts: Sequence[int]
    #: Rows of leaderboards and their settings.
    leaderboards: int
    #: Block -> rows that its submissions and runs depend on, and the digest of its runs; None: it has none.
    blocks: Mapping[int, tuple[int, str | None]]
    #: Block of codes -> how many there are.
    codes: Mapping[int, int]

    def to_json(self) -> dict[str, Any]:
        """As the manifest has it."""
        return {
            "seen": self.text,
            "history": self.history,
            "key": self.key,
            "hosts": list(self.hosts),
            "leaderboards": self.leaderboards,
            "blocks": [[block, held, digest] for block, (held, digest) in sorted(self.blocks.items())],
            "codes": [[block, held] for block, held in sorted(self.codes.items())],
        }

    @classmethod
    def from_json(cls, found: Any) -> Watermark | None:  # noqa: ANN401 - from a file
        """From a manifest; None if it has none, or one that cannot be read."""
        try:
            return cls(
                seen=Seen.parse(found["seen"]),
                text=found["seen"],
                history=found["history"],
                key=found["key"],
                hosts=[int(first) for first in found["hosts"]],
                leaderboards=int(found["leaderboards"]),
                blocks={int(block): (int(held), digest) for block, held, digest in found["blocks"]},
                codes={int(block): int(held) for block, held in found["codes"]},
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            return None


def key_proof(key: bytes | None) -> str | None:
    """A hash that only exports with the same key share."""
    return None if key is None else hmac.new(key, b"kernel-runner watermark", hashlib.sha256).hexdigest()


def _comparable(old: Watermark | None, new: Watermark, versions: Mapping[int | None, tuple[int, int]]) -> bool:
    """Whether the older one is of the same history, and nothing that all rows depend on has changed."""
    return (
        old is not None
        and (old.history, old.key) == (new.history, new.key)
        and new.seen.covers(old.seen)
        and versions.get(None, (0, 0)) == (old.leaderboards, 0)
    )


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Where rows of submissions may be others than in the older export."""

    #: Blocks of submissions to which rows came and nothing else happened.
    appended: frozenset[int]
    #: All other blocks that changed, also those that are gone.
    rewritten: frozenset[int]
    #: Blocks of codes in which more happened than that codes came.
    code_blocks: frozenset[int]


def changes(
    old: Watermark | None,
    new: Watermark,
    versions: Mapping[int | None, tuple[int, int]],
    of_codes: Mapping[int, tuple[int, int]],
) -> Changes | None:
    """What may have changed; None: everything. `versions`, `of_codes`: since the older one's `seen.number`.

    The rows of a block that are not newer were there, as they are. Where they are as many as all that were there, none
    of those was changed or has gone.
    """
    if old is None or not _comparable(old, new, versions):
        return None
    appended, rewritten = set(), set()
    for block in old.blocks.keys() | {block for block in versions if block is not None}:
        before, _ = old.blocks.get(block, (0, None))
        held, newer = versions.get(block, (0, 0))
        if held - newer != before:
            rewritten.add(block)
        elif newer:
            appended.add(block)
    moved = {
        block
        for block in old.codes.keys() | of_codes.keys()
        if of_codes.get(block, (0, 0))[0] - of_codes.get(block, (0, 0))[1] != old.codes.get(block, 0)
    }
    return Changes(appended=frozenset(appended), rewritten=frozenset(rewritten), code_blocks=frozenset(moved))


def unchanged(old: Watermark | None, new: Watermark, versions: Mapping[int | None, tuple[int, int]]) -> frozenset[int]:
    """The blocks whose runs the older export has as they are. `versions`: since the older one's `seen.number`."""
    if old is None or not _comparable(old, new, versions):
        return frozenset()
    same = {block for block, (held, _) in old.blocks.items() if versions.get(block) == (held, 0)}
    if old.key is None:
        # A host that is numbered otherwise now is in no block before that of its first run.
        first = _first_renumbered(old.hosts, new.hosts, same)
        same = {block for block in same if first is None or block < first}
    return frozenset(same)


def _first_renumbered(old: Sequence[int], new: Sequence[int], same: set[int]) -> int | None:
    """The first block that may name a host otherwise."""
    moved = [
        min(block_of(first) for first in pair)
        for pair in zip(old, new, strict=False)
        if pair[0] != pair[1] or block_of(pair[0]) not in same
    ]
    moved += [block_of(first) for first in old[len(new) :]]
    return min(moved, default=None)
