"""Requests over a task that is one text: a reference of its own, of which the worker gets nothing."""

from __future__ import annotations

from typing import Any

from tasks.harness.judge.request import JudgeRequest, ModeRequest
from tests.support.waiting import PATIENCE_S


def request_of(
    reference: str,
    submission: str,
    case: str,
    *modes: str,
    timeout_s: float = PATIENCE_S,
    **more: Any,  # noqa: ANN401 any field
) -> JudgeRequest:
    """A request for one case in each of some modes.

    Args:
        reference: text of `reference.py`.
        submission: text of `submission.py`.
        case: its spec line.
        modes: their names.
        timeout_s: of each mode; no verdict is a matter of speed where it is the default.
        more: fields of the request, and `timing` of the modes.
    """
    timing = more.pop("timing", None)
    fields: dict[str, Any] = {
        "files": {"reference.py": reference},
        "worker_files": (),
        "submission_name": "submission.py",
        "submission": submission,
        **more,
    }
    return JudgeRequest(
        modes=tuple(ModeRequest(name=mode, cases=(case,), timeout_s=timeout_s, timing=timing) for mode in modes),
        **fields,
    )
