"""The layer rules of docs/architecture.md#packages-and-imports, read off the import statements of every module."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from runner.store import QueueStore, Store, schema

ROOT = Path(__file__).resolve().parents[2]

#: Layer of each part of runner/; a module imports its own layer or a lower one, never a higher.
#: The longest name counts.
LAYERS = {
    "runner": 0,
    "runner.base": 0,
    "runner.base.gpu_types": 1,
    "runner.task_format": 2,
    "runner.devices": 3,
    "runner.store": 4,
    "runner.evaluation": 5,
    "runner.daemon": 9,
    "runner.daemon.interfaces": 6,
    "runner.daemon.leases": 6,
    "runner.daemon.outcomes": 7,
    "runner.daemon.monitoring": 8,
    "runner.cli": 10,
    "runner.extras": 5,
    "runner.extras.discord": 9,
    "runner.extras.gateway": 9,
    "runner.extras.mcp": 9,
}

#: Guest -> the other guests that it may import. The core imports none.
GUESTS = {
    "boards": set[str](),
    "data": set[str](),
    "discord": {"boards"},
    "gateway": {"boards"},
    "mcp": set[str](),
    "trainers.client": set[str](),
    "trainers.inside": set[str](),
    "trainers.kernelbook": {"trainers.client"},
    "trainers.kinds": {"trainers.inside"},
    "webhooks": set[str](),
}
#: Modules with a guest's commands, and of commands that several guests share.
COMMANDS = tuple(
    f"runner.extras.{name}"
    for name in (*(f"{guest}.commands" for guest in GUESTS), "data.analysis_commands", "receipt_commands", "stages")
)
LAYERS |= dict.fromkeys(COMMANDS, 11)
COMMAND_FILES = ("runner/cli/", *(name.replace(".", "/") for name in COMMANDS))


#: What guests have inside containers.
INSIDE = tuple(sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("runner/extras/**/inside")))
#: Third-party module -> the only places that may import it.
CONFINED = {
    "psycopg": ("runner/store/", "runner/extras/store.py", "runner/extras/data/snapshot.py"),
    "psycopg_pool": ("runner/store/session.py", "runner/extras/store.py"),
    "pyarrow": ("runner/extras/data/", "runner/extras/trainers/kernelbook/"),
    "transformers": ("runner/extras/trainers/kernelbook/",),
    "dotenv": ("runner/extras/trainers/kernelbook/",),
    "pandas": ("runner/extras/data/",),
    "docker": ("sandbox/",),
    "torch": ("tasks/", "sandbox/image/", *INSIDE, "runner/extras/boards/commands/rehearsal.py"),
    "numpy": ("tasks/", *INSIDE, "runner/extras/data/", "runner/extras/trainers/kernelbook/"),
    "pynvml": ("runner/devices",),
    "amdsmi": ("runner/devices",),
    "structlog": ("runner/base/logs.py",),
    "cryptography": ("runner/base/receipts.py", "runner/extras/receipts.py"),
    "typer": COMMAND_FILES,
    "rich": COMMAND_FILES,
    "matplotlib": ("runner/extras/data/",),
    "huggingface_hub": ("runner/extras/hub.py", "runner/extras/data/", "runner/extras/trainers/kernelbook/"),
    "prometheus_client": ("runner/base/metrics.py", "runner/daemon/monitoring/health.py", "runner/extras/gateway/"),
    "starlette": ("runner/extras/gateway/", "runner/extras/trainers/client/kernelgym.py"),
    "uvicorn": ("runner/extras/gateway/", "runner/extras/trainers/client/kernelgym.py"),
    "jinja2": ("runner/extras/gateway/",),
    "markdown_it": ("runner/extras/gateway/markup.py",),
    "PIL": ("runner/extras/gateway/pictures.py",),
    "python_multipart": ("runner/extras/gateway/",),
    "httpx2": (
        *("runner/extras/gateway/", "runner/extras/mcp/", "runner/extras/trainers/kernelbook/"),
        "runner/extras/webhooks/",
    ),
    "mcp": ("runner/extras/mcp/",),
    "discord": ("runner/extras/discord/",),
}

#: Only functions import them: together they cost more core-seconds than the rest of a command's start.
LAZY = {"cryptography", "docker", "requests", "urllib3"}

#: Folder of sandbox/ ("" is the top level) -> the folders that its modules may import. `inside` is copied into every
#: container without the other folders; `policy` is pure, so it can be read and tested without an engine; programs of
#: `image` run alone, while an image is built.
SANDBOX_ROOMS = {
    "": {""},
    "policy": {"", "policy"},
    "host": {"", "policy", "host"},
    "inside": {"", "inside"},
    "image": set(),
}

#: Runs inside the container: the standard library, torch, numpy and each other.
CONTAINER_CODE = (
    *("tasks/harness/", "tasks/problems/eval.py", "sandbox/inside/", "sandbox/mountinfo.py", "sandbox/protocol.py"),
    *INSIDE,
)
CONTAINER_IMPORTS = {"torch", "numpy", "sandbox", "tasks"}

#: May read the process environment: one module of ours, one of the KernelBook pipeline, which has names of its own,
#: and code that runs inside the container.
ENVIRONMENT_READERS = (
    "runner/base/environment.py",
    "runner/extras/boards/fork_server.py",
    "runner/extras/trainers/kernelbook/settings.py",
    *CONTAINER_CODE,
    "sandbox/host/engine.py",
)


#: The harness, and what guests have beside it: packages of the same folders.
HARNESSES = ("tasks.harness", *(folder.replace("/", ".") for folder in INSIDE))
#: Folder of these -> what it may import of them: the folders are the trust boundary.
HARNESS_IMPORTS = {
    "judge": {"judge", "shared", "emulate"},
    "worker": {"worker", "shared", "emulate"},
    "shared": {"shared"},
    "emulate": {"emulate"},
    # Runs before there is a judge or a worker.
    "preload": {"judge", "shared"},
}
#: The control process is a fork of the judge that runs the worker's code, with a kernel of the judge's own.
RUNS_THE_WORKER = {"tasks/harness/judge/control.py": {"tasks.harness.worker.main"}}


@cache
def modules() -> tuple[Path, ...]:
    """Every module of the three packages, without the task folders (their files are no package)."""
    found = tuple(
        path
        for package in ("runner", "sandbox", "tasks")
        for path in sorted((ROOT / package).rglob("*.py"))
        if not _in_task_folder(path)
    )
    assert len(found) > 20
    return found


@cache
def text_of(path: Path) -> str:
    """A module's source; read once for all rules."""
    return path.read_text(encoding="utf-8")


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Every node of a module's syntax tree; parsed once for all rules."""
    return tuple(ast.walk(ast.parse(text_of(path))))


