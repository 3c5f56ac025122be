"""A plan: one container and one request to it. Pure.

`kinds` make them; the probe, which belongs to no job, is planned here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from runner.evaluation.container_spec import WALL_MARGIN_S, ContainerOwner, make_spec, pair_boot
from runner.evaluation.context import Place
from runner.evaluation.speed_of_light import SpeedOfLight
from sandbox.protocol import PairRequest, Request
from sandbox.spec import SandboxSpec
from tasks.harness.judge.request import JudgeRequest


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to start, what to request, and what must be reported."""

    #: Its time limit has room for a compiler, whichever request is sent.
    spec: SandboxSpec
    request: Request
    #: Sent instead where a build archive comes along: no compiler runs. None: it makes no difference.
    built_request: Request | None = None
    #: Whether its container must be gone, or empty, before anything else runs on the slot, even of the same job.
    alone: bool = False
    #: Whose further requests may follow in the container; None: this one is its last.
    kept_for: ContainerOwner | None = None
    #: Whose used container this one may have; None: nobody's.
    follows: ContainerOwner | None = None
    #: Names of the rows of `leaderboard.runs`, in order. Each is that of a step, or of one in `shared`.
    run_names: tuple[str, ...] = ()
    #: Rows that a step of another name reports, too: the timed calls of a ranked job are its benchmark's as well.
    shared: Mapping[str, str] = field(default_factory=dict)
    #: Cases per run name.
    case_counts: Mapping[str, int] = field(default_factory=dict)
    #: What each case of a timed run needs at the least, by run name.
    speeds_of_light: Mapping[str, tuple[SpeedOfLight, ...]] = field(default_factory=dict)


def make_probe(place: Place) -> Plan:
    """Plan a run without a submission: it tests that judge and worker start here, and returns the system's facts."""
    request = JudgeRequest(
        modes=(),
        files={},
        worker_files=(),
        submission_name="submission.py",
        submission="",
        device=place.device,
    )
    boot, labels = pair_boot(place.environment), {"kernel-runner.job": "probe"}
    return Plan(
        spec=make_spec(place, boot, wall_s=WALL_MARGIN_S, labels=labels),
        request=PairRequest(payload=request.to_payload()),
        run_names=("facts",),
    )
