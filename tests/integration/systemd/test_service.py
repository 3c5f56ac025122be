"""The life of a host: installed from packages under a booted systemd, in service, in trouble, gone without a trace."""

from __future__ import annotations

import inspect
import json
import os
from pathlib import Path

import pytest

from runner.cli.installation import SITE
from tests.fakes import nvml
from tests.fakes.recordings import nvidia
from tests.integration.systemd.conftest import FOLDER, PACKAGES, Machine, quoted
from tests.plugins.live import ROOT

#: Planted as passwords; only the daemon and those who may read root's files may ever see one.
CANARIES = ("canary-owner-7f3a", "canary-daemon-91bc")
OWNER_URL = (
    f"postgresql://kernelbot:{CANARIES[0]}@localhost/kernelbot"
    "?sslmode=verify-full&sslrootcert=/etc/postgresql/server.crt"
)
DATABASE = "CREATE DATABASE kernelbot OWNER kernelbot TEMPLATE template0 ENCODING 'UTF8'"
SECRET = "/etc/kernel-runner/credentials/database_url"
#: What the site wants otherwise, beside the file of examples.
OWN = f"{Path(SITE).parent}/own.conf"
DROP_IN = (
    "[Service]\nRestartSec=1s\nEnvironment=KERNEL_RUNNER_CPU_SLOTS=1 KERNEL_RUNNER_WARM_CONTAINERS=0\n"
    "LoadCredential=ca.crt:/etc/postgresql/server.crt\n"
)
#: Also a real upgrade: another minute. `tests/unit/systemd` has its order.
WHOLE = os.environ.get("KERNEL_RUNNER_TEST_SYSTEMD") == "all"
INSTALL = ("apt-get", "install", "--yes", "--allow-downgrades")
#: Makes a package, unpacked here, one of a later release whose daemon ends at once.
BREAK = """
import glob, pathlib, zipfile
(name,) = glob.glob("opt/kernel-runner/wheels/kernel_runner-*.whl")
with zipfile.ZipFile(name) as old:
    files = {entry: old.read(entry) for entry in old.namelist()}
serves = b"raise typer.Exit(run_daemon(config))"
assert serves in files["runner/cli/serve.py"], "the daemon starts otherwise now"
files["runner/cli/serve.py"] = files["runner/cli/serve.py"].replace(serves, b"raise typer.Exit(7)")
with zipfile.ZipFile(name, "w") as new:
    for entry, content in files.items():
        new.writestr(entry, content)
control = pathlib.Path("DEBIAN/control")
control.write_text(control.read_text().replace("+", "+9"))
"""
#: A GPU type of a device that NVML alone knows.
HYPOTHETICAL = """
name = "HYP9000"
vendor = "nvidia"
device_names = ['NVIDIA Hypothetical 9000']
sample_every_s = 0.1

[environment]
KR_EMULATE_CUDA = "268435456"
"""
#: Says all it can find out, waits until the test lets it go on, and is right.
SLOW = """
import os, time, pathlib

def look():
    for name in ("environ", "cmdline", "mountinfo"):
        for path in pathlib.Path("/proc").glob(f"[0-9]*/{name}"):
            try:
                print(path, path.read_bytes())
            except OSError as error:
                print(path, error)
    for folder in ("/etc", "/run", "/tmp", "/work", "/kernel-runner", "/var", "/opt", "/srv", "/root", "/home"):
        for path in pathlib.Path(folder).rglob("*"):
            try:
                if path.is_file() and b"cana" b"ry-" in path.read_bytes():
                    print("FOUND" "-A-SECRET", path)
            except OSError:
                pass

    for folder, folders, files in os.walk("/"):
        for name in [*folders, *files]:
            if name.startswith("kernel_runner-"):
                print("FOUND" "-A-SECRET", folder, name)

if not pathlib.Path("/tmp/looked").exists():
    pathlib.Path("/tmp/looked").touch()
    look()
    while not pathlib.Path("/tmp/go-on").exists():
        time.sleep(0.05)

def custom_kernel(data):
    a, b = data
    return a + b
"""


