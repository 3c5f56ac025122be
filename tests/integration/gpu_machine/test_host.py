"""The GPU host from nothing (`tests.gpu.host`): its records, and, nightly, the whole of it on a bare machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from runner.base.gpu_types import Registry
from tests.gpu.host import plan
from tests.gpu.host.machine import ARCHIVE, ROOT
from tests.support.waiting import PATIENCE_S

RECORDS: Final = sorted((ROOT / "tests" / "fixtures" / "devices").glob("*_plan.jsonl"))
#: What a machine without a device can show in some minutes.
REHEARSED: Final = ("ranked", "isolation", "wrong", "aborts", "profile", "killed")
#: A machine of its own: other mounts, processes and no network; of this one it has programs, and torch's Python.
_BARE: Final = """
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs "$BARE"
cd "$BARE"
mkdir -p proc sys dev etc opt run tmp var/tmp root repo state old
chmod 1777 tmp var/tmp
for path in bin sbin lib lib32 lib64 libx32; do
    if [ -L "/$path" ]; then cp -P "/$path" .
    elif [ -d "/$path" ]; then mkdir "$path"; mount --rbind "/$path" "$path"
    fi
done
mkdir usr; mount --rbind /usr usr
cp -a /etc/. etc/ 2>/dev/null || true
for path in $BINDS; do mkdir -p ".$path"; mount --rbind "$path" ".$path"; done
mount --rbind "$REPOSITORY" repo
mount --bind "$STATE" state
mount --bind "$DISK" var/tmp
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t tmpfs tmpfs dev
for name in null zero full random urandom tty; do touch "dev/$name"; mount --bind "/dev/$name" "dev/$name"; done
mkdir dev/shm dev/pts; mount -t tmpfs tmpfs dev/shm; mount -t devpts devpts dev/pts
ln -s /proc/self/fd dev/fd
pivot_root . old
cd /repo
umount -l /old
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"
"""


def lines_of(record: Path) -> list[Mapping[str, Any]]:
    """The lines of a record."""
    return [json.loads(line) for line in record.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("record", RECORDS, ids=lambda path: path.stem)
def test_a_gpu_type_says_what_its_record_shows(record: Path) -> None:
    """No more, and no less; every step that has passed is one of the plan."""
    lines = lines_of(record)
    (machine,) = [line for line in lines if "machine" in line]
    shown = [line["shows"] for line in lines if line.get("outcome") == plan.PASSED]
    runs = [
        run
        for run in Registry.load().get(machine["gpu_type"]).hardware_runs
        if (str(run.date), run.device) == (machine["machine"]["date"], machine["machine"]["device"])
    ]
    assert [list(run.what) for run in runs] == [shown]
    known = {step.name: step.shows for step in plan.STEPS}
    assert [known[line["step"]] for line in lines if line.get("outcome") == plan.PASSED] == shown


def test_an_attack_of_a_record_has_all_of_its_work_in_its_time() -> None:
    """On the device the forged claims of two microseconds counted for nothing."""
    attacks = [line for record in RECORDS for line in lines_of(record) if line.get("step") in {"late", "claims"}]
    assert attacks
    for line in attacks:
        figures = line["figures"]
        assert figures["verdict"] != "accepted" or figures["score_us"] > plan.least_us(), line


def test_a_plan_without_its_archive_says_what_makes_it(tmp_path: Path) -> None:
    """One sentence, and no traceback."""
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_ARCHIVE, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 1
    assert "make gpu-host" in done.stderr or "as root" in done.stderr
    assert "Traceback" not in done.stderr


_WITHOUT_ARCHIVE: Final = """
import sys
from pathlib import Path
from tests.gpu.host import __main__, machine
machine.ARCHIVE = Path(sys.argv[1], "nothing.tar.xz")
__main__.main()
"""


@pytest.mark.nightly
@pytest.mark.skipif(os.getuid() != 0, reason="only root may make a machine of its own mounts and processes")
@pytest.mark.timeout(1800)
def test_a_bare_machine_becomes_a_host(tmp_path: Path) -> None:
    """Without network, engine, database and control groups: packed here, brought up there, jobs to their results."""
    python = Path(os.environ.get("KERNEL_RUNNER_EVAL_PYTHON", ROOT / ".venv-eval" / "bin" / "python"))
    known = subprocess.run(
        [python, "-c", "import sys; print(sys.prefix, sys.base_prefix, '%d.%d' % sys.version_info[:2])"],
        capture_output=True,
        text=True,
        check=True,
    )
    prefix, base, version = known.stdout.split()
    kept = ARCHIVE.read_bytes() if ARCHIVE.exists() else None
    subprocess.run(
        [sys.executable, "-m", "tests.gpu.host.pack", "--python", version, "--level", "1", "--max-mb", "200"],
        cwd=ROOT,
        check=True,
    )
    # The engine's layers need a disk; a memory file system has no overlays on every kernel.
    disk = Path("/var/tmp") / f"kernel-runner-bare-{os.getpid()}"
    disk.mkdir()
    folders = {name: tmp_path / name for name in ("bare", "state")}
    for folder in folders.values():
        folder.mkdir()
    try:
        done = subprocess.run(
            [
                *("unshare", "--mount", "--pid", "--fork", "--uts", "--ipc", "--net", "sh", "-c", _BARE, "bare"),
                *(str(python), "-m", "tests.gpu.host", "/state", "--seconds", "1500", "--only", ",".join(REHEARSED)),
            ],
            cwd=ROOT,
            env={
                **os.environ,
                "BARE": str(folders["bare"]),
                "STATE": str(folders["state"]),
                "DISK": str(disk),
                "REPOSITORY": str(ROOT),
                "BINDS": " ".join(path for path in {prefix, base} if not path.startswith("/usr/")),
            },
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        shutil.rmtree(disk, ignore_errors=True)
        if kept is not None:
            ARCHIVE.write_bytes(kept)
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-3000:]}"
