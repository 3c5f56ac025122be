"""Which worker gets which module: those that exclude each other one after the other, the rest beside them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from xdist.workermanage import WorkerController

from tests.plugins.scheduling import Scheduling, note_modules

MODULES = ("long", "middle", "judge_1", "alone", "judge_2", "short_1", "short_2", "short_3")
#: A worker gets its next module when two tests are left.
TESTS = [f"{module}.py::test_{number}" for module in MODULES for number in range(4)]


class Worker:
    """Notes what it is given, and says what it has run."""

    shutting_down = False
    gateway = SimpleNamespace(id="a worker")

    def __init__(self, scheduling: Scheduling) -> None:
        self.modules: list[str] = []
        self._scheduling = scheduling
        self._left: list[int] = []
        self._node = cast("WorkerController", self)
        scheduling.add_node(self._node)
        scheduling.add_node_collection(self._node, TESTS)

    def send_runtest_some(self, indices: list[int]) -> None:
        """Get the tests of one module."""
        self._left += indices
        self.modules.append(TESTS[indices[0]].partition(".")[0])

    def shutdown(self) -> None:
        """Hear that there is no more."""
        self.shutting_down = True

    def run(self, tests: int) -> None:
        """Run the next tests."""
        for _ in range(tests):
            self._scheduling.mark_test_complete(self._node, self._left.pop(0))


@pytest.fixture
def workers(tmp_path: Path) -> list[Worker]:
    """Three, of which each has its first module."""
    items = [cast("pytest.Item", SimpleNamespace(nodeid=nodeid)) for nodeid in TESTS]
    judging, alone = ([item for item in items if item.nodeid.startswith(kind)] for kind in ("judge", "alone"))
    note_modules(tmp_path, judging=judging, alone=alone)
    config = SimpleNamespace(getvalue=lambda _: ["popen"] * 3, option=SimpleNamespace(loadscopereorder=False))
    scheduling = Scheduling(cast("pytest.Config", config), None, tmp_path)
    made = [Worker(scheduling) for _ in range(3)]
    scheduling.schedule()
    return made


def test_modules_that_exclude_each_other_go_to_one_worker_at_a_time(workers: list[Worker]) -> None:
    """Judges begin at once, wherever they stand; what runs alone waits until no judge is under way."""
    first, second, third = workers
    assert [worker.modules for worker in workers] == [["judge_1"], ["long"], ["middle"]]
    second.run(2)
    assert second.modules == ["long", "short_1"]
    first.run(2)
    # The same worker may have the next one: it comes to it when it is through with the first.
    assert first.modules == ["judge_1", "judge_2"]
    third.run(2)
    assert third.modules == ["middle", "short_2"]
    second.run(4)
    first.run(4)
    assert second.modules == ["long", "short_1", "short_3"]
    assert first.modules == ["judge_1", "judge_2", "alone"]


def test_no_worker_is_left_without_work(workers: list[Worker]) -> None:
    """Where only modules are left that exclude each other, they are given out all the same."""
    _, second, third = workers
    for worker in (second, third, second, second):
        worker.run(2)
    assert (second.modules, third.modules) == (["long", "short_1", "short_3"], ["middle", "short_2"])
    second.run(4)
    assert second.modules == ["long", "short_1", "short_3", "alone"]