def _in_task_folder(path: Path) -> bool:
    parts = path.relative_to(ROOT).parts
    return parts[:2] == ("tasks", "problems") and len(parts) > 3 and parts[2] != "formats"


def imports(path: Path) -> Iterator[str]:
    """Dotted names of everything a module imports, wherever the statement stands."""
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 or node.module is not None, f"{path}: import from the package by name"
            if node.level == 0 and node.module is not None:
                yield node.module
                # `from runner import store` imports the module runner.store.
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def harness_imports(path: Path) -> Iterator[str]:
    """Full dotted names of the modules of harnesses that a module imports, relative imports resolved."""
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith(HARNESSES))
        elif isinstance(node, ast.ImportFrom):
            module = ".".join([*(parts[: -node.level] if node.level else []), *(node.module or "").split(".")])
            if module.removesuffix(".") in HARNESSES:
                yield from (f"{module.removesuffix('.')}.{alias.name}" for alias in node.names)
            elif module.startswith(HARNESSES):
                yield module


def harness_folder(name: str) -> str | None:
    """The folder of a harness that a dotted name lies in; None outside of them, and for their own top levels."""
    home = next((each for each in HARNESSES if name.startswith(f"{each}.")), None)
    return None if home is None else name.removeprefix(f"{home}.").split(".")[0]


