"""The steps before a daemon serves, in order, each repeated until it works.

First it registers the host's name. From then on it commits the results that an earlier process spooled, and renews
their leases, whatever else is missing. Then it gives back every other lease of that process and removes its containers.
Last comes the evaluation environment, which may take minutes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from runner import __version__
from runner.base.config import Config
from runner.base.errors import DatabaseUnavailableError, InfrastructureError
from runner.base.gpu_types import Registry
from runner.base.logs import get_logger
from runner.base.model import Slot
from runner.base.retry import Backoff
from runner.daemon.interfaces import Engine, JobEvaluator
from runner.daemon.monitoring.readiness import DATABASE, ENGINE, EVALUATION, Readiness, missing
from runner.daemon.monitoring.watchdog import LONG_TASK_LIMIT_S, STEP_LIMIT_S, Watchdog
from runner.daemon.outcomes.publisher import EventPublisher
from runner.daemon.outcomes.replay import SpoolReplayer
from runner.store import HostRecord, QueueStore

_log = get_logger(__name__)


class Startup:
    """The steps; `leave` ends the waiting for any of them. Belongs to the claiming thread."""

    def __init__(
        self,
        *,
        engine: Engine,
        check_database: Callable[[], object],
        check_disk: Callable[[], object],
        evaluator: JobEvaluator,
        replayer: SpoolReplayer,
        registry: Registry,
        host: HostRecord,
        readiness: Readiness,
        watchdog: Watchdog,
        publisher: EventPublisher,
    ) -> None:
        self._engine = engine
        self._check_database = check_database
        self._check_disk = check_disk
        self._evaluator = evaluator
        self._replayer = replayer
        self._registry = registry
        self._host = host
        self._readiness = readiness
        self._watchdog = watchdog
        self._publisher = publisher
        #: The name is ours.
        self.registered = False
        #: The database was away.
        self.saw_outage = False
        self._reaped = False

    def take_name(self, store: QueueStore, leave: threading.Event) -> bool:
        """Get the host's name, and hold the leases of spooled results; False: `leave` was set first.

        The name comes before the leases: only its owner may give back what runs in this name.
        """
        if not (
            self._until(leave, DATABASE, self._check_database, meanwhile=lambda _: self._clean_up())
            and self._until(leave, DATABASE, lambda: self.register(store), meanwhile=lambda _: self._clean_up())
        ):
            return False
        self._replayer.adopt()
        return True

    def take_over(
        self, store: QueueStore, leave: threading.Event, tell: Callable[[InfrastructureError], object]
    ) -> bool:
        """Clean up everything else that an earlier process left; False: `leave` was set first.

        `tell` gets what the host lacks, after each attempt.
        """
        return self._until(leave, DATABASE, lambda: self._recover(store)) and self._until(
            leave, ENGINE, self._clean_up, meanwhile=tell
        )

    def prepare(
        self, slots: Sequence[Slot], leave: threading.Event, tell: Callable[[InfrastructureError], object]
    ) -> bool:
        """Make sure that jobs can run here; otherwise as `take_over`."""

        def make() -> None:
            # On a full disk the environment cannot be made, and its error names no place.
            self._check_disk()
            self._evaluator.prepare(slots)

        return self._until(leave, EVALUATION, make, cap_s=60.0, meanwhile=tell)

    def register(self, store: QueueStore) -> None:
        """Announce this host and the GPU types it knows.

        Raises:
            HostNameTakenError: another daemon goes by its name.
            DatabaseUnavailableError: the database is away.
        """
        store.register_host(self._host)
        self.registered = True
        refused = store.sync_gpu_types(
            [(entry.name, entry.vendor.value, entry.aliases, entry.description) for entry in self._registry.all()]
        )
        if refused:
            _log.warning("gpu_types_not_published", gpu_types=refused, reason="another login's types have these names")

    def announce(self, store: QueueStore, host: HostRecord) -> None:
        """Write the changed host record; raises what `register` does."""
        self._host = host
        self.register(store)

    def unregister(self, store: QueueStore) -> None:
        """Remove this host from the database.

        Raises:
            DatabaseUnavailableError: the database is away.
        """
        store.unregister_host(self._host.name, instance=self._host.instance)

    def _clean_up(self) -> None:
        self._engine.check()
        if self._reaped:
            return
        left = self._engine.reap()
        self._reaped = True
        if left:
            _log.warning("old_containers_removed", count=left)

    def _recover(self, store: QueueStore) -> None:
        taken_back = store.recover(
            host=self._host.name, keep=self._replayer.keys(), died=True, instance=self._host.instance
        )
        for job in taken_back:
            self._publisher.reclaimed(job)
        if taken_back:
            _log.warning("old_jobs_requeued", count=len(taken_back))

    def _until(
        self,
        leave: threading.Event,
        what: str,
        action: Callable[[], object],
        *,
        cap_s: float = 5.0,
        meanwhile: Callable[[InfrastructureError], object] = lambda _: None,
    ) -> bool:
        """Repeat an action until it works; between two attempts do what needs not wait for it."""
        backoff = Backoff(cap_s=cap_s)
        while not leave.is_set():
            self._watchdog.expect(LONG_TASK_LIMIT_S)
            try:
                action()
            except InfrastructureError as error:
                self.saw_outage = self.saw_outage or isinstance(error, DatabaseUnavailableError)
                self._readiness.not_ready(missing(error, otherwise=what), reason=str(error))
                with suppress(InfrastructureError):
                    meanwhile(error)
                self._watchdog.expect(cap_s + STEP_LIMIT_S)
                backoff.wait(leave)
            else:
                self._watchdog.expect()
                if backoff.failures:
                    _log.info("available_now", what=what, attempts=backoff.failures + 1)
                return True
        return False


def host_record(
    config: Config,
    instance: str,
    slots: Sequence[Slot],
    gpu_types: Sequence[str],
    unusable: Mapping[str, str],
    *,
    key: str,
) -> HostRecord:
    """The host record of a daemon; `unusable` gives the reasons per slot, `key` signs receipts."""
    return HostRecord(
        name=config.host_name,
        version=__version__,
        slots=[
            {
                "name": slot.name,
                "gpu_type": slot.gpu_type,
                "cpus": list(slot.cpus),
                "devices": [device.uuid for device in slot.devices],
                "warm_containers": config.warm_containers,
                **({"quarantined": unusable[slot.name]} if slot.name in unusable else {}),
            }
            for slot in slots
        ],
        instance=instance,
        gpu_types=gpu_types,
        key=key,
    )
