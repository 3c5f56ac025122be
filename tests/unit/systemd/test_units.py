"""What is shipped for systemd: hardened, and in step with the daemon's own numbers."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from runner.cli.installation import DATABASE_URL, shipped
from runner.daemon.loop import ABORT_S, JOIN_S
from runner.daemon.monitoring.watchdog import STEP_LIMIT_S
from runner.extras.config import SiteConfig
from runner.extras.gateway.server import GRACE_S
from runner.extras.store import PATIENCE_S
from runner.extras.webhooks.http import TOTAL_S
from sandbox.host.engine import SLICE

FOLDER = Path(__file__).resolve().parents[3] / "systemd"
SHIPPED = (
    *("kernel-runner.service", "kernel-runner-gateway.service", "kernel-runner-gateway.socket"),
    *("kernel-runner-discord.service", "kernel-runner-webhooks.service", "kernelrunner.slice"),
)
#: Unit -> its most exposure, in the tenths in which `systemd-analyze security` counts. Frontends need no device and no
#: engine.
EXPOSURES = {
    "kernel-runner": 20,
    **{f"kernel-runner-{name}": 15 for name in ("gateway", "discord", "webhooks")},
}
#: Engine and database let go of what waits for them.
MARGIN_S = 30


def unit(name: str) -> dict[str, list[str]]:
    """The settings of a unit, each with its values in order."""
    found: dict[str, list[str]] = {}
    for line in (FOLDER / name).read_text(encoding="utf-8").splitlines():
        key, sign, value = line.partition("=")
        if sign and not line.startswith(("#", ";")):
            found.setdefault(key, []).append(value)
    return found


def seconds(key: str) -> float:
    """A duration of the service."""
    (value,) = unit("kernel-runner.service")[key]
    return float(value.removesuffix("s"))


@pytest.fixture
def verified(tmp_path: Path) -> Path:
    """The unit under its own name in a folder of its own, as systemd-analyze wants it."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed (apt-get install systemd)")
    for name in SHIPPED:
        text = (FOLDER / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(re.sub(r"/opt/kernel-runner/bin/kernel-runner", "/bin/true", text), "utf-8")
    return tmp_path / "kernel-runner.service"


@pytest.mark.parametrize("name", EXPOSURES)
def test_a_services_exposure_is_low(verified: Path, name: str) -> None:
    """As systemd itself counts."""
    path, threshold = str(verified.with_name(f"{name}.service")), f"--threshold={EXPOSURES[name]}"
    analyse = ["systemd-analyze", "security", "--offline=true", "--no-pager", threshold, path]
    done = subprocess.run(analyse, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


#: The unit of a frontend -> its secrets beside the database's address.
SECRETS = {
    "gateway": (*("gateway_admin_token", "gateway_publish_url", "gateway_github_secret", "gateway_discord_secret"),),
    "discord": ("discord_token", "discord_publish_url"),
    "webhooks": ("webhook_secrets",),
}


@pytest.mark.parametrize("name", SECRETS)
def test_a_guests_secrets_are_credentials_of_its_own(name: str) -> None:
    """Not the daemon's login, and nothing in the environment."""
    service = unit(f"kernel-runner-{name}.service")
    folder = Path(DATABASE_URL).parent
    files = {"database_url": f"{name.rstrip('s')}_database_url", **{secret: secret for secret in SECRETS[name]}}
    assert service["LoadCredential"] == [f"{key}:{folder}/{file}" for key, file in files.items()]
    assert service["DynamicUser"] == ["yes"]
    assert not {"EnvironmentFile", "Environment", "SupplementaryGroups"} & set(service)


def test_the_gateways_address_outlives_its_restart() -> None:
    """The socket is systemd's, and at the address that the configuration has without systemd."""
    (address,) = unit("kernel-runner-gateway.socket")["ListenStream"]
    assert address == SiteConfig.model_fields["gateway_listen"].default
    assert unit("kernel-runner-gateway.service")["Requires"] == ["kernel-runner-gateway.socket"]


def test_no_guest_is_killed_before_its_requests_have_ended() -> None:
    """One that waits for a database that is away has `GRACE_S`; the sender's is for a target's answer, too."""
    (stop,) = unit("kernel-runner-gateway.service")["TimeoutStopSec"]
    assert int(stop.removesuffix("s")) > GRACE_S > PATIENCE_S
    (stop,) = unit("kernel-runner-webhooks.service")["TimeoutStopSec"]
    assert int(stop.removesuffix("s")) > TOTAL_S + PATIENCE_S


def test_systemd_understands_every_line(verified: Path) -> None:
    """Of the units, and of the site's drop-in, which changes nothing as it is, with every example switched on.

    A misspelt setting is ignored by systemd, and only said here.
    """
    text = (FOLDER / "site.conf").read_text(encoding="utf-8")
    parsed = configparser.ConfigParser()
    parsed.read_string(text)
    assert {section: dict(parsed[section]) for section in parsed.sections()} == {"Service": {}}
    everything = re.sub(r"(?m)^#(?=[A-Za-z]+=)", "", text).replace("/usr/bin/nvidia-smi", "/bin/true")
    drop_in = verified.with_name("kernel-runner.service.d") / "site.conf"
    drop_in.parent.mkdir()
    units = [str(verified.with_name(name)) for name in SHIPPED]
    for misspelt in ("", "ExecStartPost2=/bin/true\n"):
        drop_in.write_text(everything + misspelt, "utf-8")
        done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
        assert any(str(verified.parent) in line for line in done.stderr.splitlines()) == bool(misspelt), done.stderr


def test_the_unit_waits_as_long_as_the_daemon_does_and_no_longer_for_one_that_hangs() -> None:
    """A stop may take the longest wait for current runs and what follows, or systemd would kill the daemon before.

    One that hangs is back within a minute: the main loop's longest silence, the watchdog's period, the end, the start.
    """
    drain_s = float(SiteConfig.model_fields["drain_timeout_s"].default)
    assert seconds("TimeoutStopSec") >= drain_s + ABORT_S + 2 * JOIN_S + MARGIN_S
    assert STEP_LIMIT_S + seconds("WatchdogSec") + seconds("TimeoutAbortSec") + seconds("RestartSec") <= 60


def test_the_node_that_cuda_needs_is_made_before_the_daemon_looks_for_devices() -> None:
    """With root's rights and outside of the unit's device policy. It is no failure where there is no such program."""
    lines = (FOLDER / "kernel-runner.service").read_text(encoding="utf-8").splitlines()
    order = [line for line in lines if line.startswith("ExecStart")]
    assert order[0].startswith("ExecStartPre=-+/bin/sh -c ")
    assert order[0].endswith(' systemd-run --quiet --collect --wait /usr/bin/nvidia-modprobe -u -c=0"')
    assert order[1].startswith("ExecStart=")
    # The device policy would keep it from making a node.
    assert not [value for value in unit("kernel-runner.service")["DeviceAllow"] if "m" in value.split()[-1]]
    if not Path("/usr/bin/nvidia-modprobe").exists():
        words = shlex.split(order[0].partition("-+")[2])
        assert subprocess.run(words, capture_output=True, check=False).returncode == 0


def allowed_calls() -> set[str]:
    """The system calls that the unit allows, as systemd reads its lines: the first one begins a list of them."""
    listed = subprocess.run(
        ["systemd-analyze", "syscall-filter", "--no-pager"], capture_output=True, text=True, check=True
    )
    sets: dict[str, list[str]] = {}
    for line in listed.stdout.splitlines():
        words = line.partition("#")[0].split()
        if words and not line.startswith(" "):
            members = sets.setdefault(words[0], [])
        elif words:
            members += words

    def expanded(name: str) -> set[str]:
        return set().union(*map(expanded, sets[name])) if name.startswith("@") else {name}

    found = expanded("@default")
    for value in unit("kernel-runner.service")["SystemCallFilter"]:
        calls = set().union(*map(expanded, value.removeprefix("~").split()))
        found = found - calls if value.startswith("~") else found | calls
    return found


#: Installs a filter as systemd does, and then samples one device once, on another core than the first.
SAMPLES = """
import ctypes, errno, os, sys, threading

library = ctypes.CDLL("libseccomp.so.2")
library.seccomp_init.restype = ctypes.c_void_p
refused = {"kill": 0x80000000, "EPERM": 0x00050000 | errno.EPERM}[sys.argv[1]]
rules = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(refused)))
for name in sys.argv[2].split():
    number = library.seccomp_syscall_resolve_name(name.encode())
    if number >= 0:
        library.seccomp_rule_add_array(rules, ctypes.c_uint32(0x7FFF0000), number, 0, None)

from runner.base.device_facts import Reading
from runner.devices.sampler import Sampler

first, *others = sorted(os.sched_getaffinity(0))
cores = []
sampled = threading.Event()

def sample():
    cores.append(os.sched_getaffinity(0))
    sampled.set()
    return Reading()

assert library.seccomp_load(rules) == 0
with Sampler([sample], every_s=60, avoid=[first]):
    sampled.wait(20)
assert cores[0] == (set(others) or {first}), cores
try:
    os.nice(0)
except PermissionError:
    print("sampled elsewhere; a refused call fails")
"""


def test_the_units_filter_of_system_calls_lets_the_sampler_leave_the_runs_cores(verified: Path) -> None:
    """The kernel enforces the filter here. A refused call is an error, and does not end the daemon."""
    del verified
    refused = unit("kernel-runner.service").get("SystemCallErrorNumber", ["kill"])
    command = [sys.executable, "-c", SAMPLES, *refused, " ".join(sorted(allowed_calls()))]
    done = subprocess.run(command, cwd=FOLDER.parent, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "sampled elsewhere; a refused call fails\n"), done.stderr


def test_devices_stay_reachable_and_the_engine_too() -> None:
    """What NVML, AMD SMI and the engine's socket need is not hardened away.

    The secret comes as a credential, not by environment, which every process of the user may read; nor is it dumped.
    """
    service = unit("kernel-runner.service")
    assert {"char-nvidia* rw", "char-drm rw", "char-kfd rw"} <= set(service["DeviceAllow"])
    assert not {"PrivateDevices", "PrivateUsers", "EnvironmentFile"} & set(service)
    assert "AF_UNIX" in service["RestrictAddressFamilies"][0]
    assert service["LoadCredential"] == [f"database_url:{DATABASE_URL}"]
    assert service["LimitCORE"] == ["0"]


def test_what_an_installation_needs_is_part_of_the_wheel() -> None:
    """Every file that is shipped stands in pyproject.toml. A dash in a slice's name puts it below another one."""
    project = tomllib.loads((FOLDER.parent / "pyproject.toml").read_text(encoding="utf-8"))
    folders = project["tool"]["setuptools"]["data-files"]
    assert folders == {"share/kernel-runner/systemd": ["systemd/config.toml", "systemd/site.conf"]}
    assert shipped("config.toml")
    assert ((FOLDER / SLICE).is_file(), "-" in SLICE) == (True, False)


def test_the_configurations_template_shows_every_key_with_its_default(tmp_path: Path) -> None:
    """As it is it loads; with every line switched on it loads too, and says what the defaults are."""
    text = (FOLDER / "config.toml").read_text(encoding="utf-8")
    assert set(tomllib.loads(text)) == {"database_url_file", "eval_python"}
    everything = re.sub(r"(?m)^#(?=[a-z_]+ = )", "", text)
    assert set(tomllib.loads(everything)) == set(SiteConfig.model_fields) - {"database_url"}
    (tmp_path / "config.toml").write_text(everything, encoding="utf-8")
    loaded = SiteConfig.load(tmp_path / "config.toml", environ={})
    for key, field in SiteConfig.model_fields.items():
        default = field.get_default(call_default_factory=False)
        if default is not None and key != "host_name":
            assert getattr(loaded, key) == default, key
