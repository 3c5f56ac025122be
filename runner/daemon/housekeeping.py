"""Has the database delete what is kept for a limited time: artifacts, evidence, the record of events.

Owns when that happens and how long records are kept; the store decides which rows that are. Every daemon does it, and
none has to.
"""

from __future__ import annotations

import threading
from dataclasses import asdict
from typing import Final

from runner.base.config import Config
from runner.base.errors import InfrastructureError
from runner.base.logs import get_logger
from runner.base.retry import between_s
from runner.daemon.interfaces import StoreFactory

_log = get_logger(__name__)

#: Each daemon cleans up about once an hour, at random times.
PERIOD_S: Final = 3600.0
#: The most rows of one kind that one statement deletes, which keeps it short.
BATCH: Final = 500
_DAY_S: Final = 86400.0


class Housekeeper:
    """`run` is the body of its thread."""

    def __init__(self, store_factory: StoreFactory, config: Config) -> None:
        self._store_factory = store_factory
        self._config = config

    def run(self, stop: threading.Event) -> None:
        """Clean up about every hour until `stop` is set."""
        while not stop.wait(between_s(0.5 * PERIOD_S, 1.5 * PERIOD_S)):
            self.tidy(stop)

    def tidy(self, stop: threading.Event) -> None:
        """Delete old records, batch by batch, until none is left. A failure is harmless: the next hour tries again."""
        store = self._store_factory("reap")
        removed: dict[str, int] = {}
        try:
            while not stop.is_set():
                counts = asdict(store.reap(keep_s=self._config.retention_days * _DAY_S, limit=BATCH))
                removed = {kind: removed.get(kind, 0) + count for kind, count in counts.items()}
                # A batch of large files is short of BATCH although more are due.
                if not any(counts.values()):
                    break
        except InfrastructureError as error:
            _log.warning("housekeeping_failed", error=str(error))
        except Exception:  # noqa: BLE001 - logged; no job depends on it
            _log.exception("housekeeping_failed")
        finally:
            store.close()
        if any(removed.values()):
            _log.info("old_records_removed", **removed)
