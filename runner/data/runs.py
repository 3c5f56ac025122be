"""`runs.parquet` in the making: a row group per block of submissions; unchanged ones come from the old file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from runner.data.arrow import cast
from runner.data.splice import Encoded
from runner.data.tables import BLOCK, RUNS, Digest, Writer, by_block

#: Reads the runs of submissions from the first to the last of these ids.
Read = Callable[[int, int], Iterable[pa.RecordBatch]]
#: The last id that a submission can have.
_LAST = 2**31 - 1


def ranges(known: Iterable[int], last_block: int) -> Iterator[tuple[int, int]]:
    """The first and last submission of each stretch between the blocks that are known; the last has no end."""
    first = 0
    for block in sorted(known):
        if block > first:
            yield first * BLOCK, block * BLOCK - 1
        first = block + 1
    if first <= last_block or not first:
        yield first * BLOCK, _LAST


class RunsFile:
    """Writes the file, block by block."""

    def __init__(self, path: Path, host: Callable[[str | None], str | None], progress: Callable[[int], None]) -> None:
        self._path = path
        self._host = host
        self._progress = progress
        #: Block -> digest of its rows.
        self.digests: dict[int, str] = {}

    def write(
        self,
        *,
        read: Read,
        old: Path | None,
        known: Mapping[int, str | None],
        old_blocks: Sequence[int],
        last_block: int,
    ) -> Writer:
        """Write it.

        Args:
            read: reads runs from the database.
            old: the older export's file.
            known: the blocks that are taken from there, with the digests of their rows.
            old_blocks: the block of each of its row groups.
            last_block: the last block that may have runs.
        """
        encoded = Encoded(old) if old is not None and known else None
        try:
            with Writer(self._path, RUNS) as writer:
                after = 0
                for first, last in ranges(known, last_block):
                    self._copy(writer, encoded, old_blocks, known, range(after, first // BLOCK))
                    self._read(writer, read(first, last))
                    after = (last + 1) // BLOCK
                self._copy(writer, encoded, old_blocks, known, range(after, max(known, default=-1) + 1))
        finally:
            if encoded is not None:
                encoded.close()
        return writer

    def _copy(
        self,
        writer: Writer,
        encoded: Encoded | None,
        old_blocks: Sequence[int],
        known: Mapping[int, str | None],
        blocks: range,
    ) -> None:
        for number, block in enumerate(old_blocks):
            if encoded is not None and block in blocks and block in known:
                digest = known[block]
                assert digest is not None  # noqa: S101 - it has a row group
                writer.copy(encoded.group(number))
                self.digests[block] = digest

    def _read(self, writer: Writer, batches: Iterable[pa.RecordBatch]) -> None:
        waiting: list[pa.Table] = []
        current: int | None = None
        done = 0
        for batch in batches:
            for block, some in by_block(self._shown(cast(batch, RUNS))):
                if block != current:
                    self._finish(writer, current, waiting)
                    current, waiting = block, []
                waiting.append(some)
            done += batch.num_rows
            self._progress(done)
        self._finish(writer, current, waiting)

    def _finish(self, writer: Writer, block: int | None, waiting: Sequence[pa.Table]) -> None:
        if block is not None:
            rows = pa.concat_tables(waiting).combine_chunks()
            digest = Digest()
            digest.add(rows)
            self.digests[block] = digest.hex()
            writer.group(rows)

    def _shown(self, rows: pa.Table) -> pa.Table:
        """The rows with what is shown of their hosts."""
        number = RUNS.get_field_index("host")
        hosts = rows.column(number).combine_chunks()
        names = pc.unique(hosts)
        shown = pa.array([self._host(name) for name in names.to_pylist()], RUNS.field(number).type)
        return rows.set_column(number, RUNS.field(number), shown.take(pc.index_in(hosts, names)))
