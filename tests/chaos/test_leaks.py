"""Honest and hostile jobs while the daemon is killed and the engine restarted: afterwards every leak count is 0."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from runner.base.model import Verdict
from tests.acceptance.escapes.case import CASES, PROGRAM, load
from tests.acceptance.escapes.rig import FOLDERS
from tests.chaos.dockerd import Dockerd
from tests.plugins.live import LiveRunner, live_runner
from tests.support.seeds import any_seed
from tests.support.waiting import PATIENCE_S

#: `make chaos` asks for a thousand.
JOBS = int(os.environ.get("KERNEL_RUNNER_TEST_LEAK_JOBS", "12"))
HONEST = b"def custom_kernel(data):\n    return data[0] + data[1]\n"
HOSTILE = ("flood_stdout", "bomb_forks_counted", "survivor_double_fork", "bomb_memory", "bomb_disk", "bomb_zombies")
WORDS: Mapping[str, str] = {}
#: How much more memory the daemon may have after hostile output than before.
GROWTH_BYTES = 32 << 20
#: A connection or two of its own that were not open before.
MORE_DESCRIPTORS = 8
#: What a job or a killed process left that is there after this stays, however busy the machine is.
GONE_S = 120.0
#: Half seconds without a change.
QUIET_LOOKS = 10


@pytest.fixture
def dockerd() -> Iterator[Dockerd]:
    """An engine of the test's own."""
    if os.getuid() != 0 or shutil.which("dockerd") is None:
        pytest.skip("starting an engine needs root and dockerd: run as root where Docker is installed")
    with Dockerd() as made:
        yield made


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the daemon makes its temporary files."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def live(
    dockerd: Dockerd, temporary: Path, create_database: Callable[[str | None], str], migrated_template: str
) -> Iterator[LiveRunner]:
    """A daemon of two slots on that engine, with a container waiting for each."""
    url = create_database(migrated_template)
    with live_runner(url, docker_host=dockerd.url, cpu_slots=2, lease_s=10, heartbeat_s=1, warm_containers=1) as runner:
        assert f'"docker_host": "{dockerd.url}"' in runner.log, "what is counted is another engine's"
        runner.board(FOLDERS[PROGRAM], name=PROGRAM, timeout_s=30)
        yield runner


def code_of(name: str) -> bytes:
    """A case's submission."""
    return load(CASES / f"{name}.py").code(relaxed=False, words=WORDS)


def of_daemon(live: LiveRunner, field: str) -> int:
    """A number of the daemon's /proc/PID/status, in bytes."""
    assert live.process is not None
    status = Path(f"/proc/{live.process.pid}/status").read_text(encoding="ascii")
    return int(next(line for line in status.splitlines() if line.startswith(field)).split()[1]) * 1024


def descriptors(live: LiveRunner) -> int:
    """How many descriptors the daemon has open."""
    assert live.process is not None
    return len(list(Path(f"/proc/{live.process.pid}/fd").iterdir()))


def gone(leaks: Callable[[], Mapping[str, list[str]]]) -> Mapping[str, list[str]]:
    """What is still there once there was time for it to go."""
    deadline = time.monotonic() + GONE_S
    while True:
        found = {what: left for what, left in leaks().items() if left}
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.2)


@pytest.mark.timeout(60 + 30 * JOBS)
def test_mixed_jobs_kills_and_engine_restarts_leave_nothing(
    live: LiveRunner, dockerd: Dockerd, temporary: Path
) -> None:
    """Every job ends; containers, processes, cgroups, mounts, volumes, spool and temporary files: none is left."""
    seed = any_seed()
    draw = random.Random(seed)  # noqa: S311 a plan, no secret
    submitted = {}
    for number in range(JOBS):
        hostile = draw.choice(HOSTILE) if number % 2 else None
        submitted[live.submit(PROGRAM, HONEST if hostile is None else code_of(hostile), user_id=f"u{number}")] = hostile
        if number % 8 == 3:
            live.stop(signal.SIGKILL)
            live.start()
        if number % 8 == 7:
            # A job that loses its engine three times is given up, as it should be.
            for submission in list(submitted)[:-3]:
                live.wait(submission)
            dockerd.stop(kill=bool(draw.randrange(2)))
            dockerd.start()
    for submission, hostile in submitted.items():
        view = live.wait(submission)
        assert hostile is not None or view.status.verdict is Verdict.ACCEPTED, (seed, submission, view.jobs[0].error)
    assert live.stop(signal.SIGTERM) == 0
    known = {"config.toml", "daemon.log", "daemon.lock", "gpus.d", "instance", "receipt.key", "stage"}

    def leaks() -> Mapping[str, list[str]]:
        return {
            "containers": dockerd.containers(),
            "processes": dockerd.processes(),
            "cgroups": dockerd.cgroups(),
            "mounts": dockerd.mounts(),
            "volumes": dockerd.volumes(),
            "spooled": [str(path) for path in live.state_dir.glob("spool/**/*") if path.is_file()],
            "temporary": [str(path) for path in temporary.iterdir()],
            "state": [
                str(path)
                for path in live.state_dir.rglob("*")
                if path.is_file() and path.relative_to(live.state_dir).parts[0] not in known
            ],
        }

    assert gone(leaks) == {}, f"KERNEL_RUNNER_TEST_SEED={seed} draws this plan again"


def test_hostile_output_does_not_grow_the_daemon(live: LiveRunner) -> None:
    """Gigabytes of stdout and a hundred thousand files later the daemon has its memory and descriptors of before."""
    for _ in range(2):
        assert live.wait(live.submit(PROGRAM, HONEST)).status.verdict is Verdict.ACCEPTED
    # A result is there before the containers that wait for the next jobs are, and each of those has descriptors. How
    # many that will be depends on what became of the slots so far: they are there when nothing changes any more.
    deadline = time.monotonic() + PATIENCE_S
    opened, looks = descriptors(live), 0
    while looks < QUIET_LOOKS:
        assert time.monotonic() < deadline, "the daemon goes on opening and closing descriptors"
        time.sleep(0.5)
        before, opened = opened, descriptors(live)
        looks = looks + 1 if opened == before else 0
    memory = of_daemon(live, "VmHWM")
    wanted = {"flood_stdout": "output_limit", "flood_stderr": "output_limit", "bomb_inodes": "accepted"}
    for name, verdict in wanted.items():
        view = live.wait(live.submit(PROGRAM, code_of(name)))
        assert view.status.verdict is not None
        assert view.status.verdict.value == verdict, view.jobs[0].error
    assert of_daemon(live, "VmHWM") - memory < GROWTH_BYTES
    deadline = time.monotonic() + GONE_S
    while descriptors(live) - opened > MORE_DESCRIPTORS and time.monotonic() < deadline:
        time.sleep(0.2)
    assert descriptors(live) - opened <= MORE_DESCRIPTORS