def four_commands() -> list[str]:
    """What docs/operations.md says brings a fresh host to its first evaluated submission; the machine has no sudo."""
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    block = page.split("## Installing a host\n")[1].split("```sh\n")[1].split("```")[0]
    commands = [line.removeprefix("sudo ") for line in block.splitlines()]
    assert len(commands) == 4
    return commands


def prepare(machine: Machine) -> None:
    """What an administrator of the database does: a server with TLS, an owner, a database."""
    # Hosts with devices have udev, and so this group.
    machine.run("groupadd", "--system", "--force", "render")
    machine.run(
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-days", "2"),
        *("-keyout", "/etc/postgresql/server.key", "-out", "/etc/postgresql/server.crt"),
    )
    machine.run("chown", "postgres:postgres", "/etc/postgresql/server.key")
    settings = "ssl_cert_file = '/etc/postgresql/server.crt'\nssl_key_file = '/etc/postgresql/server.key'\n"
    machine.write("/etc/postgresql/15/main/conf.d/tls.conf", settings)
    machine.run("systemctl", "restart", "postgresql")
    postgres = ("runuser", "-u", "postgres", "--", "psql", "-Xq", "-v", "ON_ERROR_STOP=1")
    machine.run(*postgres, stdin=f"CREATE ROLE kernelbot LOGIN PASSWORD '{CANARIES[0]}';\n")
    machine.run(*postgres, "-c", DATABASE)
    machine.write(f"{FOLDER}/url", f"{OWNER_URL}\n", mode=0o600)


def submit(machine: Machine, *, user: str) -> int:
    """Put the slow submission into the queue; its id."""
    return int(
        machine.run(
            *("kernel-runner", "submit", "/root/slow.py", "--leaderboard", "vectoradd", "--gpu", "CPU"),
            *("--mode", "test", "--user", user),
        )
    )


def state(machine: Machine, submission: int) -> list[str]:
    """State, verdict, attempt and failures of its job."""
    query = "SELECT state, verdict, attempt, failures FROM runner.job WHERE submission_id = "
    return machine.sql(f"{query}{submission}").split("|")


def begin(machine: Machine, *, user: str) -> int:
    """Submit, and wait until its container is there."""
    submission = submit(machine, user=user)
    machine.until("the run begins", lambda: "running" in state(machine, submission))
    machine.until("its container is there", lambda: bool(machine.run("docker", "ps", "-q")))
    return submission


#: Lets each run go on whose container is there now; one may go meanwhile.
GO_ON = """
for container in $(docker ps -q); do
    pid=$(docker inspect --format '{{.State.Pid}}' "$container" || echo 0)
    touch "/proc/$pid/root/tmp/go-on" || true
done
"""


def finish(machine: Machine, submission: int) -> list[str]:
    """Let its runs go on, and wait for the end of its job; state, verdict, attempt, failures."""

    def over() -> bool:
        machine.run("sh", "-c", GO_ON)
        return state(machine, submission)[0] in ("done", "cancelled")

    machine.until("the job ends", over)
    return state(machine, submission)


def runs(machine: Machine, submission: int) -> int:
    """How many rows its evaluation has left."""
    return int(machine.sql(f"SELECT count(*) FROM leaderboard.runs WHERE submission_id = {submission}"))  # noqa: S608 ours


def snapshot(machine: Machine) -> set[str]:
    """Every path on the machine where an installation may leave something, and every account."""
    paths = machine.run("find", "/etc", "/usr", "/opt", "/var/lib", "/root", "/srv", "-xdev", "-not", "-name", "*.pyc")
    ignored = (
        *("/var/lib/docker", "/var/lib/postgresql", "/var/lib/containerd", "/var/lib/systemd", "/root/slow.py"),
        *("/var/lib/apt/", "/var/lib/dpkg/"),
    )
    backups = ("/etc/passwd-", "/etc/shadow-", "/etc/group-", "/etc/gshadow-", "/etc/.pwd.lock")
    accounts = machine.run("cat", "/etc/passwd", "/etc/group")
    return {
        line
        for line in (*paths.splitlines(), *accounts.splitlines())
        if not line.startswith(ignored) and line not in backups and not line.endswith("__pycache__")
    }


