"""What the scripts of the Debian package do, and what it is made of."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from runner.cli.installation import (
    DATABASE_URL,
    DISCORD_UNIT,
    GATEWAY_SOCKET,
    GATEWAY_UNIT,
    PREFIX,
    UNIT,
    WEBHOOKS_UNIT,
)

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = ROOT / "systemd" / "debian"


def test_a_purge_removes_all_that_is_the_operators() -> None:
    """Configuration, credential, drop-ins, state."""
    text = (SCRIPTS / "postrm").read_text(encoding="utf-8")
    for path in (Path(DATABASE_URL).parents[1], "/var/lib/kernel-runner", PREFIX):
        assert f" {path}" in text
    assert (
        f"for unit in {UNIT} {GATEWAY_UNIT} {GATEWAY_SOCKET} {DISCORD_UNIT} {WEBHOOKS_UNIT} kernelrunner.slice;"
        in " ".join(text.replace("\\", "").split())
    )
    for folder in ("system", "system.control"):
        assert f'"/etc/systemd/{folder}/$unit.d"' in text


@pytest.mark.parametrize("state", ["/var/lib/kernel-runner", "/data/kernel runner"])
def test_a_purge_leaves_all_while_results_wait(tmp_path: Path, state: str) -> None:
    """Wherever the daemon keeps them."""
    text = (SCRIPTS / "postrm").read_text(encoding="utf-8")
    for folder in ("/etc/", "/var/", "/opt/", "/run/"):
        text = text.replace(folder, f"{tmp_path}{folder}")
    (tmp_path / "postrm").write_text(text, encoding="utf-8")
    config, result = tmp_path / "etc/kernel-runner/config.toml", Path(f"{tmp_path}{state}/spool/1.1")
    for path in (config, result):
        path.parent.mkdir(parents=True)
    own = "" if state.startswith("/var") else f'state_dir = "{tmp_path}{state}"\n'
    config.write_text(f'#state_dir = "/var/lib/kernel-runner"\n{own}', encoding="utf-8")
    result.touch()
    purge = ["/bin/sh", str(tmp_path / "postrm"), "purge"]
    refused = subprocess.run(purge, capture_output=True, text=True, check=False)
    assert (refused.returncode, f"1 results wait in {result.parent} " in refused.stderr) == (1, True), refused
    assert config.exists()
    result.unlink()
    subprocess.run(purge, check=True)
    assert not config.exists()


#: A Python of that version: makes an environment, whose own Python runs while the version's is there.
_PYTHON = """\
#!/bin/sh
case "$*" in
*version_info*) echo cp{version} ;;
"-m venv "*)
    mkdir -p "$3/bin" "$3/lib/python3/site-packages"
    echo "exec $0" >"$3/bin/python"
    echo 'echo {version}: $*' >"$3/bin/kernel-runner"
    chmod +x "$3"/bin/* ;;
esac
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The scripts and wheels for two versions, below a directory; Python is there in both, and no service manager."""
    for script in (ROOT / "systemd" / "bootstrap.sh", SCRIPTS / "prerm"):
        text = script.read_text(encoding="utf-8").replace("/opt", f"{tmp_path}/opt")
        (tmp_path / script.name).write_text(text.replace("/run/systemd", f"{tmp_path}/run"), encoding="utf-8")
    for name in ("kernel_runner-1-py3-none-any.whl", "x-1-cp311-x.whl", "x-1-cp313-x.whl"):
        (tmp_path / name).touch()
    (tmp_path / "bin").mkdir()
    for name, version in (("python3", "311"), ("python3.11", "311"), ("python3.13", "313")):
        (tmp_path / "bin" / name).write_text(_PYTHON.format(version=version), encoding="utf-8")
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


def _run(package: Path, *script: str) -> str:
    path = f"{package}/bin:/usr/bin:/bin"
    return subprocess.run(
        ["/bin/sh", *script], cwd=package, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=True
    ).stdout


def test_an_environment_outlives_the_distributions_python(package: Path) -> None:
    """It is made with a version, and anew with another one where that has gone; else it stays as it is."""
    assert _run(package, "bootstrap.sh", "check") == "311: check\n"
    (package / "bin" / "python3").write_text(_PYTHON.format(version="313"), encoding="utf-8")
    (mark := next((package / "opt/kernel-runner/releases").iterdir()) / "mark").touch()
    assert _run(package, "bootstrap.sh", "check") == "311: check\n"
    assert mark.exists()
    (package / "bin" / "python3.11").write_text("exit 1", encoding="utf-8")
    assert _run(package, "bootstrap.sh", "check") == "313: check\n"
    assert not mark.exists()


@pytest.mark.parametrize("has_python", [True, False])
def test_a_package_whose_python_has_gone_can_be_removed(package: Path, *, has_python: bool) -> None:
    """The services are stopped all the same; containers and images stay."""
    _run(package, "bootstrap.sh")
    (release,) = (package / "opt/kernel-runner/releases").iterdir()
    (package / "opt/kernel-runner/bin").symlink_to(release / "bin")
    (package / "run/system").mkdir(parents=True)
    (package / "bin/deb-systemd-invoke").write_text("#!/bin/sh\necho $*\n", encoding="utf-8")
    (package / "bin/deb-systemd-invoke").chmod(0o755)
    if not has_python:
        (package / "bin/python3.11").write_text("exit 1", encoding="utf-8")
    output = _run(package, "prerm", "remove")
    assert output.startswith("311: uninstall" if has_python else f"stop {UNIT} ")
    assert _run(package, "prerm", "upgrade") == ""
