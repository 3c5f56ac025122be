"""Collects what the log's lines are called, from the source; `python -m tests.unit.logs.events` writes the page.

The page ends with the metrics.

An event is the first argument of a call of a module's `_log`: a literal or a constant. Events that are handed over in a
variable are in `ELSEWHERE`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.unit.monitoring.families import table

ROOT: Final = Path(__file__).resolve().parents[3]
PAGE: Final = ROOT / "docs" / "log-events.md"
LEVELS: Final = ("debug", "info", "warning", "error", "exception")
#: (module, variable) -> the events it holds; each must stand in the module's source.
ELSEWHERE: Final[Mapping[tuple[str, str], Sequence[str]]] = {
    ("runner/daemon/slot.py", "what"): (
        "job_failed",
        "run_stopped_lease_lost",
        "run_cancelled",
        "run_stopped_by_shutdown",
    ),
    ("runner/devices/quarantine.py", "event"): ("slot_container_gone", "slot_devices_fit", "slot_works"),
}
HEAD: Final = """# Log events and metrics

## Log events

All errors and warnings, and the lines of one submission:

```sh
journalctl -u kernel-runner -o cat | jq -cR 'fromjson? | objects | select(.level == "error" or .level == "warning")'
journalctl -u kernel-runner -o cat | jq -cR 'fromjson? | objects | select(.submission == 7)'
```

With `log_format = "json"` every line is an object with `event`, `level`, `timestamp`, `component` and fields of its
own. Lines about a job have `job`, `submission`, `attempt`, `run` (job and attempt in one word), `leaderboard`,
`gpu_type`, `mode` and `slot`. No line has passwords, tokens, seeds or a submission's source.

| event | level | where |
|---|---|---|
"""


METRICS: Final = """
## Metrics

Beside these, the process's own (`process_resident_memory_bytes`, ...). `gpu_type` is the name that the job uses, for
slots the type's own; `kernel_runner_slots_usable` has both. Every host shows the same queue, at most a minute old: take
the `max`, not the sum.

"""


@dataclass(frozen=True, order=True)
class Event:
    """A name, how grave it is, and which module says it."""

    name: str
    level: str
    module: str


def collect() -> list[Event]:
    """Every event of the daemon and of what it is built from.

    Raises:
        ValueError: an event that cannot be read off the source, or that `ELSEWHERE` has and the source has not.
    """
    found: set[Event] = set()
    for package in ("runner", "sandbox"):
        for path in sorted((ROOT / package).rglob("*.py")):
            found.update(_events(path))
    return sorted(found)


def page() -> str:
    """docs/log-events.md as it should be."""
    rows = [f"| `{event.name}` | {event.level} | `{event.module}` |" for event in collect()]
    return HEAD + "\n".join(rows) + "\n" + METRICS + table()


def _events(path: Path) -> Iterator[Event]:
    module = path.relative_to(ROOT).as_posix()
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    constants = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if not (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "_log"
            and node.func.attr in LEVELS
        ):
            continue
        level = "error" if node.func.attr == "exception" else node.func.attr
        for name in _names(node.args[0], module, source, constants):
            yield Event(name=name, level=level, module=dotted(module))


def _names(said: ast.expr, module: str, source: str, constants: Mapping[str, ast.expr]) -> Sequence[str]:
    if isinstance(said, ast.Name) and (module, said.id) in ELSEWHERE:
        names = ELSEWHERE[module, said.id]
        for name in names:
            if name.partition("…")[0] not in source:
                raise ValueError(f"{module}: {name!r} is not said there any more; mend ELSEWHERE")
        return names
    if isinstance(said, ast.Name):
        imported = constants.get(said.id) or _imported(said.id)
        return [_literal(imported, module)]
    return [_literal(said, module)]


def _literal(node: ast.expr | None, module: str) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    shown = "nothing" if node is None else ast.unparse(node)
    raise ValueError(f"{module}: an event is {shown}, expected a literal (fields are for what varies)")


def _imported(name: str) -> ast.expr | None:
    """A constant of the module that the others take it from."""
    if name != "LEFT_TO_ITS_LEASE":
        return None
    tree = ast.parse((ROOT / "runner/daemon/outcomes/writer.py").read_text(encoding="utf-8"))
    return next(
        node.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name
    )


def dotted(module: str) -> str:
    """A module's name, by its path."""
    return module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
