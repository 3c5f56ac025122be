"""What the scripts of the Debian package do, and what it is made of."""

from __future__ import annotations

from pathlib import Path

from runner.cli.installation import DATABASE_URL, GATEWAY_SOCKET, GATEWAY_UNIT, PACKAGE, PREFIX, SITE, UNIT

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = ROOT / "systemd" / "debian"


def test_a_purge_removes_all_that_is_the_operators() -> None:
    """Configuration, credential, drop-ins, state."""
    text = (SCRIPTS / "postrm").read_text(encoding="utf-8")
    for path in (Path(DATABASE_URL).parents[1], "/var/lib/kernel-runner", PREFIX):
        assert f" {path}" in text
    assert f"for unit in {UNIT} {GATEWAY_UNIT} {GATEWAY_SOCKET};" in text
    assert str(Path(SITE).parents[1]) in text


def test_the_package_is_where_its_program_looks_for_it() -> None:
    """Else it would also write the files that are dpkg's."""
    assert f"{PACKAGE}/kernel-runner upgrade --package" in (SCRIPTS / "postinst").read_text(encoding="utf-8")
    assert f"{PREFIX}/bin/kernel-runner uninstall --package" in (SCRIPTS / "prerm").read_text(encoding="utf-8")
    assert f"{PACKAGE.lstrip('/')}/kernel-runner" in (ROOT / ".ci" / "package").read_text(encoding="utf-8")
    assert not PACKAGE.startswith("/usr"), "submissions read all of /usr"
