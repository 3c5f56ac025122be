"""KernelBot itself, its checkout untouched, beside a real daemon: its database, its boards, its Discord bot, its API.

KERNEL_RUNNER_TEST_KERNELBOT names the checkout, KERNEL_RUNNER_TEST_KERNELBOT_PYTHON a Python with its requirements,
psycopg, and simcord, which simulates Discord. By default that is `.venv-kernelbot`, which `make test-kernelbot` makes.
KERNEL_RUNNER_TEST_PROBLEMS names a checkout of reference-kernels: its task folders and competition files are read.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest
from psycopg.types.json import Jsonb

from runner.base.model import Verdict
from runner.extras.boards.competition import load_competition
from runner.store import migrate
from runner.task_format import from_stored, load, to_stored, unknown_keys
from tests.plugins.live import ROOT, LiveRunner, live_runner
from tests.plugins.postgres import daemon_login
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_S, wait_until

PROBLEMS = Path(os.environ.get("KERNEL_RUNNER_TEST_PROBLEMS") or "nowhere")
CHECKOUT = Path(os.environ.get("KERNEL_RUNNER_TEST_KERNELBOT", "nowhere"))
PYTHON = Path(os.environ.get("KERNEL_RUNNER_TEST_KERNELBOT_PYTHON", ROOT / ".venv-kernelbot" / "bin" / "python"))
ADD = ROOT / "tasks" / "problems" / "vectoradd" / "solutions" / "correct" / "torch_add.py"
SUM = ROOT / "tests" / "fixtures" / "kernelbot_task" / "solutions" / "correct" / "row_sums.py"
#: Several waits of the users and of the daemon, one after the other.
PLAY_S = 4 * PATIENCE_S

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(2 * PLAY_S),
    pytest.mark.skipif(not CHECKOUT.exists(), reason="KERNEL_RUNNER_TEST_KERNELBOT names no checkout of KernelBot"),
    pytest.mark.skipif(not PYTHON.exists(), reason="no .venv-kernelbot: `make test-kernelbot` makes it"),
]

Seen = dict[str, Any]


def environment(url: str, login: str) -> dict[str, str]:
    """Variables for KernelBot, which has a login of its own; the tests' part is the database's owner."""
    folders = (ROOT, CHECKOUT / "src", CHECKOUT / "src" / "kernelbot", ROOT / "docs" / "examples")
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, folders)),
        "DATABASE_URL": login,
        "KERNEL_RUNNER_TEST_OWNER_URL": url,
        "DISABLE_SSL": "1",
        "DISCORD_CLUSTER_STAGING_ID": str(4711 << 22),
    }


def kernelbot_side(command: str, url: str, login: str, *arguments: str) -> str:
    """The output of a command in KernelBot's environment."""
    done = subprocess.run(
        [PYTHON, "-m", "tests.integration.frontends.kernelbot_side", command, *arguments],
        cwd=ROOT,
        env=environment(url, login),
        capture_output=True,
        text=True,
        timeout=PLAY_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-8000:]
    assert "Traceback" not in done.stderr, done.stderr[-8000:]
    return done.stdout


@contextmanager
def kernelbot_api(live: LiveRunner) -> Iterator[httpx2.Client]:
    """KernelBot without Discord, started as a person starts it; asked by one of its users."""
    port = free_port()
    variables = environment(live.database_url, kernelbot_login(live.database_url)) | {"PORT": str(port)}
    command = [str(PYTHON), str(ROOT / "docs" / "examples" / "start_kernelbot.py"), "--api-only"]
    with (
        subprocess.Popen(command, env=variables, cwd=CHECKOUT) as process,
        httpx2.Client(
            base_url=f"http://127.0.0.1:{port}", headers={"X-Popcorn-Cli-Id": "token"}, timeout=PATIENCE_S
        ) as client,
    ):
        try:
            wait_until(lambda: answers(client) or process.poll() is not None, "KernelBot's API answers")
            yield client
        finally:
            process.terminate()


def answers(client: httpx2.Client) -> bool:
    """Whether a server is there."""
    try:
        return client.get("/health").is_success
    except httpx2.TransportError:
        return False


