"""`migrate`, `host list`, `gpu list`, `check` and the exit codes when something is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from sysconfig import get_path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import runner
import sandbox
import tasks
from runner.base.model import Json
from runner.cli import check
from runner.cli.finding import Mark
from runner.store import HostRecord, Store
from runner.store.migrate import migrate
from runner.store.probe import DatabaseFacts, probe
from tests.integration.cli.conftest import Call, write_task
from tests.integration.store.test_migrate import VERSIONS
from tests.support.waiting import PATIENCE_S

STARTER = Path(tasks.__file__).parent / "problems"
NOBODY_HOME = "postgresql://nobody@127.0.0.1:1/nothing"


def test_migrate_prints_what_it_applied_and_is_safe_to_repeat(call: Call, empty_database_url: str) -> None:
    """The first call lists the version on stdout, the second prints nothing."""
    first = call("migrate", database=empty_database_url)
    assert first.code == 0
    assert first.out.splitlines() == list(VERSIONS)
    second = call("migrate", database=empty_database_url)
    assert (second.code, second.out) == (0, "")
    assert "up to date" in second.err


def test_a_host_needs_no_guest(empty_database_url: str, tmp_path: Path) -> None:
    """Without `runner/extras` a database is migrated, with all roles, and used; guests' commands say what they lack."""
    shutil.copytree(Path(runner.__file__).parent, tmp_path / "runner", ignore=shutil.ignore_patterns("extras", "*.pyc"))
    # Without `site`: the entry of an editable installation would find the guests of this checkout.
    others = [*(str(Path(module.__file__ or "").parents[1]) for module in (sandbox, tasks)), get_path("purelib")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *others]),
        "DATABASE_URL": empty_database_url,
    }

    def said(*arguments: str) -> tuple[int, str]:
        command = [sys.executable, "-S", "-P", "-m", "runner.cli", *arguments]
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return ended.returncode, ended.stdout + ended.stderr

    assert said("migrate", "--roles")[0] == 0
    assert said("status") == (0, "no submissions yet\n")
    code, text = said("--help")
    assert (code, "\n  submit " in text, "\n  leaderboard " in text) == (0, True, False), text
    code, text = said("leaderboard", "list")
    assert (code, "found no runner.extras, expected it for `leaderboard`" in text) == (2, True)


def test_a_missing_setting_is_the_callers_to_mend(call: Call, tmp_path: Path) -> None:
    """Exit code 2, and what to give; a missing configuration is not silently ignored. Printing roles needs nothing."""
    for arguments, says in (
        (("status",), "DATABASE_URL"),
        (("--config", tmp_path / "none.toml", "status"), "none.toml"),
    ):
        said = call(*arguments)
        assert said.code == 2
        assert says in said.err
    said = call("migrate", "--print-roles")
    assert said.code == 0
    assert "CREATE ROLE" in said.out
    assert "TO runner_daemon" in said.out


def test_a_drifted_database_is_refused_with_the_differences(call: Call, empty_database_url: str) -> None:
    """A foreign table named like KernelBot's stops the migration; the message lists what differs."""
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA leaderboard")
        connection.execute("CREATE TABLE leaderboard.submission (id text)")
    said = call("migrate", database=empty_database_url)
    assert said.code == 3
    assert "\n  - " in said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize(
    "command", [("status",), ("leaderboard", "list"), ("host", "list"), ("gpu", "list"), ("migrate",)]
)
def test_an_unreachable_database_is_an_infrastructure_error(call: Call, command: tuple[str, ...]) -> None:
    """Exit code 3 and one message, on one line, without a traceback."""
    said = call(*command, database=NOBODY_HOME)
    assert (said.code, said.out) == (3, "")
    assert said.err.startswith("kernel-runner: ")
    assert len(said.err.splitlines()) == 1


