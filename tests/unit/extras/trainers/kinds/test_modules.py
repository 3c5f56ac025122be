"""A group's container, and what its report says of each candidate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.base.gpu_types.model import GpuType
from runner.base.model import Device, GroupJob
from runner.evaluation.build_cache import Build
from runner.evaluation.build_plan import REFUSED
from runner.evaluation.container_spec import CACHES
from runner.evaluation.context import GroupContext
from runner.evaluation.kinds.kind import Spent
from runner.extras.trainers.inside.judge.group import Candidate, Result
from runner.extras.trainers.kinds.module import Group, archives_of, build_plan_of, refusal_of, rows_of, with_build
from sandbox.host.build_archive import BuildArchive
from sandbox.host.container import ContainerReport
from sandbox.protocol import (
    ARCHIVE_PIECE_BYTES,
    MAX_ARCHIVE_BYTES,
    ArchivePiece,
    AuthorExit,
    Judged,
    PairRequest,
    StepResult,
)
from sandbox.spec import Ending, Outcome
from tests.unit import samples

_GROUP: dict[str, Any] = {
    "kind": "module",
    "reference": "r",
    "settings": {"timeout_s": 10},
    "candidates": [{"id": 5, "code": "a"}, {"id": 3, "code": "b"}],
}
_OUTCOME = Outcome(
    ending=Ending.COMPLETED, exit_code=0, oom_kills=0, pids_denied=0, peak_memory_bytes=1, cpu_ns=1, wall_ns=1
)


def _step(result: Result) -> StepResult:
    return StepResult(
        name=f"candidate.{result.id}",
        command="judge",
        start_ns=0,
        duration_ns=0,
        exit_code=0,
        judged=Judged(verdict=result.verdict, message=None, assurance={}, details={"module": result.to_message()}),
    )


def _report(*results: Result, **outcome: Any) -> ContainerReport:  # noqa: ANN401 fields of Outcome
    return ContainerReport(
        ok=True,
        message=None,
        steps=tuple(map(_step, results)),
        artifacts=(),
        outcome=replace(_OUTCOME, **outcome),
        attested={},
    )


def test_a_reference_that_ended_the_judge_is_invalid_unless_memory_was_short() -> None:
    """What was judged before it counts. Beside a candidate the memory may have been the candidate's."""
    ended = AuthorExit(call="the reference's forward", place="timed calls", how="exit code 3")
    one = Result(id=5, verdict="accepted")
    report = replace(_report(one), ok=False, message="m", author_exit=ended)
    told = "the reference's forward ended the judge's process (exit code 3) in timed calls"
    assert [(row["verdict"], row["message"]) for row in rows_of(_GROUP, report)] == [
        ("accepted", ""),
        ("invalid", told),
    ]
    killed = replace(_report(oom_kills=1), ok=False, message="m", author_exit=ended)
    assert [row["verdict"] for row in rows_of(_GROUP, killed)] == ["internal_error"] * 2


def kind_of(job: GroupJob | None = None, **place: Any) -> Group:  # noqa: ANN401 fields of the context
    """A group that is planned, nothing of which was built."""
    return Group(GroupContext(**{**vars(samples.PLACE), **place}, job=job or samples.group(**_GROUP)))


def test_a_group_that_cannot_be_read_is_invalid() -> None:
    """For every candidate; no container is started."""
    group = kind_of(samples.group(**{**_GROUP, "settings": {"x": 1}}))
    refused = group.refused({}, Spent(elapsed_ns=1))
    assert refused is not None
    assert [item["verdict"] for item in refused.items] == ["invalid"] * 2
    assert "'x' is unknown" in str(refused.items[0]["message"])
    assert list(group.plans({})) == []


def test_the_container_is_that_of_every_job() -> None:
    """Its request asks for workers one after the other; its time is that of candidates, reference and judge."""
    ((plan, archive),) = kind_of(max_run_s=1000.0).plans({})
    assert archive is None
    assert isinstance(plan.request, PairRequest)
    assert (plan.request.to_message()["successive"], plan.request.payload["group"]) == (True, _GROUP)
    assert plan.spec.limits.wall_s == pytest.approx(60 + 6 * 10)
    assert plan.spec.boot.kind == "pair"


