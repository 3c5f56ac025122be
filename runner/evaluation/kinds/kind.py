"""What an attempt asks of a kind of job, and what it hands over. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from runner.base.model import JobResult, Json
from runner.evaluation.build_cache import Build
from runner.evaluation.build_plan import BuildPlan
from runner.evaluation.context import JobContext
from runner.evaluation.plan import Plan
from sandbox.host.build_archive import BuildArchive, JoinedArchives
from sandbox.host.container import ContainerReport

#: Builds by number, each with the nanoseconds that it took here. A submission has number 0 alone, a group's candidate
#: its id.
Builds = Mapping[int, tuple[Build, int]]


@dataclass(frozen=True, kw_only=True)
class Run:
    """What one container left. Times are in nanoseconds on the monotonic clock."""

    plan: Plan
    report: ContainerReport
    #: When it was asked for, was ready for the request, had reported, and was gone or was left to be removed later.
    asked_ns: int
    ready_ns: int
    ended_ns: int
    gone_ns: int
    #: The phases of which it reported progress.
    phases: frozenset[str] = frozenset()
    #: What the plan asks to keep; None: nothing.
    kept: BuildArchive | None = None
    #: Whether its archive broke it, so that it ran again without.
    archive_broken: bool = False
    #: What a result says of the slot's devices; None: there are none.
    devices: tuple[Json, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Spent:
    """Where the time of a job went that no run took."""

    #: All of it since the job's start, that of runs included.
    elapsed_ns: int = 0
    #: Its own builds.
    built_ns: int = 0
    #: Waiting: for a build worker, or for another job's build.
    waited_ns: int = 0


class Kind(Protocol):
    """One job. Made before anything runs: what cannot be evaluated does not construct."""

    @property
    def context(self) -> JobContext:
        """Everything that was looked up for it."""

    def build_plans(self, cpus: tuple[int, ...], *, beside: bool) -> Mapping[int, BuildPlan]:
        """What to build before the run, on these cores: spare ones, or those of its slot."""

    def refused(self, builds: Builds, spent: Spent) -> JobResult | None:
        """The result of a job that need not run; None: it has to."""

    def plans(self, builds: Builds) -> Iterator[tuple[Plan, BuildArchive | JoinedArchives | None]]:
        """The containers to run one after the other, with the archives that each gets; each is heard before the next.

        After a run whose archive broke it before the submission reported anything, the plan runs again without it.
        """

    def heard(self, run: Run) -> None:
        """A run has ended, and was not cancelled."""

    def decide(self, builds: Builds, spent: Spent) -> JobResult:
        """The result of what was heard.

        Raises:
            EvaluationError: a container or the harness broke in a way that nothing evaluated can have caused.
        """