def test_hosts_and_gpu_types_are_listed(cli: Call, store: Store) -> None:
    """What a daemon announces is what the tables and documents show."""
    assert "no hosts yet" in cli("host", "list").out
    assert "no GPU types announced" in cli("gpu", "list").out
    slots: list[Json] = [{"name": "cpu0", "gpu_type": "CPU", "devices": [], "cpus": [0, 1]}]
    announced = HostRecord(name="node1", version="0.1.0", slots=slots, instance="i", gpu_types=["CPU"], key="ab" * 32)
    store.register_host(announced)
    store.sync_gpu_types([("CPU", "none", ["cpu-only"], "cores")])
    (host,) = cli("host", "list", "--json").document
    assert (host["name"], host["slots"][0]["name"], host["running"]) == ("node1", "cpu0", 0)
    assert [(key["key"], key["replaced_at"]) for key in host["keys"]] == [("ab" * 32, None)]
    assert "1 x CPU" in cli("host", "list").out
    (gpu,) = cli("gpu", "list", "--json").document
    assert (gpu["name"], gpu["aliases"], gpu["slots"]) == ("CPU", ["cpu-only"], 1)
    assert "cpu-only" in cli("gpu", "list").out


def test_eval_needs_a_device_of_the_type_asked_for(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, submission_file: Path
) -> None:
    """An unknown type and one this host lacks are usage errors that name what there is."""
    monkeypatch.setenv("KERNEL_RUNNER_EVAL_PYTHON", os.path.realpath("/bin/true"))
    folder = write_task(tmp_path / "echo")
    unknown = call("eval", folder, submission_file, "--gpu", "H1000")
    assert unknown.code == 2
    assert "did you mean 'H100'" in unknown.err
    lacking = call("eval", folder, submission_file, "--gpu", "L4x4")
    assert lacking.code == 2
    assert "no slot for GPU type L4x4" in lacking.err


#: An eval program of a task's own: a submission has to leave a tensor where it is, on a CUDA device.
STAYS = """
import os
import submission, torch

check = "pass" if submission.custom_kernel(torch.ones(2, device="cuda")).is_cuda else "fail"
with open(int(os.environ["POPCORN_FD"]), "w") as out:
    out.write(f"test-count: 1\\ntest.0.spec: n: 4\\ntest.0.status: {check}\\ncheck: {check}\\n")
"""


@pytest.mark.usefixtures("engine")
def test_eval_on_an_emulated_device_marks_the_result_and_ranks_nothing(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, submission_file: Path
) -> None:
    """By the flag, and by a GPU type of the operator's that has no slots of its own; ranked modes are refused."""
    (tmp_path / "gpus.d").mkdir()
    (tmp_path / "gpus.d" / "E.toml").write_text('extends = "CPU"\nname = "E"\nemulate_cuda = true\ndetect = false\n')
    monkeypatch.setenv("KERNEL_RUNNER_GPUS_DIR", str(tmp_path / "gpus.d"))
    files = (STARTER / "identity", STARTER / "identity" / "solutions" / "correct" / "copy.py")
    ranked = call("eval", *files, "--gpu", "E", "--mode", "leaderboard", "--json")
    assert (ranked.code, ranked.document["verdict"], ranked.document["runs"]) == (1, "invalid", [])
    assert "nothing is ranked there" in ranked.document["error"]
    tried = call("eval", *files, "--emulate-cuda")
    assert tried.code == 0, tried.err
    assert "timing claimed; CUDA is emulated, and nothing is ranked" in tried.out
    refused = call("eval", *files, "--emulate-cuda", "--gpu", "H100")
    assert refused.code == 2
    assert "expected one without devices" in refused.err
    own = {"submission.py": "@SUBMISSION@", "eval.py": "eval.py"}
    named = [{"name": name, "source": source} for name, source in own.items()]
    folder = write_task(tmp_path / "own", files=named, tests=[{"n": 4}])
    (folder / "eval.py").write_text(STAYS)
    for change, verdict in (("", "accepted"), (".cpu()", "wrong_answer")):
        submission_file.write_text(f"def custom_kernel(data):\n    return data{change}\n")
        document = call("eval", folder, submission_file, "--gpu", "E", "--mode", "test", "--json").document
        assert document["verdict"] == verdict, document
        (run,) = document["runs"]
        assert run["system_info"]["runner"]["emulated"] == "cuda"


