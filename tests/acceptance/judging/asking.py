"""What a daemon asks the judge for a submission."""

from __future__ import annotations

from runner.base.model import Mode
from runner.task_format.model import Task
from sandbox.protocol import PairRequest
from tasks.harness.judge.request import JudgeRequest
from tests.unit import samples


def asked(task: Task, code: bytes, mode: Mode) -> JudgeRequest:
    """What a daemon asks the judge for a submission of a mode, with the built-in harness, on a host without devices."""
    plan = samples.submission(samples.context(task, job=samples.job(mode=mode, code=code))).plan
    assert isinstance(plan.request, PairRequest)
    return JudgeRequest.from_payload(plan.request.payload)
