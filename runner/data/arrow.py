"""Reads a snapshot of the database as Arrow: PostgreSQL's binary COPY, decoded by the ADBC driver, in constant memory.

Beside the connection that holds the snapshot, so that several statements run at once and see the same state.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Final, Self

import adbc_driver_manager
import adbc_driver_postgresql
import pyarrow as pa

from runner.errors import DatabaseUnavailableError
from runner.store.dataset import CONFLICT, SETTINGS, address

#: Bytes of rows that the driver collects before it hands them over.
_BATCH_BYTES: Final = 2**20
#: The last: the connection that shared the snapshot was ended.
_CONFLICT: Final = re.compile(
    r"conflict with recovery|SQLSTATE:? 40001|terminating connection|snapshot \S+ does not exist"
)


class Reader:
    """A connection that sees a snapshot of another one; for one thread."""

    def __init__(self, dsn: str, snapshot: str) -> None:
        """`snapshot`: what `Snapshot.shared` returned.

        Raises:
            DatabaseUnavailableError: the database cannot be reached, or the snapshot is gone.
        """
        uri = address(dsn)
        #: What the statement under way holds open.
        self._running = ExitStack()
        with _translated():
            self._database = adbc_driver_manager.AdbcDatabase(driver=adbc_driver_postgresql._driver_path(), uri=uri)  # noqa: SLF001 - the documented door needs pandas
            self._connection = adbc_driver_manager.AdbcConnection(self._database)
            self._run("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            self._run(f"SET TRANSACTION SNAPSHOT '{snapshot}'")
            self._run(SETTINGS.decode())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Where an error ended the reading, a statement is still open, and a connection with one cannot be closed.
        self._running.close()
        self._connection.close()
        self._database.close()

    def batches(self, statement: str) -> Iterator[pa.RecordBatch]:
        """The rows of a statement, in its order.

        Raises:
            DatabaseUnavailableError: the server went away, or a replica had to cancel the statement.
        """
        with _translated(), ExitStack() as running:
            self._running = running
            prepared = running.enter_context(adbc_driver_manager.AdbcStatement(self._connection))
            prepared.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(_BATCH_BYTES)})
            prepared.set_sql_query(statement)
            stream, _ = prepared.execute_query()
            yield from running.enter_context(pa.RecordBatchReader.from_stream(stream))

    def _run(self, statement: str) -> None:
        with adbc_driver_manager.AdbcStatement(self._connection) as prepared:
            prepared.set_sql_query(statement)
            prepared.execute_update()


@contextmanager
def _translated() -> Iterator[None]:
    """Turns the driver's errors into ours."""
    try:
        yield
    except (adbc_driver_manager.Error, pa.ArrowException, OSError) as error:
        text = str(error)
        if _CONFLICT.search(text):
            raise DatabaseUnavailableError(f"{CONFLICT} ({_first_line(text)})") from error
        raise DatabaseUnavailableError(f"the export cannot read the database: {_first_line(text)}") from error


def _first_line(text: str) -> str:
    """What the server said, without the statement."""
    return text.partition("\n")[0].removeprefix("IO: ").strip()


def cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    """A batch with the columns and types of a schema; times are microseconds since 1970 in it."""
    arrays = []
    for field in schema:
        column = batch.column(batch.schema.get_field_index(field.name))
        if pa.types.is_timestamp(field.type):
            column = column.cast(pa.int64())
        arrays.append(column.cast(field.type))
    return pa.Table.from_arrays(arrays, schema=schema)