def break_and_go_back(machine: Machine) -> None:
    """A release that passes its check and does not start is taken back, and what was changed by hand stays."""
    broken = f"{FOLDER}/broken"
    machine.run("sh", "-c", f"dpkg-deb -R {PACKAGES}/*.deb {broken} && cd {broken} && python3 -c {quoted(BREAK)}")
    machine.run("dpkg-deb", "--build", broken)
    ran = machine.ask(*INSTALL, f"{broken}.deb")
    assert (ran.code, "was put back" in ran.out + ran.err) == (100, True), ran.out + ran.err
    machine.until("the release before serves again", lambda: machine.show("ActiveState") == ["active"])
    assert machine.run("tail", "-n", "1", SITE) == "# mine\n"
    # The package of the release before puts dpkg's record right, and does not restart the daemon.
    (pid,) = machine.show("MainPID")
    machine.run("sh", "-c", f"{' '.join(INSTALL)} {PACKAGES}/*.deb")
    assert machine.run("dpkg-query", "--show", "--showformat=${Status}", "kernel-runner") == "install ok installed"
    assert machine.show("MainPID") == [pid]
    machine.run("rm", "-r", broken, f"{broken}.deb")


def upgrade(machine: Machine) -> None:
    """What the release before has left on a host and in its database serves this one; without one, nothing happens."""
    if machine.ask("test", "-d", f"{PACKAGES}/before").code != 0:
        return
    install, *others = four_commands()
    for command in (install.replace("dist/", "dist/before/"), *others):
        machine.run("sh", "-c", f"cd {FOLDER} && {command}")
    # As docs/operations.md says where a release brings a migration.
    machine.run("systemctl", "stop", "kernel-runner")
    machine.run("sh", "-c", f"cd {FOLDER} && {' '.join(INSTALL)} ./dist/*.deb")
    machine.run("kernel-runner", "migrate")
    machine.run("systemctl", "start", "kernel-runner")
    assert "accepted" in machine.run("sh", "-c", f"cd {FOLDER} && {others[-1]}")
    machine.run("apt-get", "purge", "--yes", "kernel-runner")
    for statement in ("DROP DATABASE kernelbot", DATABASE):
        machine.run("runuser", "-u", "postgres", "--", "psql", "-Xqc", statement)


def sample_a_device(machine: Machine) -> None:
    """A run on a device that is sampled: the sampler's thread leaves the run's cores, and the unit allows that.

    NVML alone knows the device; in the container it is emulated. A unit whose filter ends the daemon at a system call
    that it does not allow would do so at this job.
    """
    driver, types = f"{FOLDER}/driver", "/etc/kernel-runner/gpus.d"
    fragment = f"{Path(OWN).parent}/device.conf"
    machine.run("mkdir", "-p", driver, types)
    device = nvidia("NVIDIA Hypothetical 9000", 0x9999, 31, (12, 0))
    library = inspect.getsource(nvml) + f"\nimport sys\nsys.modules[__name__] = Nvml(lambda: [{device!r}])\n"
    machine.write(f"{driver}/pynvml.py", library)
    machine.write(f"{types}/HYP9000.toml", HYPOTHETICAL)
    machine.write(fragment, f"[Service]\nEnvironment=PYTHONPATH={driver}\n")
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "restart", "kernel-runner")
    (pid,) = machine.show("MainPID")
    vectoradd = "/opt/kernel-runner/tasks/problems/vectoradd"
    machine.run("kernel-runner", "leaderboard", "create", vectoradd, "--name", "sampled", "--gpu", "HYP9000")
    submission = int(
        machine.sql(
            "SELECT runner.submit('sampled', 'sampled', 'mine.py', convert_to("
            "'def custom_kernel(data):\n    a, b = data\n    return a + b\n', 'UTF8'), 'test', ARRAY['HYP9000'])"
        )
    )
    assert finish(machine, submission) == ["done", "accepted", "1", "0"], machine.journal()[-6000:]
    samples = "system_info -> 'runner' -> 'devices' -> 0 -> 'during' ->> 'samples'"
    found = machine.sql(f"SELECT {samples} FROM leaderboard.runs WHERE submission_id = {submission}")  # noqa: S608 ours
    assert int(found) > 0
    assert machine.show("MainPID", "ActiveState") == [pid, "active"]
    machine.run("rm", "-r", driver, f"{types}/HYP9000.toml", fragment)
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "restart", "kernel-runner")


