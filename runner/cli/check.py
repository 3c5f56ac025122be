"""`check`: is this host ready? Looks at everything `serve` relies on and says what to do about each finding.

Owns the order of the questions. Version floors are in `runner.cli.versions`; the facts come from the configuration, the
store, the engine and the device detection. After a failed question the later ones go on, unless they need its answer.
"""

from __future__ import annotations

import os
import platform
import pwd
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer

from runner.base.config import Config
from runner.base.disk import disk_spaces
from runner.base.errors import ConfigError, DatabaseUnavailableError, KernelRunnerError
from runner.base.gpu_types import Registry
from runner.base.model import Slot
from runner.cli import engines
from runner.cli.app import Session, app, example, out, out_json, session
from runner.cli.finding import Finding, Mark, render, verdict_of
from runner.cli.programs import IMPORT_TIMEOUT_S, prove
from runner.cli.task_faults import task_faults
from runner.devices import described, detect_slots, list_devices
from runner.evaluation.container_spec import HOST_IMAGE
from runner.store import Store
from runner.store.probe import DatabaseFacts, hidden_text, probe
from sandbox.errors import RootFilesystemError, SandboxError
from sandbox.host.engine import DockerEngine, EngineFacts
from sandbox.host.hostroot import HostRoot
from sandbox.protocol import StepResult
from sandbox.spec import ACCOUNTS

#: Connections that a host keeps while it is idle, and how many a busy one has at most.
CONNECTIONS_OF_AN_IDLE_HOST: Final = 2
CONNECTIONS_OF_A_HOST: Final = 6
#: A transaction that has written and stays open for longer, or while so many others begin, keeps marks from moving.
WRITE_OPEN_S: Final = 60.0
TRANSACTIONS_SINCE_WRITE: Final = 10_000

#: Whom the host gives which uids in containers of their own.
_SUBORDINATE = (Path("/etc/subuid"), Path("/etc/subgid"))


