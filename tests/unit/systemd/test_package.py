"""What the scripts of the Debian package do, and what it is made of."""

from __future__ import annotations

from pathlib import Path

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
    assert f"for unit in {UNIT} {GATEWAY_UNIT} {GATEWAY_SOCKET} {DISCORD_UNIT} {WEBHOOKS_UNIT};" in " ".join(
        text.replace("\\", "").split()
    )
    assert "/etc/systemd/system/$unit.d" in text


def test_the_scripts_call_the_program_where_the_package_has_it() -> None:
    """The wheels' script makes the new release; the old one ends what runs."""
    wheels = f"{PREFIX}/wheels/kernel-runner"
    assert f"{wheels} upgrade\n" in (SCRIPTS / "postinst").read_text(encoding="utf-8")
    assert f"{PREFIX}/bin/kernel-runner uninstall\n" in (SCRIPTS / "prerm").read_text(encoding="utf-8")
    assert wheels.lstrip("/") in (ROOT / ".ci" / "package").read_text(encoding="utf-8")