@pytest.mark.usefixtures("engine")
def test_eval_runs_a_file_in_a_container_and_tells_the_verdict_by_its_exit_code(call: Call) -> None:
    """Without any database: a right solution is 0 and a document, a wrong one is 1 and a page with the reason."""
    solutions = STARTER / "identity" / "solutions"
    right = call("eval", STARTER / "identity", solutions / "correct" / "copy.py", "--json")
    assert right.code == 0
    assert (right.document["verdict"], right.document["gpu_type"], right.document["id"]) == ("accepted", "CPU", None)
    assert right.document["runs"][0]["result"]["check"] == "pass"
    assert "test " in right.err
    wrong = call("eval", STARTER / "identity", solutions / "wrong" / "zeros.py")
    assert wrong.code == 1
    assert "wrong answer: a result differs from the reference" in wrong.out
    assert "elements differ" in wrong.out


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a notification takes on a busy machine."""
    monkeypatch.setattr("runner.store.probe._NOTIFY_TIMEOUT_S", PATIENCE_S)


def facts_with(**facts: Any) -> DatabaseFacts:  # noqa: ANN401 - whatever facts have
    """Facts of a server with 97 connections for everybody, of which 3 are in use."""
    return DatabaseFacts(
        server_version="18", database="d", version=None, pending=(), newer=False, direct=True, connections=97,
        connected=3, **facts,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("hosts", "pooled", "mark"),
    [
        (None, False, Mark.OK),
        (16, False, Mark.OK),
        (17, False, Mark.WARNING),
        (48, False, Mark.WARNING),
        (49, False, Mark.FAILED),
        (97, True, Mark.OK),
        (98, True, Mark.FAILED),
    ],
)
def test_too_few_connections_are_a_warning_and_for_idle_hosts_a_failure(
    hosts: int | None, mark: Mark, *, pooled: bool
) -> None:
    """A host needs six, idle two, or one beside a pooler; a database without the schema is about to have one host."""
    (found,) = check._connections(facts_with(all_hosts=hosts), "a", pooled=pooled)
    assert found.mark is mark


@pytest.mark.parametrize("whose", ["database", "login"])
@pytest.mark.parametrize(("limit", "mark"), [(5, Mark.FAILED), (6, Mark.WARNING), (11, Mark.WARNING), (12, Mark.OK)])
def test_a_limit_of_the_database_or_the_login_counts_like_the_servers(whose: str, limit: int, mark: Mark) -> None:
    """Two hosts share both: with less than one busy host needs no result would be stored."""
    facts = facts_with(all_hosts=2, hosts=("b",), **{f"{whose}_limit": limit})
    of_server, found = check._connections(facts, "a", pooled=False)
    assert (of_server.mark, found.mark) == (Mark.OK, mark)
    assert f"this {whose} may have {limit}; 2 hosts may need 12" in found.fact


@pytest.mark.parametrize(
    ("age_s", "since", "mark", "words"),
    [
        (None, 0, Mark.OK, "none"),
        (59.0, 10_000, Mark.OK, "none"),
        (61.0, 1, Mark.WARNING, "for 61 s"),
        # The login may not read since when.
        (None, 10_001, Mark.WARNING, "while 10001 others began"),
    ],
)
def test_a_transaction_that_stays_open_after_a_write_is_a_warning(
    age_s: float | None, since: int, mark: Mark, words: str
) -> None:
    """Claims become slower while it does; the remedy is in the handbook."""
    finding = check._open_writes(facts_with(write_open_s=age_s, transactions_since_write=since))
    assert finding.mark is mark
    assert words in finding.fact


def test_a_transaction_that_has_written_is_found_in_any_database(database_url: str, empty_database_url: str) -> None:
    """One that reads is not; a login without rights sees the number of transactions since."""
    with psycopg.connect(empty_database_url) as other:
        other.execute("CREATE TABLE written (x integer)")
        # Only transactions that end later show that it is open.
        with psycopg.connect(database_url, autocommit=True) as later:
            later.execute("CREATE TABLE later (x integer)")
        facts = probe(database_url)
        assert facts.write_open_s is not None
        assert facts.write_open_s >= 0
        assert facts.transactions_since_write >= 1


@pytest.mark.usefixtures("patient", "engine")
def test_check_goes_through_everything_and_proves_the_sandbox(cli: Call) -> None:
    """On a machine with database and engine every question is answered, and torch is imported in a real container."""
    said = cli("check", "--json")
    by_name = {found["name"]: found for found in said.document["checks"]}
    assert [found for found in by_name.values() if found["mark"] == "failed"] == []
    assert said.code == 0
    assert by_name["torch in the sandbox"]["found"].endswith("as worker")
    assert by_name["our files in the sandbox"]["found"] == "none"
    assert by_name["C++ in the sandbox"]["mark"] == "ok"
    assert by_name["notifications"]["found"] == "arrive"
    assert by_name["runtime runc"]["found"] == "the engine offers it, used by CPU"
    assert by_name["disk"]["found"].startswith("the engine's data in /")


@pytest.mark.parametrize("role", ["daemon", "frontend", "operator", "readonly", "gateway", "discord"])
def test_check_goes_on_whatever_its_login_may_read(
    call: Call, database_url: str, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    """What this login may not see is a finding, and no end of the check: it is what `install` waits for."""
    migrate(database_url, roles=True)
    login = f"runner_test_check_{role}"
    url = make_conninfo(database_url, user=login, password=login)
    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute(f"DROP ROLE IF EXISTS {login}")
        owner.execute(f"CREATE ROLE {login} LOGIN PASSWORD '{login}' CONNECTION LIMIT 5 IN ROLE runner_{role}")
    monkeypatch.setenv("DOCKER_HOST", "unix:///var/tmp/no-engine-here.sock")
    checks = {found["name"]: found for found in call("check", "--json", database=url).document["checks"]}
    assert checks["engine"]["mark"] == "failed"
    if role == "daemon":
        assert checks["notifications"]["found"] == "arrive"
        assert checks["connections"]["found"] == "this login may have 5; 1 host may need 6 besides frontends"


@pytest.mark.usefixtures("engine")
def test_check_looks_for_the_images_of_the_slots(cli: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that the engine does not have is a failure that names the GPU type and the way to get it."""
    (tmp_path / "CPU.toml").write_text('extends = "CPU"\nname = "CPU"\nimage = "kernel-runner-test/absent"\n')
    monkeypatch.setenv("KERNEL_RUNNER_GPUS_DIR", str(tmp_path))
    said = cli("check", "--json")
    assert said.code == 1
    (found,) = (found for found in said.document["checks"] if found["name"] == "image of CPU")
    assert (found["mark"], "'kernel-runner-test/absent': the engine at" in found["found"]) == ("failed", True)
    assert "`docker build`" in found["remedy"]


@pytest.mark.parametrize("engine", ["unix:///var/tmp/no-engine-here.sock", "tcp://127.0.0.1:1"])
def test_check_reports_missing_infrastructure_and_goes_on(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    """Neither database, engine nor room: all are reported, with what to do, and the exit code is 3."""
    monkeypatch.setenv("DOCKER_HOST", engine)
    monkeypatch.setenv("KERNEL_RUNNER_MIN_FREE_GIB", "1e9")
    monkeypatch.setenv("KERNEL_RUNNER_EVAL_PYTHON", str(tmp_path / "no-python"))
    said = call("check", database=NOBODY_HOME)
    assert said.code == 3
    failed = ("database", "engine", "evaluation environment", "disk: state_dir")
    for expected in (*(f"✗ {name}" for name in failed), "DOCKER_HOST", "DATABASE_URL"):
        assert expected in said.out


def test_a_database_that_was_never_migrated_is_no_defect(call: Call, empty_database_url: str) -> None:
    """Exit code 3, one line that names the remedy, and no traceback."""
    said = call("status", database=empty_database_url)
    assert (said.code, said.out) == (3, "")
    assert "run `kernel-runner migrate`" in said.err
    assert len(said.err.splitlines()) == 1