def leak(text: str) -> list[str]:
    """The canaries in a text."""
    return [canary for canary in CANARIES if canary in text]


@pytest.mark.timeout(1800)
def test_a_host_from_its_packages_to_its_end(machine: Machine) -> None:
    """Four commands to a verdict; kill, hang, stop and a new password lose no run; nothing leaks or stays."""
    prepare(machine)
    before = snapshot(machine)
    upgrade(machine)
    # What the site wants otherwise is there first, and stays: as little at a time as a busy machine for tests can bear.
    machine.run("mkdir", "-p", str(Path(OWN).parent))
    machine.write(OWN, DROP_IN)

    # A fresh host to its first evaluated submission. A submission that is not accepted is an exit code of its own.
    commands = four_commands()
    here = f"cd {FOLDER}; export KERNEL_RUNNER_MAX_ATTEMPTS=4"
    said = "".join(machine.run("sh", "-c", f"{here}; {command}") for command in commands)
    assert "accepted" in said
    # `install --migrate` writes what all hosts share, as `migrate` does.
    attempts = ("psql", "-XAqtd", "kernelbot", "-c", "SELECT max_attempts FROM runner.retry")
    assert machine.run("runuser", "-u", "postgres", "--", *attempts) == "4\n"

    # Installing again does not restart the daemon, and keeps every file, also those that the operator has changed.
    (pid,) = machine.show("MainPID")
    machine.run("sh", "-c", f"echo '# mine' >> {SITE}")
    again = machine.run("sh", "-c", f"apt-get install --reinstall {PACKAGES}/*.deb")
    again += machine.run("kernel-runner", "install", "--no-start")
    assert "✓" not in again
    assert machine.show("MainPID") == [pid]
    assert machine.run("sh", "-c", f"tail -n 1 {SITE}; cat {OWN}") == f"# mine\n{DROP_IN}"

    # The check sees what the unit's drop-ins say.
    wrong = f"{Path(OWN).parent}/wrong.conf"
    machine.write(wrong, "[Service]\nEnvironment=KERNEL_RUNNER_POLL_S=0\n")
    ran = machine.ask("kernel-runner", "install")
    assert (ran.code, "KERNEL_RUNNER_POLL_S: found" in ran.out) == (1, True), ran.out + ran.err
    machine.run("rm", wrong)
    machine.run("systemctl", "daemon-reload")

    # The score counts what this systemd really enforces.
    machine.run("systemd-analyze", "security", "--no-pager", "--threshold=20", "kernel-runner.service")

    sample_a_device(machine)

    if WHOLE:
        break_and_go_back(machine)

    # SIGKILL: systemd starts it again, and the job ends once.
    machine.write("/root/slow.py", SLOW)
    killed = begin(machine, user="killed")
    machine.run("systemctl", "kill", "--signal=KILL", "kernel-runner")
    assert finish(machine, killed) == ["done", "accepted", "2", "0"]
    assert runs(machine, killed) == 1
    assert machine.show("NRestarts", "ActiveState") == ["1", "active"]

    # A daemon that hangs: the watchdog ends it, and it comes back.
    (pid,) = machine.show("MainPID")
    machine.run("systemctl", "kill", "--signal=STOP", "--kill-who=main", "kernel-runner")
    machine.until("the watchdog", lambda: machine.show("NRestarts", "ActiveState") == ["2", "active"])
    assert "Watchdog timeout" in machine.journal()
    assert machine.show("MainPID") != [pid]

    # A stop finishes the run.
    drained = begin(machine, user="drained")
    containers = machine.run("sh", "-c", "docker inspect $(docker ps -q)")
    slices = {box["HostConfig"]["CgroupParent"] for box in json.loads(containers)}
    assert slices == {"kernelrunner.slice"}
    machine.run("systemctl", "stop", "--no-block", "kernel-runner")
    machine.until("the stop", lambda: machine.show("ActiveState") == ["deactivating"])
    assert finish(machine, drained) == ["done", "accepted", "1", "0"]
    machine.until("its end", lambda: machine.show("ActiveState") == ["inactive"])
    assert machine.show("Result") == ["success"]

    # A new password, of a user with the daemon's rights only; the old one is shut out.
    roles = machine.run("kernel-runner", "migrate", "--print-roles")
    machine.run("runuser", "-u", "postgres", "--", "psql", "-Xq", "-d", "kernelbot", stdin=roles)
    machine.run(
        *("runuser", "-u", "postgres", "--", "psql", "-Xq", "-d", "kernelbot"),
        stdin=f"CREATE ROLE gpu07 LOGIN PASSWORD '{CANARIES[1]}' IN ROLE runner_daemon;\n",
    )
    machine.sql("SELECT runner.move_host(name, 'gpu07') FROM runner.host")
    new = OWNER_URL.replace(f"kernelbot:{CANARIES[0]}", f"gpu07:{CANARIES[1]}")
    # With a file that the unit's drop-in passes, as docs/security.md says of a client's key.
    new = new.replace("/etc/postgresql/server.crt", "/run/credentials/kernel-runner.service/ca.crt")
    machine.run("bash", "-c", f'install -m 600 /dev/stdin {SECRET} <<< "$NEW_URL"', environment={"NEW_URL": new})
    machine.sql("ALTER ROLE kernelbot NOLOGIN")
    machine.run("systemctl", "restart", "kernel-runner")
    sessions = machine.sql(
        "SELECT DISTINCT usename, ssl FROM pg_stat_activity JOIN pg_stat_ssl USING (pid)"
        " WHERE application_name LIKE 'kernel-runner %'"
    )
    assert sessions == "gpu07|t"
    machine.run("kernel-runner", "install")
    machine.sql("ALTER ROLE kernelbot LOGIN")
    rotated = machine.sql(
        "SELECT runner.submit('vectoradd', 'rotated', 'mine.py', convert_to("
        "'def custom_kernel(data):\n    a, b = data\n    return a + b\n', 'UTF8'), 'test', ARRAY['CPU'])"
    )
    assert finish(machine, int(rotated))[:2] == ["done", "accepted"]

    # No secret has left the files that are made for it.
    dump = machine.run("runuser", "-u", "postgres", "--", "pg_dump", "--inserts", "kernelbot")
    assert "mountinfo" in dump, "the submission's look around is in the database"
    state_dir = machine.run("sh", "-c", "find /var/lib/kernel-runner -type f -exec cat {} +")
    logs = machine.run("journalctl", "--no-pager", "--output=export") + machine.run(
        "systemctl", "show", "kernel-runner"
    )
    processes = machine.run("sh", "-c", "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'")
    for where, text in {
        "the engine": containers,
        "the database": dump,
        "the state directory": state_dir,
        "the logs": logs,
        "a process's arguments or environment": processes,
        "the installation's output": said,
    }.items():
        assert leak(text) == [], f"found in {where}"
    assert "FOUND-A-SECRET" not in dump, "a submission has found one"
    readers = machine.run("grep", "-rlE", "|".join(CANARIES), "/etc", "/opt/kernel-runner", "/var/lib/kernel-runner")
    assert readers.split() == [SECRET]
    assert machine.run("stat", "-c", "%U %a", SECRET).split() == ["root", "600"]

    # Results that no database has taken are not purged. Then nothing stays.
    log = machine.run("sh", "-c", "docker images --no-trunc; apt-get remove --yes kernel-runner 2>&1; docker images")
    assert machine.ask("systemctl", "cat", "kernel-runner").code != 0
    assert machine.run("docker", "ps", "-aq") == ""
    assert machine.run("docker", "images", "-q") == "", log
    machine.run("mkdir", "-p", "/var/lib/kernel-runner/spool")
    machine.write("/var/lib/kernel-runner/spool/result", "")
    ran = machine.ask("apt-get", "purge", "--yes", "kernel-runner")
    assert (ran.code, "1 results wait in" in ran.out + ran.err) == (100, True), ran.out + ran.err
    assert leak(machine.run("cat", SECRET)) == [CANARIES[1]]
    machine.run("rm", "/var/lib/kernel-runner/spool/result")
    machine.run("apt-get", "purge", "--yes", "kernel-runner")
    after = snapshot(machine)
    assert (sorted(after - before), sorted(before - after)) == ([], [])