def layer(name: str) -> int | None:
    """The layer of a dotted name, by its longest known prefix; None outside runner/, and for a part without a layer."""
    parts = name.split(".")
    if parts[0] != "runner":
        return None
    if len(parts) == 1:
        return LAYERS["runner"]
    prefixes = (".".join(parts[:length]) for length in range(len(parts), 1, -1))
    return next((LAYERS[prefix] for prefix in prefixes if prefix in LAYERS), None)


def dotted(path: Path) -> str:
    """The module name of a path."""
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def relative(path: Path) -> str:
    """The path as the tables above write it."""
    return path.relative_to(ROOT).as_posix()


def top(name: str) -> str:
    """The package of a dotted name."""
    return name.split(".", maxsplit=1)[0]


def against(rule: Callable[[str, str], bool]) -> set[str]:
    """Every import, path and name, for which a rule does not hold."""
    found = ((relative(path), name) for path in modules() for name in imports(path))
    return {f"{place}: {name}" for place, name in found if not rule(place, name)}


def test_every_part_of_the_runner_has_a_layer() -> None:
    """A new module of runner/ must be given its place before it can be imported."""
    unplaced = {name for path in modules() if (name := dotted(path)).startswith("runner.") and layer(name) is None}
    assert not unplaced


def test_imports_go_downwards_only() -> None:
    """No module of runner/ imports one of a higher layer."""
    upwards = {
        f"{relative(path)} (layer {own}): {name} (layer {other})"
        for path in modules()
        if (own := layer(dotted(path))) is not None
        for name in imports(path)
        if (other := layer(name)) is not None and other > own
    }
    assert upwards == set()


def guest(name: str) -> str | None:
    """The guest that a dotted name belongs to; None for the core, and for what guests share."""
    return next((each for each in GUESTS if f"{name}.".startswith(f"runner.extras.{each}.")), None)


def test_the_core_imports_no_guest_and_a_guest_only_those_in_the_table() -> None:
    """A host runs without what guests need; the command line has their modules as texts."""
    assert {guest(dotted(path)) for path in modules()} == {*GUESTS, None}, "a guest without modules"

    def may(path: str, name: str) -> bool:
        if not name.startswith("runner.extras"):
            return True
        own = guest(dotted(ROOT / path))
        return path.startswith("runner/extras") and guest(name) in {own, None, *GUESTS.get(own or "", ())}

    assert against(may) == set()


def test_a_daemon_has_the_queue_alone() -> None:
    """No thread of it can create a leaderboard, submit or rerun: `QueueStore` has no such method."""
    wider = {
        relative(path)
        for path in modules()
        if relative(path).startswith("runner/daemon/") and "runner.store.Store" in imports(path)
    }
    assert wider == set()
    theirs = {name for name in dir(QueueStore) if not name.startswith("_")}
    assert not theirs & {"create_board", "update_board", "delete_board", "submit", "rerun", "invalidate"}
    assert theirs < {name for name in dir(Store) if not name.startswith("_")}


def test_a_host_does_not_read_its_wall_clock() -> None:
    """So it may be set while a daemon runs: spans are monotonic, and moments are the database's."""
    wall = re.compile(r"\btime\.time(_ns)?\(|\bdatetime\.(now|utcnow|today)\(")
    host = (
        *("runner/daemon/", "runner/devices/", "runner/evaluation/", "runner/store/", "sandbox/host/"),
        *("runner/extras/boards/kinds/", "runner/extras/trainers/kinds/"),
    )
    wrong = {relative(path) for path in modules() if relative(path).startswith(host) and wall.search(text_of(path))}
    assert wrong == set()


#: Place -> packages of ours that its modules do not import. What is below the evaluation is used without a container.
STRANGERS = {
    "sandbox/": ("runner", "tasks"),
    "tasks/": ("runner",),
    **{f"runner/{part}/": ("sandbox", "tasks") for part in ("base", "devices", "store", "task_format")},
}


