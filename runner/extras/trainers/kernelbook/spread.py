"""The same steps on a Ray cluster, through Ray Data: its nodes ask, this process reads and writes files.

This process must run on a node of the cluster, and all nodes need the same kernel-runner with the extra `ray`.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from runner.base.errors import ConfigError, InfrastructureError

from .asking import Asker, Check, Endpoint, Request, ServiceStopped
from .journal import Answer, Journal
from .report import Account
from .rows import batches

#: Requests at a time that are worth a process of their own.
_WORTH_A_WORKER: Final = 16
#: Rows of a block, in waves of requests.
_WAVES: Final = 8
#: How long an earlier run over the same journal may take to end.
_PATIENCE_S: Final = 60.0
_REACH_S: Final = 10.0
_NAMESPACE: Final = "kernel-runner"


def ask(
    address: str,
    requests: Iterator[Request],
    endpoint: Endpoint,
    journal: Journal,
    *,
    step: str,
    check: Check,
    progress: Callable[[int], None],
) -> tuple[Account, Mapping[str, str]]:
    """Ask what the journal does not answer, on all nodes. Answers go into the journal, on this machine, as they come.

    `address`: of the cluster; `auto`: the one that this machine belongs to. The endpoint's concurrency is that of all
    nodes together. `progress` gets how many requests have an answer. Returns the account, and why some requests got no
    answer, by their names.

    Raises:
        ServiceStopped, DataError: see `Asker`.
        ConfigError: there is no key, or the address is none.
        InfrastructureError: there is no cluster, or another run uses the journal.
    """
    account, unanswered, done = Account(), dict[str, str](), 0
    missing = _missing(requests, endpoint.model, journal, step, account)
    first = next(missing, None)
    if first is None:
        return account, unanswered
    endpoint.require_key()
    with _cluster(address) as cpus:
        workers = max(1, min(cpus, endpoint.concurrency // _WORTH_A_WORKER))
        each = replace(endpoint, concurrency=-(-endpoint.concurrency // workers))
        rows = (json.dumps(asdict(request)) for request in chain([first], missing))
        arguments = {"endpoint": each, "step": step, "check": check, "keeper": _keeper(journal.path)}
        for part in _mapped(_Asking, arguments, rows, size=_WAVES * each.concurrency, workers=workers):
            if part["stopped"]:
                raise ServiceStopped(part["stopped"])
            account.add(Account(**part["account"]))
            unanswered.update(part["unanswered"])
            done += part["account"]["asked"]
            progress(done + account.from_journal)
    return account, unanswered


def _missing(
    requests: Iterator[Request], model: str, journal: Journal, step: str, account: Account
) -> Iterator[Request]:
    """The requests without an answer, each once."""
    seen: set[str] = set()
    for request in requests:
        name = request.name(model)
        if name in seen:
            continue
        seen.add(name)
        if journal.find(step, name) is None:
            yield request
        else:
            account.from_journal += 1


@contextmanager
def _cluster(address: str) -> Iterator[int]:
    """A connection; how many cores the cluster has."""
    import ray

    try:
        _reach(address)
        ray.init(address=address, namespace=_NAMESPACE, log_to_driver=False, logging_level="ERROR")
    except (OSError, RuntimeError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise InfrastructureError(f"no Ray cluster at {address}: {reason}") from error
    try:
        ray.data.DataContext.get_current().enable_progress_bars = False
        yield int(ray.cluster_resources().get("CPU", 1))
    finally:
        ray.shutdown()


def _reach(address: str) -> None:
    """Find out in seconds whether something listens there; Ray itself tries for minutes.

    Raises:
        ConfigError: it is no address.
        OSError: nothing listens.
    """
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdecimal():
        raise ConfigError(
            f"--ray is {address!r}, expected HOST:PORT of the cluster that this machine belongs to, or auto"
        )
    with socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH_S):
        pass


def _mapped(
    worker: type, arguments: Mapping[str, Any], lines: Iterator[str], *, size: int, workers: int
) -> Iterator[dict[str, Any]]:
    """What the workers make of blocks of lines, block by block as they are ready."""
    import ray

    blocks = [ray.put(pa.table({"line": block})) for block in batches(lines, size)]
    results = ray.data.from_arrow_refs(blocks).map_batches(
        worker,
        fn_constructor_kwargs=dict(arguments),
        batch_size=None,
        batch_format="pyarrow",
        concurrency=min(workers, len(blocks)) or 1,
    )
    try:
        for row in results.iter_rows():
            yield json.loads(row["results"])
    except ray.exceptions.RayError as error:
        reason = str(error).strip().rpartition("\n")[2]
        raise InfrastructureError(f"the Ray cluster could not do it: {reason}. Run this again") from error


def _keeper(journal: Path) -> Any:  # noqa: ANN401 Ray's handle of an actor
    """An actor on this machine that writes to the journal; one per journal, so that two runs do not ask the same."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    path = str(journal.resolve())
    name = f"kernelbook-{sha256(path.encode()).hexdigest()[:16]}"
    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return ray.remote(_Keeper).options(name=name, num_cpus=0, scheduling_strategy=here).remote(path)
        except ValueError as error:
            # Taken: by a run that goes on, or by one that was killed a moment ago.
            if time.monotonic() > until:
                raise InfrastructureError(f"another run uses {journal}; wait for it, or end it") from error
            time.sleep(0.5)


class _Keeper:
    """Writes answers to the journal."""

    def __init__(self, path: str) -> None:
        self._journal = Journal(Path(path))

    def keep(self, step: str, request: str, answer: Answer) -> None:
        """Keep an answer."""
        self._journal.keep(step, request, answer)


class _Remote:
    """Sends answers to the journal's machine."""

    def __init__(self, keeper: Any) -> None:  # noqa: ANN401 Ray's handle of an actor
        self._keeper = keeper

    def find(self, _step: str, _request: str) -> Answer | None:
        """Nothing: only what is missing is asked here."""
        return None

    def keep(self, step: str, request: str, answer: Answer) -> None:
        """Wait until it is written: when the keeper is gone, the run is, and nothing more may be asked."""
        import ray

        ray.get(self._keeper.keep.remote(step, request, answer))


class _Asking:
    """Asks a block of requests."""

    def __init__(self, endpoint: Endpoint, step: str, check: Check, keeper: Any) -> None:  # noqa: ANN401 as above
        self._endpoint, self._step, self._check, self._keeper = endpoint, step, check, _Remote(keeper)
        self._stopped: str | None = None

    def __call__(self, block: pa.Table) -> pa.Table:
        """The block's account. After an answer that ends the step, the blocks that come before its end ask nothing."""
        asker = Asker(self._endpoint, self._keeper, step=self._step, check=self._check)
        if self._stopped is None:
            try:
                asker.ask(Request(**json.loads(line)) for line in block["line"].to_pylist())
            except ServiceStopped as error:
                self._stopped = str(error)
        return _row(account=asdict(asker.account), unanswered=asker.unanswered, stopped=self._stopped)


def _row(**results: object) -> pa.Table:
    return pa.table({"results": [json.dumps(results)]})
