"""Evaluations by forked judges and workers, for corpora of many small ones; see `runner.extras.boards.fork_server`.

Real judge, real worker, real socket between them; what a container adds is not there, so what only a container stops is
not tested this way. A judge may lack defences. The role `naive` evaluates as the attack corpus tells it to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runner.extras.boards.fork_server import ForkServers
from tasks.harness.judge.request import JudgeRequest
from tasks.harness.local import LocalReport, Started, evaluate
from tests.support.noise import again_if_noise

_ROLES = {"naive": "tests.acceptance.attacks.naive"}
_SWITCH_OFF = "tests.acceptance.attacks.relax:switch_off"


class ForkedJudges:
    """Evaluates requests with forked judges and workers. Close it."""

    def __init__(self) -> None:
        self._servers = ForkServers()

    def evaluate(self, request: JudgeRequest, *, without: Sequence[str] = ()) -> LocalReport:
        """Judge one request with fresh processes; see local.evaluate. `without`: see `start`, in the judge alone."""

        def start(role: str, **settings: Any) -> Started:  # noqa: ANN401 see Start
            return self.start(role, **settings, without=without if role == "judge" else ())

        return again_if_noise(lambda: evaluate(request, start=start))

    def verdict(self, request: JudgeRequest) -> tuple[str | None, str | None]:
        """The verdict on the request's first mode, and its sentence; without one None, and what the worker wrote."""
        (step, *_) = self.evaluate(request).steps
        return (None, step.stderr) if step.judged is None else (step.judged.verdict, step.judged.message)

    def close(self) -> None:
        """End everything."""
        self._servers.close()

    def start(self, role: str, *, without: Sequence[str] = (), **settings: Any) -> Started:  # noqa: ANN401 see Start
        """A process of a role; see local.Start. `without`: what is switched off in it."""
        first = (_SWITCH_OFF, without) if without else None
        return self._servers.start(_ROLES.get(role, role), **settings, first=first)
