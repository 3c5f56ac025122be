"""Which worker of a run (`pytest -n`) gets which module: `--dist loadscope` that knows what cannot run side by side.

A module with judges outside of containers goes to one worker at a time, and so does one with tests that run alone: the
other workers would wait for its locks (`tests.plugins.exclusive_tests`) while modules that need none are left. Modules
with judges begin at once, one after the other, with one worker, whose judges and workers are forks of processes that
import torch once; those with tests that run alone begin when they are first in line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.workermanage import WorkerController

_FILE = "modules.json"


def note_modules(directory: Path, *, judging: Iterable[pytest.Item], alone: Iterable[pytest.Item]) -> None:
    """Tell the process that hands out the modules which of them have such tests; every worker says the same."""
    found = {"judging": _scopes(judging), "alone": _scopes(alone)}
    written = directory / f"{_FILE}.{os.getpid()}"
    written.write_text(json.dumps(found), encoding="utf-8")
    written.rename(directory / _FILE)


def _scopes(items: Iterable[pytest.Item]) -> list[str]:
    return sorted({item.nodeid.rsplit("::", 1)[0] for item in items})


class Scheduling(LoadScopeScheduling):
    """Hands out the modules; `directory` is where the workers leave their note."""

    def __init__(self, config: pytest.Config, log: Producer | None, directory: Path) -> None:
        super().__init__(config, log)
        self._directory = directory
        #: Has the modules with judges.
        self._judge: WorkerController | None = None

    @cached_property
    def _modules(self) -> tuple[frozenset[str], frozenset[str]]:
        """Those with judges, and those with tests that run alone."""
        found = json.loads((self._directory / _FILE).read_text(encoding="utf-8"))
        return frozenset(found["judging"]), frozenset(found["alone"])

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Move what this worker should have to the front of the queue, and assign that."""
        chosen = next(self._wanted(node), None)
        if chosen is not None:
            self.workqueue.move_to_end(chosen, last=False)
            if chosen in self._modules[0]:
                self._judge = node
        super()._assign_work_unit(node)

    def _wanted(self, node: WorkerController) -> Iterator[str]:
        judging, alone = self._modules
        exclusive = judging | alone
        others = (units for other, units in self.assigned_work.items() if other is not node)
        busy = any(scope in exclusive and False in unit.values() for units in others for scope, unit in units.items())
        for scope in self.workqueue:
            if busy:
                wanted = scope not in exclusive
            elif self._judge in (None, node):
                wanted = scope in judging and scope not in alone
            else:
                wanted = scope not in judging
            if wanted:
                yield scope
