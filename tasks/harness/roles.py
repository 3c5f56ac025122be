"""The processes of an evaluation."""

from typing import Final

#: Role of a process -> the module with its `main`.
MODULES: Final = {
    "judge": "tasks.harness.judge.main",
    "worker": "tasks.harness.worker.main",
    "rank_checker": "tasks.harness.judge.rank_checker",
}