@pytest.mark.parametrize("gpu", [samples.CPU, samples.H100], ids=["cpu", "gpu"])
def test_a_candidate_is_built_alone(gpu: GpuType) -> None:
    """In the container of a run but for device, cores and judge; with its own file and the names of its class."""
    candidate = Candidate(id=7, code="its code", entry_points=("ModelNew", "NetNew"))
    context = GroupContext(**{**vars(samples.PLACE), "gpu": gpu}, job=samples.group())
    plan = build_plan_of(candidate, context, (6, 7), 9)
    ran = samples.submission(samples.context(samples.task(), gpu=gpu)).plan.spec
    assert dict(plan.request.files) == {"candidate.py": b"its code"}
    (step,) = plan.request.steps
    assert step.argv[-4:] == ("candidate.py", str(REFUSED), "ModelNew", "NetNew")
    assert (step.timeout_s, step.result_pipe, dict(step.files)) == (9, False, {})
    assert (plan.spec.devices, plan.spec.limits.cpus, plan.spec.environment) == (None, (6, 7), ran.environment)
    assert plan.spec.labels["kernel-runner.build"] == "candidate 7"
    assert set(plan.request.keep) == set(CACHES.values())


def test_groups_of_a_batch_share_a_container() -> None:
    """Also on a device. Not where each candidate is to have its own, not after a failure, and not under gVisor."""
    device = Device(index=0, uuid="GPU-1", name="NVIDIA H100", vendor="nvidia")
    separate = samples.group(**{**_GROUP, "settings": {"separate_containers": True}})
    batch = ("batch", separate.batch_id)
    for group, owner in (
        (kind_of(), batch),
        (kind_of(slot=replace(samples.SLOT, devices=(device,))), batch),
        (kind_of(replace(samples.group(**_GROUP), failures=1)), None),
        (kind_of(separate), None),
        (kind_of(gpu=replace(samples.CPU, runtime="runsc")), None),
    ):
        plan, _ = next(group.plans({}))
        assert (plan.follows, plan.kept_for) == (owner, owner)


def test_a_group_that_has_failed_has_a_container_for_each_candidate() -> None:
    """So a candidate that ends its container ends no other's judgement again; also where that is asked for."""
    whole = samples.group(**_GROUP)
    separate = samples.group(**{**_GROUP, "settings": {"separate_containers": True}})
    for group, ids in ((whole, [[5, 3]]), (replace(whole, failures=1), [[5], [3]]), (separate, [[5], [3]])):
        requests = [plan.request for plan, _ in kind_of(group).plans({})]
        parts = [request.payload["group"]["candidates"] for request in requests if isinstance(request, PairRequest)]
        assert [[candidate["id"] for candidate in part] for part in parts] == ids


def _build(tmp_path: Path, *, size: int = 0, exit_code: int = 0, stderr: str = "") -> Build:
    archive = BuildArchive(tmp_path)
    for begin in range(0, size, ARCHIVE_PIECE_BYTES):
        archive.take(ArchivePiece(data=bytes(min(size - begin, ARCHIVE_PIECE_BYTES))))
    step = StepResult(name="compile", command="c", start_ns=0, duration_ns=0, exit_code=exit_code, stderr=stderr)
    return Build(archive=archive if size else None, report=replace(_report(), steps=(step,)))


def test_archives_that_do_not_fit_into_a_request_are_left_out(tmp_path: Path) -> None:
    """Their candidates compile in their runs; smaller ones that come later still fit."""
    half = MAX_ARCHIVE_BYTES // 2
    builds = {1: _build(tmp_path, size=half), 2: _build(tmp_path), 3: _build(tmp_path, size=half + 1)}
    builds[4] = _build(tmp_path, size=half)
    assert list(archives_of(builds)) == [1, 4]


def test_only_what_compilers_say_where_there_is_no_device_is_a_verdict(tmp_path: Path) -> None:
    """Its text is cut; whatever else ends a build is no verdict, and on a type with devices nothing is."""
    said = _build(tmp_path, exit_code=REFUSED, stderr="x" * 5000 + "an error\n")
    text = refusal_of(said, samples.CPU)
    assert text is not None
    assert (len(text), text[-8:]) == (3999, "an error")
    assert refusal_of(_build(tmp_path, exit_code=REFUSED), samples.CPU) == "the compilers refused it"
    assert refusal_of(said, samples.H100) is None
    assert refusal_of(_build(tmp_path, exit_code=1, stderr="error"), samples.CPU) is None
    assert refusal_of(Build(archive=None, report=None), samples.CPU) is None


def test_a_compiler_that_was_killed_for_memory_is_no_compile_error(tmp_path: Path) -> None:
    """Its own container knows."""
    build = _build(tmp_path, exit_code=REFUSED)
    assert build.report is not None
    outcome = replace(build.report.outcome, oom_kills=1)
    builds = {5: (replace(build, report=replace(build.report, outcome=outcome)), 1), 6: (build, 1)}
    for verdict, candidate, expected in (
        ("compile_error", 5, "memory_limit"),
        ("compile_error", 6, "compile_error"),
        ("wrong_answer", 5, "wrong_answer"),
    ):
        row = {"id": candidate, "build_ms": None, "verdict": verdict, "message": ""}
        assert with_build(row, builds)["verdict"] == expected