@app.command(
    epilog=example(
        "kernel-runner check\n"
        "✓ python: 3.11.7 at /opt/kernel-runner/bin/python3\n"
        "✗ schema: not there; missing 0001_baseline\n"
        "    run `kernel-runner migrate`"
    )
)
def check(
    context: typer.Context,
    *,
    strict: Annotated[bool, typer.Option("--strict", help="Count warnings as failures; notes not.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check that this host is ready to evaluate.

    Looks at configuration, database (notifications do not arrive through a pooler in transaction mode), engines and
    their versions, cgroups, disks, runtimes, evaluation environment, devices, slots and their memory. Then starts a
    container as for a submission, imports torch, and compiles C++ and, if nvcc is there, CUDA.

    `✓` is well, `·` a note, `!` a warning, `✗` a failure, with the remedy below. Exits with 1 if something fails, 3 if
    database or engine are missing.
    """
    findings: list[Finding] = []
    for finding in _examine(session(context)):
        counted = replace(finding, mark=Mark.FAILED) if strict and finding.mark is Mark.WARNING else finding
        findings.append(counted)
        if not as_json:
            out(render(counted))
    if as_json:
        failed = any(finding.mark is Mark.FAILED for finding in findings)
        out_json({"ok": not failed, "checks": [finding.to_json() for finding in findings]})
    raise typer.Exit(verdict_of(findings))


def _examine(current: Session) -> Iterator[Finding]:
    yield Finding.ok("python", f"{platform.python_version()} at {sys.executable}")
    try:
        config = current.config
        registry = Registry.load(config.gpus_dir)
    except ConfigError as error:
        # Nothing below can be asked without a configuration.
        yield Finding.failed("configuration", str(error), "correct it and check again")
        return
    yield Finding.ok("configuration", f"host {config.host_name}, state in {config.state_dir}")
    yield from _database(config)
    yield _evaluation_environment(config)
    yield _devices()
    slots: tuple[Slot, ...] = ()
    try:
        slots = detect_slots(registry, config)
        yield _slots(slots)
        yield _memory(registry, slots, total_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except KernelRunnerError as error:
        yield Finding.failed("slots", str(error), "correct `slots` in the configuration")
    if _host_slot(registry, slots) is not None:
        yield from _host_root(config)
    yield from _engine(config, registry, slots)


def _database(config: Config) -> Iterator[Finding]:
    try:
        facts = probe(config.require_database_url(), config.direct_host)
    except ConfigError as error:
        yield Finding.failed("database", str(error), infrastructure=True)
        return
    except DatabaseUnavailableError as error:
        remedy = (
            "start PostgreSQL, or correct its address (DATABASE_URL, direct_host); standbys, and "
            "default_transaction_read_only, take no writes"
        )
        yield Finding.failed("database", str(error), remedy, infrastructure=True)
        return
    yield Finding.ok("database", f"PostgreSQL {facts.server_version}, database {facts.database}")
    yield from _connections(facts, config.host_name, pooled=config.direct_host is not None)
    yield _open_writes(facts)
    yield _schema(facts)
    yield from _triggers(facts)
    if facts.login is not None:
        yield _login(facts, config.host_name)
    yield _session(facts)
    if not facts.pending and not facts.newer:
        yield _tasks(config)
    if facts.direct:
        yield Finding.ok("notifications", "arrive")
    else:
        fact = "do not arrive: the connection goes through a pooler in transaction mode"
        remedy = "set direct_host to the server itself, or let DATABASE_URL name it or a pool in session mode"
        yield Finding.failed("notifications", fact, remedy)


def _tasks(config: Config) -> Finding:
    """Whether the tasks of open leaderboards load: else every submission is invalid, and no list shows it."""
    name = "tasks"
    store = Store(config.require_database_url(), application_name="kernel-runner check", direct_host=config.direct_host)
    with closing(store):
        faults = task_faults(store)
    if faults is None:
        return Finding.ok(name, "not read: this login may not")
    unused = [f"{board}: unknown and not used: {', '.join(keys)}" for board, keys in faults.unknown.items()]
    if not faults.broken:
        mark = Mark.WARNING if unused else Mark.OK
        return Finding(name=name, mark=mark, fact="; ".join(["those of open leaderboards load", *unused]))
    remedy = "correct them (kernel-runner leaderboard update DIR --name NAME)"
    return Finding.warning(name, ". ".join([*faults.broken.values(), *unused]), remedy)


def _session(facts: DatabaseFacts) -> Finding:
    """Whether text on the wire reads as the driver expects it, whatever the database or the login sets."""
    if not facts.misread:
        return Finding.ok("session", "keeps its settings")
    remedy = (
        "set direct_host to the server itself: a pooler in transaction mode, or another program before it, changes them"
    )
    return Finding.failed("session", "; ".join(facts.misread), remedy)


def _connections(facts: DatabaseFacts, host_name: str, *, pooled: bool) -> Iterator[Finding]:
    """Whether server, database and login have connections enough for this host and the others.

    Too few for one busy host, or for all that are idle, is a failure: results would wait, or some hosts could not
    claim. Behind a pooler a host keeps one too, to listen.
    """
    idle, busy = (1, 1) if pooled else (CONNECTIONS_OF_AN_IDLE_HOST, CONNECTIONS_OF_A_HOST)
    everyone, mine = max(1, facts.all_hosts or 0), len({*facts.hosts, host_name})
    restart = "raise max_connections, and restart the server"
    for limit, who, hosts, remedy in (
        (facts.connections, "the server gives", everyone, restart),
        (facts.database_limit, "this database may have", everyone, "raise its CONNECTION LIMIT"),
        (facts.login_limit, "this login may have", mine, "raise its CONNECTION LIMIT"),
    ):
        if limit is None:
            continue
        used = f", {facts.connected} are used" if remedy is restart else ""
        fact = (
            f"{who} {limit}{used}; {hosts} host{'' if hosts == 1 else 's'} may need {hosts * busy} besides "
            f"{'the pool' if pooled else 'frontends'}"
        )
        if limit >= hosts * busy:
            yield Finding.ok("connections", fact)
            continue
        mark = Mark.FAILED if limit < max(busy, hosts * idle) else Mark.WARNING
        or_pooler = "" if pooled else "; or use a pooler (direct_host)"
        yield Finding(name="connections", mark=mark, fact=fact, remedy=remedy + or_pooler)


def _open_writes(facts: DatabaseFacts) -> Finding:
    """Whether a transaction that has written stays open, in any database of the server: then claims become slower."""
    name = "open transactions"
    age_s, since = facts.write_open_s or 0.0, facts.transactions_since_write
    if age_s <= WRITE_OPEN_S and since <= TRANSACTIONS_SINCE_WRITE:
        return Finding.ok(name, "none that has written stays open")
    age = f"for {age_s:.0f} s" if age_s > WRITE_OPEN_S else f"while {since} others began"
    return Finding.warning(
        name,
        f"one that has written has been open {age}: claims become slower with each thousand jobs",
        "end it (docs/operations.md#snapshots-that-stay-open)",
    )


def _schema(facts: DatabaseFacts) -> Finding:
    if facts.hidden:
        return Finding.failed("schema", hidden_text(facts.hidden))
    if facts.newer:
        fact = f"version {facts.version}, which this release does not know"
        return Finding.failed("schema", fact, "update kernel-runner on this host")
    if facts.pending:
        fact = f"{facts.version or 'not there'}; missing {', '.join(facts.pending)}"
        return Finding.failed("schema", fact, "run `kernel-runner migrate`")
    return Finding.ok("schema", f"version {facts.version}")


def _triggers(facts: DatabaseFacts) -> Iterator[Finding]:
    if facts.unpinned_triggers:
        yield Finding.warning(
            "triggers",
            f"{'; '.join(facts.unpinned_triggers)}: under our functions these find no name without its schema, and "
            "what they refuse cannot be stored",
            "ALTER FUNCTION ... SET search_path = the schemas that it needs",
        )


def _login(facts: DatabaseFacts, host_name: str) -> Finding:
    """Other hosts that the daemon's login may act for."""
    name = "login"
    remedy = "give each host a login of its own (docs/security.md#the-database)"
    if facts.owner:
        fact = f"{facts.login} has the rights of the database's owner: it reads everything and acts for every host"
        return Finding(name=name, mark=Mark.NOTE, fact=fact, remedy=remedy)
    others = [host for host in facts.hosts if host != host_name]
    if others:
        fact = f"{facts.login} may also act for {', '.join(others)}: it can end and forge what runs there"
        return Finding(name=name, mark=Mark.NOTE, fact=fact, remedy=remedy)
    return Finding.ok(name, f"{facts.login} acts for this host only")


def _evaluation_environment(config: Config) -> Finding:
    name = "evaluation environment"
    try:
        python = config.require_eval_python()
    except ConfigError as error:
        return Finding.failed(name, str(error))
    remedy = (
        f"create it (python3 -m venv {python.parent.parent}; {python} -m pip install torch numpy ninja setuptools), "
        "or set `eval_python`"
    )
    try:
        probe = subprocess.run(
            [str(python), "-I", "-c", "import torch; print(torch.__version__)"],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=IMPORT_TIMEOUT_S,
            check=False,
        )
    except OSError as error:
        return Finding.failed(name, f"{python}: {error.strerror}", remedy)
    except subprocess.TimeoutExpired:
        fact = f"{python}: importing torch takes longer than {IMPORT_TIMEOUT_S:.0f} s"
        return Finding.failed(name, fact, "look at the disk it is on")
    if probe.returncode != 0:
        last = (probe.stderr.strip().splitlines() or ["no message"])[-1]
        return Finding.failed(name, f"{python}: {last}", remedy)
    return Finding.ok(name, f"{python}, torch {probe.stdout.strip()}")


def _host_root(config: Config) -> Iterator[Finding]:
    """What keeps containers from using the environment, if anything does."""
    try:
        HostRoot(eval_python=config.require_eval_python()).binds()
    except ConfigError:
        # It has been told above.
        return
    except RootFilesystemError as error:
        yield Finding.failed("environment of containers", str(error), "make another environment, or set `eval_python`")


def _devices() -> Finding:
    """What the vendors' libraries say; which type each is, `gpu detect` says."""
    listing = list_devices()
    if listing.problems:
        remedy = "see what the driver says (dmesg, nvidia-smi, amd-smi); a host that shall do without needs no driver"
        return Finding.failed("devices", "; ".join(listing.problems), remedy)
    fact = ", ".join(f"{device.vendor} {device.index} {described(device)}" for device in listing.devices)
    return Finding.ok("devices", fact or "none here; this host serves processor cores")


def _slots(slots: Sequence[Slot]) -> Finding:
    if not slots:
        remedy = "check the driver (nvidia-smi, amd-smi), or list them under `slots` in the configuration"
        return Finding.failed("slots", "none", remedy)
    return Finding.ok("slots", ", ".join(f"{slot.name} ({slot.gpu_type}, {len(slot.cpus)} cores)" for slot in slots))


def _memory(registry: Registry, slots: Sequence[Slot], *, total_bytes: int) -> Finding:
    """Whether all slots together may fill more than the host has: then the kernel kills processes of any of them."""
    needed_gib, has_gib = sum(registry.get(slot.gpu_type).memory_gib for slot in slots), total_bytes / (1 << 30)
    fact = f"{needed_gib:.1f} GiB for containers of all slots, of {has_gib:.1f} GiB"
    if needed_gib <= has_gib:
        return Finding.ok("memory", fact)
    remedy = "lower `memory_gib` of the GPU types (`kernel-runner gpu show`), or configure fewer `slots`"
    return Finding.warning("memory", f"{fact}: the kernel may kill what is within its limit", remedy)


def _engine(config: Config, registry: Registry, slots: Sequence[Slot]) -> Iterator[Finding]:
    try:
        engine = DockerEngine(config.docker_host, owner=f"{config.host_name}/check")
        facts = engine.check()
    except SandboxError as error:
        yield Finding.failed(
            "engine",
            str(error),
            "start Docker, let this user reach its socket, or set `docker_host` (DOCKER_HOST)",
            infrastructure=True,
        )
        yield from _disks(config, None)
        return
    with engine:
        yield Finding.ok("engine", f"Docker API {facts.api_version}, version {facts.version}, at {engine.base_url}")
        if not facts.rootless:
            yield _uids()
        yield from engines.versions({**facts.components, **engines.toolkit_version()})
        yield _cgroup(facts)
        yield from _disks(config, facts)
        used: dict[str, list[str]] = {}
        for gpu_type in dict.fromkeys(slot.gpu_type for slot in slots):
            used.setdefault(registry.get(gpu_type).runtime, []).append(gpu_type)
        yield from engines.runtimes(facts, used)
        yield from _images(engine, registry, slots)
        for name in dict.fromkeys(slot.gpu_type for slot in slots):
            mine = [slot for slot in slots if slot.gpu_type == name]
            yield from engines.device_access(registry.get(name), mine, facts.cdi)
        yield from _sandbox(engine, config, registry, slots)


def _uids() -> Finding:
    """Whether users of this host have uids of containers, or may have them in containers of their own."""
    name, first, last = "uids of containers", ACCOUNTS[0].judge - 1, ACCOUNTS[-1].worker
    users = {entry.pw_name for entry in pwd.getpwall() if first <= entry.pw_uid <= last}
    for file in _SUBORDINATE:
        text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
        for line in text.splitlines():
            user, _, given = line.partition(":")
            start, _, count = given.partition(":")
            if start.isdecimal() and count.isdecimal() and int(start) <= last and first < int(start) + int(count):
                users.add(f"{user} (by {file})")
    if not users:
        return Finding.ok(name, f"{first} to {last}, no user's")
    shown = ", ".join(sorted(users)[:3]) + (f" and {len(users) - 3} more" if len(users) > 3 else "")
    return Finding.warning(
        name,
        f"{first} to {last}; among them are those of {shown}, who could read and end what runs in containers",
        "give these users other uids, or serve from a host without them",
    )


def _cgroup(facts: EngineFacts) -> Finding:
    fact = f"version {facts.cgroup_version}, driver {facts.cgroup_driver}, storage {facts.storage_driver}"
    if str(facts.cgroup_version) != "2":
        remedy = "boot with systemd.unified_cgroup_hierarchy=1; version 1 works, but says less about killed processes"
        return Finding.warning("cgroup", fact, remedy)
    return Finding.ok("cgroup", fact)


def _disks(config: Config, facts: EngineFacts | None) -> Iterator[Finding]:
    roots = () if facts is None else facts.data_roots
    for space in disk_spaces(config.state_dir, roots, floor_gib=config.min_free_gib):
        if space.enough:
            yield Finding.ok("disk", str(space))
        else:
            yield Finding.failed("disk", f"{space}; no job is taken", space.remedy)


def _images(engine: DockerEngine, registry: Registry, slots: Sequence[Slot]) -> Iterator[Finding]:
    """Whether the engine has the images that the slots' GPU types name; `serve` proves each with a container."""
    for gpu in (registry.get(name) for name in dict.fromkeys(slot.gpu_type for slot in slots)):
        if gpu.image == HOST_IMAGE:
            continue
        name = f"image of {gpu.name}"
        try:
            fact = f"{gpu.image}, {engine.image_id(gpu.image).removeprefix('sha256:')[:12]}"
        except SandboxError as error:
            remedy = (
                f"`docker build`, `docker pull`, `docker load`, or another `image` in the file of GPU type {gpu.name}"
            )
            yield Finding.failed(name, str(error), remedy)
        else:
            yield Finding.ok(name, fact)


def _host_slot(registry: Registry, slots: Sequence[Slot]) -> Slot | None:
    return next((slot for slot in slots if registry.get(slot.gpu_type).image == HOST_IMAGE), None)


def _sandbox(engine: DockerEngine, config: Config, registry: Registry, slots: Sequence[Slot]) -> Iterator[Finding]:
    """Start one container in the host's root file system and do in it what submissions rely on."""
    slot = _host_slot(registry, slots)
    if slot is None:
        if slots:
            fact = "no slot uses the host's root file system; images are proved when `serve` starts"
            yield Finding.ok("sandbox", fact)
        return
    try:
        results = prove(engine, config, registry.get(slot.gpu_type), slot)
    except (SandboxError, KernelRunnerError) as error:
        remedy = "see the engine's own log; the container is created with every protection on"
        yield Finding.failed("sandbox", engines.shortened(str(error)), remedy)
        return
    except OSError as error:
        fact = f"{error.filename}: {error.strerror}, for the code that containers read"
        yield Finding.failed("sandbox", fact, "let this user write to `state_dir`, or check as root")
        return
    yield from _proof_findings(results)


def _proof_findings(results: Sequence[StepResult]) -> Iterator[Finding]:
    by_name = {result.name: result for result in results}
    yield _ours(by_name.get("ours"))
    questions: tuple[tuple[str, str, str, Callable[[StepResult], str]], ...] = (
        (
            "python",
            "torch in the sandbox",
            "the evaluation environment and its base prefix must be readable for all users",
            lambda result: result.stdout.strip(),
        ),
        ("ldconfig", "libraries in the sandbox", "Triton asks /sbin/ldconfig; install libc-bin", lambda _: "ldconfig"),
        ("c++", "C++ in the sandbox", "install g++ (build-essential) on the host", lambda _: "compiles"),
        ("cuda", "CUDA in the sandbox", "check the CUDA toolkit under /usr/local/cuda", lambda _: "compiles"),
    )
    for step, name, remedy, fact in questions:
        result = by_name.get(step)
        if result is None and step == "cuda":
            # No nvcc there: nothing to prove on a host without NVIDIA devices.
            continue
        if result is not None and result.exit_code == 0:
            mark, text = Mark.OK, fact(result)
            if step == "python" and not text.endswith("as worker"):
                mark, text = Mark.FAILED, f"{text}, expected the user worker"
            yield Finding(name=name, mark=mark, fact=text, remedy=None if mark is Mark.OK else remedy)
        else:
            yield Finding.failed(name, _failure(result), remedy)


def _ours(result: StepResult | None) -> Finding:
    name = "our files in the sandbox"
    if result is None or result.exit_code != 0:
        return Finding.failed(name, _failure(result))
    readable = result.stdout.split("\n")[:-1] if result.stdout.strip() else []
    if not readable:
        return Finding.ok(name, "none")
    more = f" and {len(readable) - 3} more" if len(readable) > 3 else ""
    return Finding.warning(
        name,
        f"submissions can read {', '.join(readable[:3])}{more}: solutions and hidden cases may be among them",
        "move them out of /usr and of the evaluation environment, or forbid others to read them (chmod o-rx)",
    )


def _failure(result: StepResult | None) -> str:
    if result is None:
        return "the probe did not run"
    if result.timed_out:
        return f"{result.command}: no end after {result.duration_ns / 1e9:.0f} s"
    last = (result.stderr.strip().splitlines() or ["no message"])[-1]
    return f"{result.command}: exit code {result.exit_code}, {last}"
