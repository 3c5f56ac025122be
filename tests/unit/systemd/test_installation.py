"""What an installation writes, and what it leaves alone; below a directory, with the system's commands written down."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from runner.cli.installation import PREFIX, RECORD, Host, Ran, Step, perform, shipped
from runner.errors import ConfigError, InfrastructureError

UNIT = "/usr/local/lib/systemd/system/kernel-runner.service"


class Commands:
    """The system's commands: what was asked for, and what they answer."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.code = 0

    def __call__(self, arguments: Sequence[str]) -> Ran:
        """Note a command."""
        self.asked.append(" ".join(arguments))
        return Ran(code=self.code, said="said")


@pytest.fixture
def said() -> list[str]:
    """What the operator is told."""
    return []


def tell(host: Host, steps: Sequence[Step], said: list[str], *, dry_run: bool = False) -> int:
    """Do the steps on a fresh look at the host."""
    said.clear()
    return perform(steps, dry_run=dry_run, say=said.append)


def test_a_dry_run_writes_nothing(tmp_path: Path, said: list[str]) -> None:
    """Every step is named, none is done."""
    host = Host(tmp_path, run=Commands())
    steps = [host.link("/usr/local/bin/x", "/opt/x"), host.own_file("/etc/x", b"mine"), host.remove("/etc")]
    (tmp_path / "etc").mkdir()
    assert tell(host, steps, said, dry_run=True) == 3
    assert said == [
        "would link /usr/local/bin/x to /opt/x",
        "would file /etc/x, yours from now on",
        "would remove /etc",
    ]
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["etc"]


def test_doing_it_again_changes_nothing(tmp_path: Path, said: list[str]) -> None:
    """Files, links and the record are as they were."""
    for expected in (3, 0):
        host = Host(tmp_path, run=Commands())
        steps = [
            host.link("/usr/local/bin/x", "/opt/x"),
            host.own_file("/etc/x", b"mine", mode=0o600),
            host.vendor_file(UNIT, b"[Unit]", say=said.append),
        ]
        assert tell(host, steps, said) == expected
    assert (tmp_path / "etc/x").stat().st_mode & 0o777 == 0o600
    assert str((tmp_path / "usr/local/bin/x").readlink()) == "/opt/x"


def test_a_file_of_the_operators_is_never_written_over(tmp_path: Path, said: list[str]) -> None:
    """Whatever is in it, also nothing."""
    place = tmp_path / "etc/x"
    place.parent.mkdir()
    place.write_bytes(b"")
    host = Host(tmp_path, run=Commands())
    assert tell(host, [host.own_file("/etc/x", b"ours")], said) == 0
    assert place.read_bytes() == b""


def test_a_releases_file_is_replaced_unless_somebody_has_changed_it(tmp_path: Path, said: list[str]) -> None:
    """Then the new one lies beside it, and uninstalling leaves what was changed."""
    place = tmp_path / UNIT.lstrip("/")
    for content in (b"one", b"two"):
        host = Host(tmp_path, run=Commands())
        tell(host, [host.vendor_file(UNIT, content, say=said.append)], said)
        assert place.read_bytes() == content
    place.write_bytes(b"changed by hand")
    host = Host(tmp_path, run=Commands())
    tell(host, [host.vendor_file(UNIT, b"three", say=said.append)], said)
    assert place.read_bytes() == b"changed by hand"
    assert place.with_name(f"{place.name}.new").read_bytes() == b"three"
    assert f"{UNIT} was changed by somebody and stays" in said[0]
    tell(host, [host.remove_vendor_file(UNIT, say=said.append)], said)
    assert place.exists()
    place.write_bytes(b"two")
    tell(host, [host.remove_vendor_file(UNIT, say=said.append)], said)
    assert not place.exists()
    assert not place.with_name(f"{place.name}.new").exists()


def test_only_directories_that_were_made_go(tmp_path: Path, said: list[str]) -> None:
    """And of those only the empty ones; the record goes last."""
    (tmp_path / "usr/local").mkdir(parents=True)
    host = Host(tmp_path, run=Commands())
    tell(host, [host.vendor_file(UNIT, b"x", say=said.append), host.own_file("/etc/made/by/us", b"x")], said)
    assert host.installed
    host = Host(tmp_path, run=Commands())
    tell(host, [host.remove_vendor_file(UNIT, say=said.append), host.remove_directories()], said)
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    assert left == ["etc", "etc/made", "etc/made/by", "etc/made/by/us", "usr", "usr/local"]


def test_what_is_no_link_is_not_replaced_by_one(tmp_path: Path, said: list[str]) -> None:
    """A link that leads elsewhere is."""
    place = tmp_path / "usr/local/bin/kernel-runner"
    place.parent.mkdir(parents=True)
    place.symlink_to("/elsewhere")
    host = Host(tmp_path, run=Commands())
    step = host.link("/usr/local/bin/kernel-runner", "/opt/x")
    tell(host, [step], said)
    assert str(place.readlink()) == "/opt/x"
    place.unlink()
    place.write_bytes(b"somebody's own")
    with pytest.raises(ConfigError, match="is there and no link: expected nothing, or a link"):
        tell(host, [step], said)


def test_the_release_in_use_is_where_the_link_leads(tmp_path: Path, said: list[str]) -> None:
    """None where nothing is installed."""
    host = Host(tmp_path, run=Commands())
    assert host.release is None
    tell(host, [host.link(f"{PREFIX}/bin", f"{PREFIX}/releases/1-a/bin")], said)
    assert host.release == f"{PREFIX}/releases/1-a"


def test_a_command_that_fails_is_told_with_what_it_said(tmp_path: Path) -> None:
    """Which one, its exit code, its words."""
    commands = Commands()
    commands.code = 5
    with pytest.raises(InfrastructureError, match="`systemctl daemon-reload` ended with exit code 5: said"):
        Host(tmp_path, run=commands).tell_systemd()
    assert commands.asked == ["systemctl daemon-reload"]


def test_a_damaged_record_is_refused(tmp_path: Path) -> None:
    """Without it nobody knows whose files are whose."""
    record = tmp_path / RECORD.lstrip("/")
    record.parent.mkdir(parents=True)
    record.write_text("{", encoding="utf-8")
    with pytest.raises(ConfigError, match="expected the record of what was installed"):
        Host(tmp_path, run=Commands())


def test_an_unknown_file_of_a_release_is_named() -> None:
    """A release that lacks a file was not made by `make package`."""
    with pytest.raises(ConfigError, match=r"nothing\.service did not come with"):
        shipped("nothing.service")
