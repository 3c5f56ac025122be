"""What is wrong with the tasks of open leaderboards: else every submission is invalid, and no list shows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from runner.base.errors import TaskError
from runner.base.safe import printable
from runner.store import Store
from runner.store.session import Unloadable
from runner.task_format import from_stored, unknown_keys


@dataclass(frozen=True, kw_only=True)
class TaskFaults:
    """What is wrong with tasks, by the leaderboard's name."""

    #: Why it does not load.
    broken: Mapping[str, str] = field(default_factory=dict)
    #: The keys that this release does not know, and leaves out.
    unknown: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def texts(self) -> Iterator[str]:
        """Which leaderboards can evaluate nothing, and why; and of which some keys are not used."""
        for name, reason in self.broken.items():
            remedy = f"kernel-runner leaderboard update DIR --name {printable(name)}"
            yield f"a task does not load, so every submission is invalid: {printable(reason)}; correct it: {remedy}"
        for name, keys in self.unknown.items():
            unused = printable(", ".join(keys))
            yield f"leaderboard {printable(name)}: this release knows and uses no {unused} of its task"


def task_faults(store: Store) -> TaskFaults | None:
    """Of all open leaderboards; None: this login may not read tasks."""
    records = store.open_tasks()
    if records is None:
        return None
    broken, unknown = {}, {}
    for record in records:
        name, task, extra = record["name"], record["task"], record["extra"]
        origin = f"leaderboard {name!r}"
        for part in (task, extra):
            if isinstance(part, Unloadable):
                broken[name] = f"{origin}: {part.cause}"
        if name not in broken:
            try:
                from_stored(task, extra, origin=origin)
            except TaskError as error:
                broken[name] = "; ".join(str(error).splitlines())
        if isinstance(task, Mapping) and (keys := unknown_keys(task)):
            unknown[name] = keys
    return TaskFaults(broken=broken, unknown=unknown)
