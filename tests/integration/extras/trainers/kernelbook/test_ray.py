"""The steps on a Ray cluster of this machine: the same rows, the same requests, the same resume."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.extras.trainers.kernelbook.service import ROOT, Service, command, kept, rows, run

pytest.importorskip("ray", reason="Ray has no wheel for this Python: the tests of --ray are skipped")

#: Starts a cluster of one node, prints its address, and ends with its input.
_CLUSTER = """
import sys, ray
found = ray.init(address="local", num_cpus=2, include_dashboard=False, object_store_memory=100 << 20,
                 log_to_driver=False, logging_level="ERROR", _node_ip_address="127.0.0.1", _temp_dir=sys.argv[1])
print(found.address_info["gcs_address"], flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module", name="cluster")
def _cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a cluster of two cores."""
    # Its sockets lie below this folder, and their names may not be long.
    place = Path("/tmp") / f"ray-{os.getpid()}"
    place.mkdir()
    (place / "token").write_text("0" * 32)
    secret = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(place / "token"), "RAY_USAGE_STATS_ENABLED": "0"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in secret.items():
            patch.setenv(name, value)
        with subprocess.Popen(
            [sys.executable, "-c", _CLUSTER, str(place)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
            process.communicate()
    subprocess.run(["rm", "-rf", str(place)], check=True)


def test_a_step_on_a_cluster_writes_what_one_process_writes(service: Service, tmp_path: Path, cluster: str) -> None:
    """Byte for byte, side file included; a rerun asks nothing; failures and the account are those of one process."""
    file = rows(tmp_path, ["ok"] * 150 + ["429,ok", "malformed", "400", "500,ok"])
    reports = []
    for name, more in (("alone", ()), ("cluster", ("--ray", cluster))):
        (tmp_path / name).mkdir()
        service.log.write_text("")
        done = run(service, tmp_path / name, "filter", "--input", str(file), "--json", *more, BATCH_SIZE="32")
        assert done.returncode == 1, done.stderr
        reports += json.loads(done.stdout)
        # The endpoint answers by how often it was asked, so each run asks it something of its own.
        file.write_text(file.read_text().replace("task ", f"{name} task "))
    alone, spread = reports
    assert alone["rows_out"] == spread["rows_out"] == 152
    assert sorted(alone["failed"].values()) == sorted(spread["failed"].values()) == [1, 1]
    assert alone["account"] == spread["account"]


def test_a_killed_run_on_a_cluster_goes_on_where_it_was(service: Service, tmp_path: Path, cluster: str) -> None:
    """SIGKILL: what the journal has is not asked again, though the nodes asked it."""
    file = rows(tmp_path, ["ok"] * 400)
    undisturbed = tmp_path / "undisturbed"
    undisturbed.mkdir()
    assert run(service, undisturbed, "filter", "--input", str(file)).returncode == 0
    service.log.write_text("")
    journal = tmp_path / "outputs" / "journal.sqlite"
    # However late the signal comes, it comes in the middle.
    service.answer_at_most(150)
    call, environment = command(service, "filter", "--input", str(file), "--ray", cluster, BATCH_SIZE="4")
    with subprocess.Popen(call, env=environment, cwd=tmp_path, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and service.names().total() < 50:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert kept(journal)
    service.answer_at_most(None)
    done = run(service, tmp_path, "filter", "--input", str(file), "--ray", cluster, BATCH_SIZE="4")
    assert done.returncode == 0, done.stderr
    asked = service.names()
    assert len(asked) == 400
    # What was on its way when the process was killed may be asked again.
    assert asked.total() <= 400 + 4
    output = "outputs/filtered_dataset.jsonl"
    assert (tmp_path / output).read_bytes() == (undisturbed / output).read_bytes()


def test_a_service_that_wants_no_more_ends_the_run(service: Service, tmp_path: Path, cluster: str) -> None:
    """The exit code of one process."""
    file = rows(tmp_path, ["ok"] * 5 + ["402"] + ["ok"] * 300)
    done = run(service, tmp_path, "filter", "--input", str(file), "--ray", cluster, BATCH_SIZE="4")
    assert done.returncode == 3
    assert "HTTP 402" in done.stderr
    # A block has 32 rows, and blocks come in any order. After the 402 the worker asks nothing of further blocks.
    answered = [line.split()[1] for line in service.log.read_text().splitlines()]
    assert len(answered) - answered.index("402") <= 32


def test_a_cluster_that_is_not_there(service: Service, tmp_path: Path) -> None:
    """A sentence, and the exit code of a service that is down."""
    file = str(rows(tmp_path, ["ok"]))
    done = run(service, tmp_path, "filter", "--input", file, "--ray", "127.0.0.1:9")
    assert (done.returncode, "no Ray cluster at 127.0.0.1:9" in " ".join(done.stderr.split())) == (3, True)
    done = run(service, tmp_path, "filter", "--input", file, "--ray", "ray://somewhere")
    assert (done.returncode, "expected HOST:PORT of the cluster" in " ".join(done.stderr.split())) == (2, True)