@pytest.mark.parametrize(("verdict", "stage"), [("compile_error", "compile"), ("time_limit", "correctness")])
def test_what_a_killed_helper_leaves_is_memory_limit_where_no_other_candidate_ran(verdict: str, stage: str) -> None:
    """A compiler that was killed fails; what waits for a killed process takes too long."""
    failed = Result(id=5, verdict=verdict, stage=stage, message="ninja")
    alone = {**_GROUP, "candidates": _GROUP["candidates"][:1]}
    assert rows_of(alone, _report(failed, oom_kills=1))[0]["verdict"] == "memory_limit"
    assert rows_of(alone, _report(failed))[0]["verdict"] == verdict
    assert rows_of(_GROUP, _report(failed, oom_kills=1))[0]["verdict"] == verdict


def test_what_a_build_took_is_in_its_candidates_result(tmp_path: Path) -> None:
    """Beside what running the file took."""
    builds = {5: (_build(tmp_path), 2_500_000)}
    assert with_build({"id": 5, "build_ms": 0.25, "verdict": "accepted"}, builds)["build_ms"] == 2.75
    assert with_build({"id": 5, "build_ms": None, "verdict": "accepted"}, builds)["build_ms"] == 2.5
    assert with_build({"id": 3, "build_ms": None}, builds)["build_ms"] is None


def test_results_come_in_the_order_of_the_group() -> None:
    """Whatever the order of the candidates was."""
    rows = rows_of(_GROUP, _report(Result(id=3, verdict="accepted"), Result(id=5, verdict="wrong_answer")))
    assert [(row["id"], row["verdict"]) for row in rows] == [(5, "wrong_answer"), (3, "accepted")]


def test_a_candidate_without_a_result_is_our_fault() -> None:
    """It is never a verdict on the candidate."""
    rows = rows_of(_GROUP, _report(Result(id=5, verdict="accepted"), ending=Ending.DEADLINE))
    assert [(row["id"], row["verdict"]) for row in rows] == [(5, "accepted"), (3, "internal_error")]
    assert "time ended" in rows[1]["message"]


def test_memory_kills_are_told_from_other_deaths() -> None:
    """Only the cgroup knows of them."""
    died = Result(id=5, verdict="runtime_error", message="the process was killed by signal 9 (SIGKILL)")
    other = Result(id=3, verdict="accepted")
    assert rows_of(_GROUP, _report(died, other))[0]["verdict"] == "runtime_error"
    assert rows_of(_GROUP, _report(died, other, oom_kills=1))[0]["verdict"] == "memory_limit"
    assert rows_of(_GROUP, _report(other, oom_kills=1))[0]["verdict"] == "memory_limit"


@pytest.mark.parametrize("reported", [(), ("runtime_error",), ("compile_error",), ("time_limit",)])
def test_a_kill_for_memory_that_the_host_lacks_is_our_fault(reported: Sequence[str]) -> None:
    """Whatever it looks like, and whether or not a candidate had begun; what was judged before counts."""
    killed = [Result(id=5, verdict=verdict, message="killed by signal 9") for verdict in reported]
    report = _report(*killed, Result(id=3, verdict="accepted"), oom_kills=1, host_short=True)
    assert [row["verdict"] for row in rows_of(_GROUP, report)] == ["internal_error", "accepted"]
    alone = _report(oom_kills=1, host_short=True)
    rows = rows_of(_GROUP, alone, before_candidates_bytes=1 << 30)
    assert {(row["verdict"], "the host" in row["message"]) for row in rows} == {("internal_error", True)}


def test_memory_that_ends_before_a_candidate_began_is_the_fault_of_the_reference() -> None:
    """For every candidate, with what the container has."""
    rows = rows_of(_GROUP, _report(oom_kills=1), before_candidates_bytes=1 << 30)
    assert [(row["id"], row["verdict"], row["stage"]) for row in rows] == [(n, "invalid", "reference") for n in (5, 3)]
    assert str(1 << 30) in rows[0]["message"]
    assert rows_of(_GROUP, _report(), before_candidates_bytes=1 << 30)[0]["verdict"] == "internal_error"


def test_a_row_with_other_keys_is_none() -> None:
    """A judge of another version has said it."""
    step = _step(Result(id=5, verdict="accepted"))
    assert step.judged is not None
    bad = replace(step, judged=replace(step.judged, details={"module": {"id": 5, "verdict": "accepted"}}))
    rows = rows_of(_GROUP, replace(_report(), steps=(bad,)))
    assert [row["verdict"] for row in rows] == ["internal_error"] * 2
