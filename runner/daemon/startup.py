"""What a daemon does before it serves, in order, each step again until it works.

First the host's name, and with it the results that an earlier process spooled: from then on they are delivered and
their leases renewed, whatever else is missing. Then every other lease of that process is given back and its containers
are removed. Only then comes what may take minutes, the evaluation environment. Called by the loop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from runner import __version__
from runner.backoff import Backoff
from runner.config import Config
from runner.daemon.delivery import Delivery
from runner.daemon.ports import Engine, Evaluates
from runner.daemon.pulse import CHORE_S, STEP_S, Pulse
from runner.daemon.readiness import DATABASE, ENGINE, EVALUATION, Readiness, missing
from runner.errors import DatabaseUnavailableError, InfrastructureError
from runner.gpus import Registry
from runner.logs import get_logger
from runner.model import Slot
from runner.store import HostRecord, Reclaimed, Store

_log = get_logger(__name__)


class Startup:
    """The steps; `leave` ends the waiting for any of them. Belongs to the loop's thread."""

    def __init__(
        self,
        *,
        engine: Engine,
        check_database: Callable[[], object],
        evaluator: Evaluates,
        delivery: Delivery,
        registry: Registry,
        host: HostRecord,
        readiness: Readiness,
        pulse: Pulse,
        tell: Callable[[Reclaimed], None],
    ) -> None:
        self._engine = engine
        self._check_database = check_database
        self._evaluator = evaluator
        self._delivery = delivery
        self._registry = registry
        self._host = host
        self._readiness = readiness
        self._pulse = pulse
        #: Called with every job that is taken back.
        self._tell = tell
        #: The name is ours.
        self.registered = False
        #: The database was away.
        self.saw_outage = False
        self._reaped = False

    def take_name(self, store: Store, leave: threading.Event) -> bool:
        """Get the host's name, and hold the leases of what is spooled; False: told to leave first.

        The name comes before the leases: what runs in this host's name may be given back only by who owns the name.
        """
        if not (
            self._until(leave, DATABASE, self._check_database, meanwhile=self._clean_up)
            and self._until(leave, DATABASE, lambda: self.register(store), meanwhile=self._clean_up)
        ):
            return False
        self._delivery.adopt()
        return True

    def take_over(self, store: Store, leave: threading.Event) -> bool:
        """Deal with everything else that an earlier process left; False: told to leave first."""
        return self._until(leave, DATABASE, lambda: self._recover(store)) and self._until(leave, ENGINE, self._clean_up)

    def prepare(self, slots: Sequence[Slot], leave: threading.Event) -> bool:
        """Make sure that jobs can run here; False: told to leave first."""
        return self._until(leave, EVALUATION, lambda: self._evaluator.prepare(slots), cap_s=60.0)

    def register(self, store: Store) -> None:
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
            _log.warning("GPU types are not published: another login's types have their names", gpu_types=refused)

    def announce(self, store: Store, host: HostRecord) -> None:
        """Let others see what has changed about this host; raises what `register` does."""
        self._host = host
        self.register(store)

    def unregister(self, store: Store) -> None:
        """Say goodbye.

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
            _log.warning("containers of an earlier process were removed", count=left)

    def _recover(self, store: Store) -> None:
        taken_back = store.recover(
            host=self._host.name, keep=self._delivery.keys(), died=True, instance=self._host.instance
        )
        for job in taken_back:
            self._tell(job)
        if taken_back:
            _log.warning("jobs of an earlier process were taken back", count=len(taken_back))

    def _until(
        self,
        leave: threading.Event,
        what: str,
        action: Callable[[], object],
        *,
        cap_s: float = 5.0,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> bool:
        """Do it again and again until it works, and between two tries something that needs not wait for it."""
        backoff = Backoff(cap_s=cap_s)
        while not leave.is_set():
            self._pulse.expect(CHORE_S)
            try:
                action()
            except InfrastructureError as error:
                self.saw_outage = self.saw_outage or isinstance(error, DatabaseUnavailableError)
                self._readiness.not_ready(missing(error, otherwise=what), reason=str(error))
                with suppress(InfrastructureError):
                    meanwhile()
                self._pulse.expect(cap_s + STEP_S)
                backoff.wait(leave)
            else:
                self._pulse.expect()
                if backoff.failures:
                    _log.info(f"{what} is there now", attempts=backoff.failures + 1)
                return True
        return False


def host_record(
    config: Config,
    instance: str,
    slots: Sequence[Slot],
    gpu_types: Sequence[str],
    quarantined: Mapping[str, str],
    *,
    degraded: Mapping[str, str],
) -> HostRecord:
    """A daemon as it announces itself; `quarantined` and `degraded` say why slots are not used, or not ranked on."""
    parking = {
        "containers": config.park_containers,
        "max_age_s": config.park_max_age_s,
        "memory_mib": config.park_memory_mib,
    }
    return HostRecord(
        name=config.host_name,
        version=__version__,
        slots=[
            {
                "name": slot.name,
                "gpu_type": slot.gpu_type,
                "cpus": list(slot.cpus),
                "devices": [device.uuid for device in slot.devices],
                "parking": parking,
                **({"quarantined": quarantined[slot.name]} if slot.name in quarantined else {}),
                **({"degraded": degraded[slot.name]} if slot.name in degraded else {}),
            }
            for slot in slots
        ],
        instance=instance,
        gpu_types=gpu_types,
    )