def test_the_sandbox_and_the_tasks_do_not_know_the_runner() -> None:
    """Nor what is below the evaluation the sandbox and the tasks; tasks/ imports of sandbox/ the protocol alone."""

    def may(path: str, name: str) -> bool:
        if path.startswith("tasks/") and name.startswith("sandbox."):
            return name.startswith("sandbox.protocol")
        return not any(path.startswith(place) and top(name) in strangers for place, strangers in STRANGERS.items())

    assert against(may) == set()


def room(name: str) -> str:
    """The folder of sandbox/ that a dotted name lies in; the empty string for its top level."""
    part = name.split(".")[1] if "." in name else ""
    return part if part in SANDBOX_ROOMS else ""


def test_the_folders_of_the_sandbox_import_only_what_runs_where_they_run() -> None:
    """What runs in the container knows nothing of the host's part, and the policy knows neither."""
    paths = [path for path in modules() if relative(path).startswith("sandbox/")]
    assert [path for path in paths if relative(path).count("/") > 1 and not room(dotted(path))] == [], "without a rule"

    def may(path: str, name: str) -> bool:
        in_sandbox = path.startswith("sandbox/") and top(name) == "sandbox"
        return not in_sandbox or room(name) in SANDBOX_ROOMS[room(dotted(ROOT / path))]

    assert against(may) == set()


def test_a_container_gets_the_modules_that_run_inside_and_no_other() -> None:
    """The host stages this list; a module that is missing there would break every container."""
    from sandbox.host.stage import INSIDE

    sandbox = ROOT / "sandbox"
    staged = {path.relative_to(sandbox).as_posix() for pattern in INSIDE for path in sandbox.glob(pattern)}
    inside = {path.relative_to(sandbox).as_posix() for path in (sandbox / "inside").rglob("*.py")}
    assert staged == inside | {"__init__.py", "mountinfo.py", "protocol.py"}


def test_judge_and_worker_import_only_what_they_share() -> None:
    """The judge imports nothing of the worker, nor the worker of the judge: a submission may rewrite the worker."""
    starts_both = {"local": {"judge", "emulate", "roles"}}
    foreign = set()
    assert INSIDE
    for path in modules():
        folder = harness_folder(dotted(path))
        if folder is None:
            continue
        names = set(harness_imports(path)) - RUNS_THE_WORKER.get(relative(path), set())
        if folder in starts_both:
            # As processes of their own.
            assert {harness_folder(name) for name in names} == starts_both[folder], relative(path)
        else:
            foreign |= {
                f"{relative(path)}: {name}" for name in names if harness_folder(name) not in HARNESS_IMPORTS[folder]
            }
    assert foreign == set(), "imported across the trust boundary"


def test_third_parties_stay_in_their_rooms() -> None:
    """Psycopg only in the store, the Docker SDK only in the sandbox, torch only in tasks, NVML only in devices."""
    assert against(lambda path, name: path.startswith(CONFINED.get(top(name), ("",)))) == set()


def test_what_takes_long_to_import_is_imported_where_it_is_used() -> None:
    """No module imports it on its own import; what the type checker alone reads does not count."""
    eager = {
        f"{relative(path)}: {name}" for path in modules() for name in imported_with(path) if name.split(".")[0] in LAZY
    }
    assert eager == set()


def imported_with(path: Path) -> Iterator[str]:
    """What a module imports when it is imported itself."""
    waiting: list[ast.AST] = list(ast.iter_child_nodes(nodes_of(path)[0]))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            waiting += node.orelse
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            waiting += ast.iter_child_nodes(node)