def kernelbot_login(url: str) -> str:
    """The database for a login that has its own rights on KernelBot's tables, and the role that the page names."""
    login = daemon_login(url, "kernelbot")
    with psycopg.connect(url) as connection:
        for statement in (
            "REVOKE runner_daemon FROM kernelbot",
            "GRANT ALL ON SCHEMA leaderboard TO kernelbot",
            "GRANT ALL ON ALL TABLES IN SCHEMA leaderboard TO kernelbot",
            "GRANT ALL ON ALL SEQUENCES IN SCHEMA leaderboard TO kernelbot",
            "GRANT runner_gateway TO kernelbot",
        ):
            connection.execute(statement.encode())
    return login


@pytest.fixture(scope="module")
def live(
    create_database: Callable[[str | None], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveRunner]:
    """A daemon for two GPU types; the board `rows` is made by KernelBot's code, `vectoradd` by ours."""
    url = create_database(None)
    kernelbot_side("board", url, url)
    migrate(url, roles=True)
    gpus_dir = tmp_path_factory.mktemp("gpus.d")
    for name in ("CPU", "CPU-2"):
        (gpus_dir / f"{name}.toml").write_text(f'extends = "CPU"\nname = "{name}"\n', encoding="utf-8")
    slots = [{"gpu_type": "CPU", "cpus": [0]}, {"gpu_type": "CPU-2", "cpus": [1]}]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNEL_RUNNER_SLOTS", json.dumps(slots))
        with live_runner(url, gpus_dir=str(gpus_dir)) as runner:
            folder = ROOT / "tasks" / "problems" / "vectoradd"
            for arguments in (("--gpu", "CPU"), ("--gpu", "H100", "--name", "nowhere")):
                subprocess.run(
                    [sys.executable, "-m", "runner.cli", "leaderboard", "create", folder, *arguments],
                    check=True,
                    env={**os.environ, "DATABASE_URL": url},
                    cwd=ROOT,
                )
            yield runner


@pytest.fixture(scope="module")
def seen(live: LiveRunner) -> Seen:
    """What users of the bot have read."""
    result: Seen = json.loads(kernelbot_side("users", live.database_url, kernelbot_login(live.database_url)))
    assert result["errors"] == []
    return result


def rows(live: LiveRunner, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
    """The rows of a statement."""
    with psycopg.connect(live.database_url) as connection:
        return connection.execute(statement.encode(), parameters).fetchall()


def test_the_bot_shows_boards_of_both(seen: Seen) -> None:
    """A board of KernelBot's code and one of `kernel-runner leaderboard create`: list, task, template."""
    (table,) = seen["list"]["tables"]
    assert [line.split()[0] for line in table.splitlines()[3:-1]] == ["rows", "vectoradd", "nowhere"]
    assert set(seen["task"]["files"]) == {"eval.py", "reference.py", "submission.py", "task.py", "utils.py"}
    assert seen["template"]["files"] == ["vectoradd.py"]


def test_unranked_submissions_are_reported(seen: Seen) -> None:
    """By KernelBot's own reports: passed tests, times, a profile with its files."""
    for mode, short, long in (
        ("test", "✅ Testing successful", "Passed 3/3 tests"),
        ("benchmark", "✅ Benchmarking successful", "⏱"),
        ("profile", "✅ Profiling successful", "aten::add"),
    ):
        (reply,) = seen[mode]["replies"]
        (thread,) = seen[mode]["threads"]
        assert short in reply
        assert long in thread
    assert re.findall(r"report.txt\nprofile\.\d\.trace\.json\.gz", thread) == [
        f"report.txt\nprofile.{number}.trace.json.gz" for number in range(2)
    ]


def test_a_ranked_submission_on_two_types_is_ranked_on_both(seen: Seen) -> None:
    """Chosen in the bot's menu; each type has a report, the secret runs only pass or fail; `show` has the ranks."""
    progress, verdict = seen["ranked"]["replies"]
    assert progress.count("✅ success") == 4
    assert progress.count("✅ Leaderboard run successful") == 4
    assert "First place on CPU:" in verdict
    assert "First place on CPU-2:" in verdict
    assert ["Ranked Benchmark" in thread for thread in seen["ranked"]["threads"]] == [True, True]
    assert ["ada" in table for table in seen["show"]["tables"]] == [True, True]
    assert ["mine.py" in table for table in seen["show-personal"]["tables"]] == [True]
    assert seen["get-submission"]["replies"][0].count(" * leaderboard on CPU") == 2


def test_progress_is_shown_while_it_is_made(seen: Seen) -> None:
    """From the queue to the end, in the message that answers the command."""
    edits = [text for text in seen["edits"] if "Submission **6**" in text]
    assert "> queued" in edits[1]
    assert any("> testing" in text for text in edits)
    assert "> time_limit" in edits[-1]


def test_what_is_wrong_with_a_submission_is_said(seen: Seen) -> None:
    """A wrong one with its case, without a secret run; one that hangs with the time limit."""
    (reply,) = seen["wrong"]["replies"]
    assert "❌ Testing failed" in reply
    assert "not run, since the public run was not accepted" in reply
    assert "values differ" in seen["wrong"]["threads"][0]
    (reply,) = seen["hangs"]["replies"]
    assert "Running tests failed (timeout)" in reply
    assert "timed out" in seen["hangs"]["threads"][0]


@pytest.mark.parametrize(
    ("case", "sentence"),
    [
        ("twice", "GPU type 'CPU' is asked for twice."),
        ("stopped", "not accepting any new submissions"),
        ("no host", "no host has served H100 since"),
        ("limited", "Rate limit exceeded: 0/0"),
        ("closed", "only accept submissions via CLI"),
        ("banned", "You are banned"),
    ],
)
def test_an_obstacle_is_a_sentence(seen: Seen, case: str, sentence: str) -> None:
    """Whether KernelBot refuses, or the queue, or nobody serves the GPU type."""
    (reply,) = seen[case]["replies"]
    assert sentence in reply


def test_a_time_that_does_not_rank_says_why(seen: Seen) -> None:
    """The leaderboard demands more than this one is worth; KernelBot has no such case."""
    _, verdict = seen["unranked"]["replies"]
    assert "Not ranked on CPU: this board ranks measured times only; this time is claimed" in verdict


def test_an_outage_of_the_database_ends_no_report(seen: Seen) -> None:
    """It is told, and the submission followed afterwards: the next test reads its end."""
    (thread,) = seen["outage"]
    assert thread.count("the database does not answer; the submission is kept") == 2


def test_what_ends_after_fifteen_minutes_ends_in_a_thread(seen: Seen) -> None:
    """Discord takes no answer to the command then: a thread has progress and place, or that it was cancelled."""
    cancelled, ranked, report = seen["late"]["threads"]
    assert "H100 on kernel-runner ❌ failure" in cancelled
    assert "✅ Leaderboard run successful" in ranked
    assert "place on CPU:" in ranked
    assert "Ranked Benchmark" in report


def test_the_daemon_alone_writes_rows(live: LiveRunner, seen: Seen) -> None:
    """Each run once, and KernelBot's status of each submission."""
    number = seen["submissions"]
    counts = rows(
        live,
        "SELECT count(*) FROM leaderboard.runs WHERE submission_id <= %s GROUP BY submission_id, runner, secret, mode",
        number,
    )
    assert set(counts) == {(1,)}
    # test, benchmark, two profiles, ranked on two types, wrong, hanging, unranked, ranked
    assert len(counts) == 1 + 1 + 2 + 12 + 1 + 1 + 6 + 6
    assert rows(live, "SELECT FROM runner.result WHERE job_id IS NULL AND submission_id <= %s", number) == []
    statuses = rows(
        live,
        "SELECT j.status FROM leaderboard.submission_job_status j"
        " JOIN leaderboard.submission s ON s.id = j.submission_id WHERE s.done AND s.id <= %s ORDER BY s.id",
        number,
    )
    assert [status for (status,) in statuses] == [
        *["succeeded"] * 4,
        *["failed", "succeeded"],  # ranked, but wrong; a test that hangs
        *["succeeded", "failed", "succeeded"],  # ranked; cancelled; ranked
    ]


def test_the_queue_is_ours(seen: Seen) -> None:
    """Under our names of GPU types, in any case."""
    counts = {"queued_jobs": 0, "running_jobs": 0, "available_runners": 1, "status": "available", "error": None}
    assert seen["queue"] == {"runner": "kernel-runner", "gpu": "CPU-2", **counts}


def test_the_api_uses_the_queue_and_can_be_stopped(live: LiveRunner, seen: Seen) -> None:
    """Its streaming route, the one whose submissions are asked about, and refusals; what waits outlives the process."""
    with psycopg.connect(live.database_url, autocommit=True) as database, kernelbot_api(live) as client:
        database.execute(
            "INSERT INTO leaderboard.user_info (id, user_name, cli_id, cli_valid) VALUES ('17', 'mel', 'token', true)"
        )

        def submit(target: str, code: Path) -> httpx2.Response:
            return client.post(target, files={"file": ("mine.py", code.read_bytes())})

        stream = submit("/vectoradd/CPU/benchmark", ADD).text.strip().splitlines()[-1]
        last = json.loads(stream.removeprefix("data: "))
        (result,) = last["results"]
        assert float(result["runs"]["benchmark"]["run"]["result"]["benchmark.0.mean"]) > 0
        assert "✅ Benchmarking successful" in last["reports"][0]

        accepted = submit("/submission/vectoradd/CPU/leaderboard", ADD)
        assert (accepted.status_code, accepted.json()["runner_queue"]["available_runners"]) == (202, 1)
        number = accepted.json()["details"]["id"]
        assert live.wait(number).status.verdict is Verdict.ACCEPTED
        submission = client.get(f"/user/submissions/{number}").json()
        assert (submission["job"]["status"], len(submission["runs"])) == ("succeeded", 6)

        database.execute("SELECT runner.set_open_jobs('vectoradd', 1)")
        refused = submit("/submission/vectoradd/CPU/leaderboard", ADD)
        assert refused.status_code == 429
        assert "0 of 1 jobs that may be open on leaderboard 'vectoradd'" in refused.json()["detail"]

        database.execute("SELECT runner.pause('CPU-2', 'until KernelBot is stopped')")
        waits = submit("/submission/rows/CPU-2/test", SUM).json()["details"]["id"]
    with psycopg.connect(live.database_url) as database:
        database.execute("SELECT runner.resume('CPU-2')")
    assert live.wait(waits).status.verdict is Verdict.ACCEPTED


def test_a_database_without_tls_is_refused_unless_that_is_allowed() -> None:
    """The script's own connections are as strict as KernelBot's: this server says that it has none."""
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as thread:

        def answer() -> None:
            client, _ = server.accept()
            with client:
                client.recv(8)
                client.sendall(b"N")
                client.recv(1)

        thread.submit(answer)
        url = f"postgresql://127.0.0.1:{server.getsockname()[1]}/kernelbot"
        done = subprocess.run(
            [PYTHON, ROOT / "docs" / "examples" / "start_kernelbot.py", "--api-only"],
            env=environment(url, url) | {"DISABLE_SSL": ""},
            capture_output=True,
            text=True,
            timeout=PLAY_S,
            check=False,
        )
    assert (done.returncode, "SSL was required" in done.stderr) == (1, True), done.stderr


def test_a_board_of_a_later_kernelbot_runs(live: LiveRunner, seen: Seen) -> None:
    """It stores `validation`, null by default."""
    with psycopg.connect(live.database_url) as connection:
        connection.execute(
            "UPDATE leaderboard.leaderboard SET task = task || %s WHERE name = 'rows'", (Jsonb({"validation": None}),)
        )
    assert (
        live.wait(live.submit("rows", SUM.read_bytes(), mode="leaderboard", user_id="4711")).status.verdict
        is Verdict.ACCEPTED
    )


@pytest.mark.skipif(not PROBLEMS.exists(), reason="KERNEL_RUNNER_TEST_PROBLEMS names no checkout of reference-kernels")
def test_public_tasks_are_stored_as_kernelbot_stores_them() -> None:
    """Each folder key by key, and read back as the same task; each competition file loads."""
    stored = json.loads(kernelbot_side("tasks", "", "", str(PROBLEMS)))
    assert stored
    for path, theirs in stored.items():
        folder = load(Path(path))
        ours = json.loads(json.dumps(to_stored(folder.task)))
        assert {"validation": None, **ours} == {"validation": None, **theirs["task"]}, path
        assert (folder.description, dict(folder.templates)) == (theirs["description"], theirs["templates"]), path
        assert list(folder.gpus) == theirs["gpus"], path
        assert from_stored(theirs["task"], None, origin=path) == folder.task
        assert unknown_keys(theirs["task"]) == []
    competitions = sorted(PROBLEMS.rglob("*.yaml"))
    assert competitions
    for competition in competitions:
        assert load_competition(competition)
