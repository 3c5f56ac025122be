"""When a group's workers are up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from runner.extras.trainers.inside.judge.evaluation import GroupJudge


@pytest.mark.parametrize("has_control", [False, True])
def test_a_new_worker_is_up_before_the_reference_is_timed(*, has_control: bool) -> None:
    """On a core that both share, calls of the reference beside its start came out half as fast."""
    orders: list[str] = []

    def open_flags(**_: object) -> bool:
        orders.append("flags")
        return True

    client: Any = SimpleNamespace(
        open_flags=open_flags,
        warm_up=lambda **_: orders.append("warm up"),
        run=lambda *_, **__: orders.append("answers"),
    )
    judge: Any = SimpleNamespace(
        _for_reference=None,
        _started=lambda _: client,
        control=object() if has_control else None,
        _measured=None,
        _request=SimpleNamespace(memory_bytes=1),
    )
    assert GroupJudge._connect(judge, "candidate") is client
    assert orders == [*(["flags", "warm up"] if has_control else []), "answers"]