def test_container_code_needs_nothing_but_torch_and_numpy() -> None:
    """What runs inside the container imports the standard library, torch and numpy only: images are the operator's."""
    # Beside modules of the task under evaluation, which lie beside the program at run time.
    there = {*sys.stdlib_module_names, *CONTAINER_IMPORTS, "reference", "submission", "task", "utils", "harness"}
    assert sum(relative(path).startswith(CONTAINER_CODE) for path in modules()) > 20

    def may(path: str, name: str) -> bool:
        return not path.startswith(CONTAINER_CODE) or top(name) in there or name.startswith(HARNESSES[1:])

    assert against(may) == set()


def test_the_environment_is_read_in_one_place() -> None:
    """os.environ and os.getenv stand in runner/base/environment.py and in few modules besides, each for a reason."""
    readers = {relative(path) for path in modules() if re.search(r"\bos\.(?:environ|getenv)\b", text_of(path))}
    assert {reader for reader in readers if not reader.startswith(ENVIRONMENT_READERS)} == set(), (
        "ask runner.base.environment"
    )


def test_sql_stands_in_sql_files() -> None:
    """No string of a Python module is an SQL statement."""
    statement = re.compile(
        r"^\s*(select\s.+\sfrom|insert\s+into|update\s+\S+\s+set|delete\s+from|create\s+(table|schema|function|role)"
        r"|alter\s+(table|role)|grant\s|notify\s|listen\s)",
        re.IGNORECASE | re.DOTALL,
    )
    found = set()
    for path in modules():
        # SQLite, a file of its own; and calls of functions, made of their signatures.
        if relative(path) in {"runner/extras/trainers/kernelbook/journal.py", "runner/store/queries.py"}:
            continue
        nodes = nodes_of(path)
        documentation = {
            node.body[0].value
            for node in nodes
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
        }
        found |= {
            f"{relative(path)}:{node.lineno}: {node.value[:60]!r}"
            for node in nodes
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in documentation
            if statement.match(node.value)
        }
    assert found == set()


def test_no_sql_of_the_core_names_what_lies_with_guests() -> None:
    """Nor that of a guest what lies with another one: it uses the core's, its own, and what several guests share."""
    shared = ROOT / "runner/extras/schema"
    homes = {path.stem: path.parents[1] for path in schema.paths("tables", "functions", "views")}
    assert {ROOT / "runner/store/schema", shared} < set(homes.values())
    wrong = set()
    for folder in schema.FOLDERS:
        may = {ROOT / "runner/store/schema", folder, *([] if folder == schema.FOLDERS[0] else [shared])}
        # What an earlier release had lay elsewhere.
        for path in (path for path in folder.rglob("*.sql") if path.parent.name != "migrations"):
            names = re.findall(
                r"\brunner\.(\w+)", re.sub(r"--.*|COMMENT ON[^;]*;", "", path.read_text(encoding="utf-8"))
            )
            wrong |= {f"{relative(path)}: {name}" for name in names if homes.get(name, folder) not in may}
    assert wrong == set()


def test_connections_are_opened_in_one_place() -> None:
    """A connection opened elsewhere has whatever settings a database, a role or the environment gives it."""
    opening = re.compile(
        r"\b(?:psycopg|\w*[cC]onnection(?:_class)?(?:\[\w+\])?)\.connect\(|\w*ConnectionPool(?:\[\w+\])?\("
    )
    places = {relative(path) for path in modules() if opening.search(text_of(path))}
    assert places == {"runner/store/session.py"}


def test_functions_read_the_same_whatever_a_backslash_means_in_a_session() -> None:
    """With `standard_conforming_strings = off` a plain literal loses its backslashes, in a caller's session, too."""
    # One that goes on in the next line is of the kind that it began as.
    literal = re.compile(r"(?<!\w)([eE]?)('(?:[^']|'')*'(?:\s*\n\s*'(?:[^']|'')*')*)")
    plain = {
        f"{path.name}: {found}"
        for path in schema.paths("functions")
        for kind, found in literal.findall(re.sub(r"--.*", "", path.read_text(encoding="utf-8")))
        if "\\" in found and not kind
    }
    assert plain == set(), "write E'...' and double the backslash"
