"""Everything a host depends on goes away, one after the other: what it says, and that it comes back by itself."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from runner.model import JobState, Verdict
from tests.integration.outages.host import Host

PAGE = Path(__file__).resolve().parents[3] / "docs" / "operations.md"
HONEST = b"def custom_kernel(data):\n    return data[0] + data[1]\n"


@dataclass(frozen=True, kw_only=True)
class Outage:
    """One dependency, and what its absence looks like; docs/operations.md has the same table."""

    what: str
    #: Of `/readyz`; None: it stays ready.
    reason: str | None
    #: Field of the log's `not_ready`, and what `/readyz` says besides.
    waiting_for: str | None
    says: str
    #: How it begins and how it ends.
    begin: Callable[[Host], None]
    end: Callable[[Host], None]

    @property
    def row(self) -> str:
        """Its row of the table."""
        ready = "200" if self.reason is None else f"503, `{self.reason}`"
        said = "-" if self.waiting_for is None else f"`not_ready`, {self.waiting_for}"
        return f"| {self.what} | {ready} | {said} | by itself |"


def _name_away(host: Host) -> None:
    # Connections that are open need no name.
    host.know_the_name(known=False)
    host.cut_connections()


#: In this order, because readiness says a state that comes and goes four times a minute, and then the last word.
OUTAGES: Sequence[Outage] = (
    Outage(
        what="PostgreSQL",
        reason="database",
        waiting_for="the database",
        says="PostgreSQL",
        begin=lambda host: host.server.crash(),
        end=lambda host: host.server.start(),
    ),
    Outage(
        what="room in `state_dir`",
        reason="disk",
        waiting_for="free disk space",
        says="state_dir",
        begin=lambda host: host.fill(host.state_dir),
        end=lambda host: host.empty(host.state_dir),
    ),
    Outage(
        what="DNS: the database's name is not known, and its connections are cut",
        reason="database",
        waiting_for="the database",
        says="db.kernel-runner.test",
        begin=_name_away,
        end=lambda host: host.know_the_name(),
    ),
    Outage(
        what="room where the engine's data is",
        reason="disk",
        waiting_for="free disk space",
        says="the engine's data in",
        begin=lambda host: host.fill(host.engine_disk),
        end=lambda host: host.empty(host.engine_disk),
    ),
    Outage(
        what="the container engine",
        reason="engine",
        waiting_for="the container engine",
        says="no container engine answers at unix://",
        begin=lambda host: host.dockerd.stop(),
        end=lambda host: host.dockerd.start(),
    ),
    Outage(
        what="the host's clock is set by an hour, forwards",
        reason=None,
        waiting_for=None,
        says="",
        begin=lambda host: host.set_clock(3600),
        end=lambda _host: None,
    ),
    Outage(
        what="the host's clock is set by an hour, backwards",
        reason=None,
        waiting_for=None,
        says="",
        begin=lambda host: host.set_clock(0),
        end=lambda _host: None,
    ),
)


def test_the_page_has_the_table() -> None:
    """docs/operations.md says what is tested here, no more and no less."""
    page = PAGE.read_text(encoding="utf-8")
    section = page.partition("## What it says when something is away")[2].partition("\n## ")[0]
    assert [line for line in section.splitlines() if line.startswith("| ")][1:] == [outage.row for outage in OUTAGES]


@pytest.mark.skipif(
    os.getuid() != 0 or any(shutil.which(tool) is None for tool in ("dockerd", "unshare", "cc")),
    reason="takes a database, an engine, disks and a mount namespace of its own: needs root, dockerd, unshare and cc",
)
def test_a_host_survives_whatever_is_away() -> None:
    """Per outage: `/readyz`, the line in the log, and back without a restart; afterwards a submission is evaluated."""
    with Host() as host:
        pid = host.process.pid
        host.board()
        for outage in OUTAGES:
            before = len(host.lines())

            def said(outage: Outage = outage, before: int = before) -> bool:
                return any(line.get("waiting_for") == outage.waiting_for for line in host.lines()[before:])

            outage.begin(host)
            if outage.reason is None:
                # Jobs do not depend on it.
                assert host.evaluate(HONEST).verdict is Verdict.ACCEPTED
            else:
                host.wait_reason(outage.reason, outage.says)
                host.wait(said, f"{outage.what}: a line of the log")
            outage.end(host)
            host.wait_ready()
        view = host.evaluate(HONEST)
        assert (view.state, view.verdict) == (JobState.DONE, Verdict.ACCEPTED)
        assert [job.attempt for job in view.jobs] == [1]
        assert (host.process.pid, host.process.poll()) == (pid, None)
