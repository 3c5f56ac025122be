"""The way of one job: CONTRIBUTING.md lists its files in order, and each is reached as the list says."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from runner.daemon import interfaces
from runner.evaluation.container_spec import harness_process
from runner.store import QueueStore, queries
from tests.unit import samples

ROOT = Path(__file__).parents[2]
MOST_FILES = 15
#: Number, file, what happens there, from which file, and how unless by a call into an imported file.
_ROW = re.compile(r"\| (\d+) \| `([\w/.]+)` \| .+ \| (?:start|(\d+)(?:, (.+))?) \|")


class Step(NamedTuple):
    """A row of the list."""

    number: int
    path: str
    #: The file before it, and how the job gets from there to here; empty: by a call into an imported file.
    before: str
    how: str


def steps() -> list[Step]:
    """The list, read from the page."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = _ROW.findall(page.partition("## Where to change what")[0])
    paths = {number: path for number, path, _, _ in rows}
    return [Step(int(number), path, paths.get(before, ""), how) for number, path, before, how in rows]


def text(path: str) -> str:
    """A file of the repository."""
    return (ROOT / path).read_text(encoding="utf-8")


def module(path: str) -> str:
    """The dotted name of a Python file."""
    return path.removesuffix(".py").replace("/", ".")


def imported(path: str) -> set[str]:
    """What a Python file imports, with relative imports resolved."""
    package = module(path).split(".")[:-1]
    found: set[str] = set()
    for node in ast.walk(ast.parse(text(path))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            found |= {name, *(f"{name}.{alias.name}" for alias in node.names)}
    return found


def reaches(step: Step) -> bool:
    """Whether a job gets to a file as the list says."""
    match step.how.strip("`"):
        case "":
            return module(step.path) in imported(step.before)
        case "SQL":
            name = Path(step.path).stem
            calls = [
                constant
                for constant, query in vars(queries).items()
                if isinstance(query, queries.Query) and f"runner.{name}(" in query.sql.decode()
            ]
            defined = re.search(rf"FUNCTION runner\.{name}\(", text(step.path))
            return bool(defined) and any(f"queries.{constant}" in text(step.before) for constant in calls)
        case "frames":
            return all({"sandbox.protocol"} & imported(path) for path in (step.before, step.path))
        case "process":
            return module(step.path) in " ".join(harness_process(samples.ENVIRONMENT, "judge"))
        case how if how.startswith("QueueStore."):
            method = how.removeprefix("QueueStore.")
            source = inspect.getsourcefile(getattr(QueueStore, method))
            return source == str(ROOT / step.path) and f".{method}(" in text(step.before)
        case how:
            said = inspect.getdoc(getattr(interfaces, how)) or ""
            return f"{module(step.path)}." in said and how in text(step.before)


def test_a_job_can_be_followed_through_at_most_fifteen_files() -> None:
    """Each of them once, numbered, from the claim to its commit."""
    found = steps()
    assert 10 <= len(found) <= MOST_FILES
    assert [step.number for step in found] == list(range(1, len(found) + 1))
    assert len({step.path for step in found}) == len(found)
    assert (found[0].path, found[-1].path) == (
        "runner/daemon/claim_turn.py",
        "runner/store/schema/functions/complete.sql",
    )
    # Only the first has none before it, and none comes from a later one.
    earlier = [step.before in {other.path for other in found[: step.number - 1]} for step in found]
    assert earlier == [False] + [True] * (len(found) - 1)


@pytest.mark.parametrize("step", steps()[1:], ids=lambda step: step.path)
def test_each_file_is_reached_as_the_list_says(step: Step) -> None:
    """By a call into an imported file, or by the hand-over that is named."""
    assert reaches(step)


@pytest.mark.parametrize(
    ("path", "before", "how"),
    [
        ("runner/evaluation/plan.py", "runner/daemon/slot.py", ""),
        ("runner/store/schema/functions/fail.sql", "runner/store/claims.py", "SQL"),
        ("sandbox/inside/pair.py", "runner/daemon/loop.py", "frames"),
        ("tasks/harness/worker/main.py", "sandbox/inside/pair.py", "process"),
        ("runner/store/results.py", "runner/daemon/claim_turn.py", "`QueueStore.complete_all`"),
        ("runner/store/claims.py", "runner/daemon/outcomes/writer.py", "`QueueStore.complete_all`"),
        ("runner/evaluation/attempt.py", "runner/daemon/slot.py", "`JobEvaluator`"),
    ],
)
def test_a_way_that_is_none_is_noticed(path: str, before: str, how: str) -> None:
    """For each kind of hand-over."""
    assert not reaches(Step(2, path, before, how))


@pytest.mark.parametrize("step", steps(), ids=lambda step: step.path)
def test_no_file_on_the_way_is_huge(step: Step) -> None:
    """One idea each; what is a part of one step alone lies beside the way."""
    assert len(text(step.path).splitlines()) <= 500
