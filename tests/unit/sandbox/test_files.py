"""Staged code, the host root archive, cgroup paths and the engine's stream format: pure parts with files."""

from __future__ import annotations

import io
import os
import struct
import subprocess
import sys
import tarfile
import venv
from collections.abc import Callable
from importlib.util import cache_from_source
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox import mountinfo
from sandbox.errors import ProtocolError, RootFilesystemError
from sandbox.host import hostroot
from sandbox.host.attach import Demultiplexer
from sandbox.host.cgroup import CgroupReader, Counters, locate, reader_for
from sandbox.host.hostroot import HostRoot
from sandbox.host.stage import stage
from sandbox.mountinfo import Mount
from sandbox.spec import ACCOUNTS

_ID = "f" * 64
#: Flags in the head of a file of bytecode, as PEP 552 has them.
UNCHECKED_HASH = 0b01


def test_a_stage_holds_init_and_what_was_asked_for_and_no_more(tmp_path: Path) -> None:
    """Only the modules that run inside, plus the given trees without caches; readable for everybody."""
    source = tmp_path / "harness"
    (source / "__pycache__").mkdir(parents=True)
    (source / "__pycache__" / "judge.pyc").write_bytes(b"x")
    (source / "judge.py").write_text("pass")
    (tmp_path / "init.py").write_text("")
    packages = {"tasks/__init__.py": tmp_path / "init.py", "tasks/harness": source}
    before = os.umask(0o077)
    try:
        staged = stage(tmp_path / "state", packages)
    finally:
        os.umask(before)
    names = {path.relative_to(staged).as_posix() for path in staged.rglob("*") if path.is_file()}
    assert {"sandbox/__init__.py", "sandbox/protocol.py", "sandbox/inside/init.py", "tasks/harness/judge.py"} <= names
    assert not any("engine" in name or "hostconfig" in name or name.endswith("/judge.pyc") for name in names)
    # Each source with its bytecode, which nothing compares with the source: containers cannot write here.
    sources = {name for name in names if name.endswith(".py")}
    assert names - sources == {*(cache_from_source(name) for name in sources), "etc/passwd", "etc/group"}
    for both in ACCOUNTS:
        assert f"\nworker:x:{both.worker}:{both.worker}:" in (staged / "etc/passwd").read_text()
    code = (staged / cache_from_source("tasks/harness/judge.py")).read_bytes()
    assert int.from_bytes(code[4:8], "little") == UNCHECKED_HASH
    assert all(path.stat().st_mode & 0o444 == 0o444 for path in staged.rglob("*"))
    assert staged.stat().st_mode & 0o755 == 0o755
    assert stage(tmp_path / "state", packages) == staged
    assert list((tmp_path / "state").iterdir()) == [staged]
    (source / "judge.py").write_text("changed")
    assert stage(tmp_path / "state", packages) != staged
    assert (staged / "tasks" / "harness" / "judge.py").read_text() == "pass"


@pytest.mark.parametrize("break_it", [lambda path: path.write_bytes(b""), lambda path: path.unlink()])
def test_a_stage_that_a_power_cut_has_left_is_made_anew(tmp_path: Path, break_it: Callable[[Path], object]) -> None:
    """Else no container would work on this host until somebody finds it."""
    protocol = stage(tmp_path, {}) / "sandbox" / "protocol.py"
    whole = protocol.read_bytes()
    break_it(protocol)
    assert stage(tmp_path, {}) == protocol.parents[1]
    assert protocol.read_bytes() == whole


def test_staged_modules_import_only_each_other_and_the_standard_library(tmp_path: Path) -> None:
    """Init starts on a bare interpreter with nothing but the stage on its path."""
    staged = stage(tmp_path, {})
    code = (
        f"import sys; sys.path.insert(0, {str(staged)!r}); import sandbox.inside.init;"
        "print(sorted({m.split('.')[0] for m in sys.modules} - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() in ("['__main__', 'sandbox']", "['sandbox']")


def _members(root: HostRoot) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(root.tar())) as archive:
        return {member.name: member for member in archive.getmembers()}


def test_the_host_root_has_what_compilers_need() -> None:
    """Root links, loader cache, alternatives, and mount points with their modes; owned by root, always the same."""
    root = HostRoot(Path(sys.executable))
    members, first = _members(root), root.tar()
    for name in ("bin", "lib", "lib64"):
        path = Path("/", name)
        if path.is_symlink():
            assert members[name].linkname == str(path.readlink())
    assert "etc/ld.so.cache" in members
    if Path("/etc/alternatives/c++").is_symlink():
        assert members["etc/alternatives/c++"].issym()
    modes = {name: members[name].mode for name in ("work", "judge", "tmp", "kernel-runner")}
    assert modes == {"work": 0o700, "judge": 0o700, "tmp": 0o1777, "kernel-runner": 0o755}
    for bind in root.binds():
        assert bind.target.lstrip("/") in members
        assert members[str(Path(bind.target).parent).lstrip("/") or "usr"].mode == 0o755
    # Sorted, dated 1970.
    assert list(members) == sorted(members)
    assert all(member.mtime == 0 and member.uid == 0 and member.gid == 0 for member in members.values())
    assert not any(name.startswith(("/", "..")) for name in members)
    hostroot._archive.cache_clear()
    assert HostRoot(Path(sys.executable)).tar() == first


@pytest.mark.parametrize("changed", ["libraries", "alternative", "vendor"])
def test_the_host_root_follows_the_hosts_software(
    changed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upgrade under a running daemon: else a compiler that has moved is not found until it ends."""
    cache, links, vendor = (tmp_path / name for name in ("ld.so.cache", "links", "rocm"))
    for name in ("links", "rocm-6", "rocm-7"):
        (tmp_path / name).mkdir()
    cache.write_text("6")
    vendor.symlink_to("rocm-6")
    for name, value in (("_COPIED", cache), ("_COPIED_FOLDERS", links), ("_VENDORS", vendor)):
        monkeypatch.setattr(hostroot, name, (str(value) if value is vendor else str(value).lstrip("/"),))
    monkeypatch.setattr(hostroot, "_WRITABLE", ())
    before = HostRoot(Path(sys.executable)).tar()
    if changed == "libraries":
        cache.write_text("7")
        os.utime(cache, ns=(1, 1))
    elif changed == "alternative":
        (links / "cuda").symlink_to("/usr/local/cuda-13")
        os.utime(links, ns=(1, 1))
    else:
        vendor.unlink()
        vendor.symlink_to("rocm-7")
    assert HostRoot(Path(sys.executable)).tar() != before


def test_the_environment_and_its_base_are_bound_and_nothing_above_them(tmp_path: Path) -> None:
    """A virtual environment alone does not start; a home directory must not be bound.

    A path that does not run is told in a sentence that names it.
    """
    root = HostRoot(Path(sys.executable))
    sources = {bind.source for bind in root.binds()}
    assert "/usr" in sources
    for prefix in (sys.prefix, sys.base_prefix):
        assert any(f"{os.path.realpath(prefix)}/".startswith(f"{source}/") for source in sources)
    assert not sources & {"/", "/root", "/home", "/etc", str(Path.home())}
    with pytest.raises(RootFilesystemError, match="does not run as a Python interpreter"):
        HostRoot(tmp_path / "python").binds()


def test_an_environment_below_a_writable_directory_is_bound_elsewhere(tmp_path: Path) -> None:
    """A bind below /work or /tmp could be moved away by the worker, so it stands at a path of its own.

    A link to an environment is the environment: of two paths below a writable directory at most one could be moved.
    """
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    root = HostRoot(tmp_path / "env" / "bin" / "python")
    assert root.python == "/opt/kernel-runner/environment/bin/python"
    target = {bind.source: bind.target for bind in root.binds()}[str(tmp_path / "env")]
    assert target == "/opt/kernel-runner/environment"
    assert "opt/kernel-runner/environment" in _members(root)
    (tmp_path / "link").symlink_to("env")
    (tmp_path / "again").symlink_to(tmp_path / "link")
    through = HostRoot(tmp_path / "again" / "bin" / "python")
    assert (through.python, through.binds()) == (root.python, root.binds())


@pytest.mark.parametrize(
    ("name", "moved"),
    [("a b", True), ("it's", True), ('a"b', True), ("a\\b", True), ("a\tb", True), ("größe", False), ("a@3.1", False)],
)
def test_an_environment_whose_name_compilers_misread_is_bound_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, *, moved: bool
) -> None:
    """Else what torch compiles there would fail, and be said to be the submission's fault."""
    monkeypatch.setattr(hostroot, "_WRITABLE", ())
    venv.create(tmp_path / name, with_pip=False, symlinks=True)
    python = tmp_path / name / "bin" / "python"
    assert HostRoot(python).python == ("/opt/kernel-runner/environment/bin/python" if moved else str(python))


@given(st.lists(st.binary(min_size=1).filter(lambda name: b"\0" not in name), min_size=3, max_size=3))
def test_mounts_have_any_name(names: list[bytes]) -> None:
    """A mount is read as it was made, whatever its root, its point and its source are called (moby #38458)."""
    root, point, source = (
        b"".join(b"\\%03o" % byte if byte in b" \t\n\\" else bytes([byte]) for byte in name) for name in names
    )
    line = b"36 35 98:0 %s %s rw,relatime shared:1 - ext4 %s rw,errors=continue\n" % (root, point, source)
    expected = Mount(
        root=os.fsdecode(names[0]),
        point=os.fsdecode(names[1]),
        options="rw,relatime",
        type="ext4",
        super_options="rw,errors=continue",
    )
    assert list(mountinfo.parse(line * 2)) == [expected, expected]


def test_version_1_directories_are_found_by_controller() -> None:
    """Each controller in its hierarchy; the version 2 tree of a hybrid host is ignored; named ones too."""
    membership = (
        f"9:name=systemd:/docker/{_ID}\n8:pids:/docker/{_ID}\n4:memory:/docker/{_ID}\n2:cpu,cpuacct:/docker/{_ID}\n"
        f"0::/docker/{_ID}\n"
    )
    mounts = (
        b"31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
        b"32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
        b"35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        b"39 31 0:36 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
        b"41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    )
    directories = locate(membership, mounts, _ID)
    assert directories["memory"] == Path(f"/sys/fs/cgroup/memory/docker/{_ID}")
    assert directories["cpuacct"] == Path(f"/sys/fs/cgroup/cpu,cpuacct/docker/{_ID}")
    assert "" not in directories


def test_version_2_directory_is_found_and_a_strangers_pid_is_not() -> None:
    """One hierarchy; where the path does not name the container, the pid belongs to another process."""
    mounts = b"30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"
    line = f"0::/system.slice/docker-{_ID}.scope\n"
    assert locate(line, mounts, _ID) == {"": Path(f"/sys/fs/cgroup/system.slice/docker-{_ID}.scope")}
    assert locate("0::/user.slice/session-1.scope\n", mounts, _ID) == {}
    below = b"30 23 0:26 /outer /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    assert locate(f"0::/outer/docker/{_ID}\n", below, _ID) == {"": Path(f"/sys/fs/cgroup/docker/{_ID}")}


@pytest.mark.parametrize(("peak", "met", "short"), [(8 << 20, 0, True), (64 << 20, 4, False), (None, None, False)])
def test_counters_of_both_versions_are_read_and_kept_after_the_directory_is_gone(
    tmp_path: Path, peak: int | None, met: int | None, *, short: bool
) -> None:
    """Same meaning from different files; what vanished keeps its last value.

    Who is killed below its own limit is the victim of the host's; an old kernel does not say so.
    """
    one, two = tmp_path / "1", tmp_path / "2"
    for folder in (one, two):
        folder.mkdir()
    (one / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
    (one / "memory.limit_in_bytes").write_text(f"{64 << 20}\n")
    (one / "pids.events").write_text("max 7\n")
    (one / "cpuacct.usage").write_text("5000\n")
    (two / "memory.events").write_text(f"low 0\n{'' if met is None else f'oom {met}'}\noom_kill 3\noom_group_kill 0\n")
    (two / "pids.events").write_text("max 7\n")
    (two / "cpu.stat").write_text("usage_usec 5\nuser_usec 3\n")
    if peak is not None:
        (one / "memory.max_usage_in_bytes").write_text(f"{peak}\n")
        (two / "memory.peak").write_text(f"{peak}\n")
    expected = Counters(oom_kills=3, host_short=short, pids_denied=7, peak_memory_bytes=peak, cpu_ns=5000)
    for directories in ({"memory": one, "pids": one, "cpuacct": one}, {"": two}):
        reader = CgroupReader(directories)
        assert reader.read() == expected
        for path in next(iter(directories.values())).iterdir():
            path.unlink()
        assert reader.read() == expected
        reader.close()
        reader.close()


@pytest.mark.parametrize(("version", "controller"), [(1, "pids"), (2, "")])
@pytest.mark.parametrize(
    ("denied", "peak", "limit", "short"),
    [
        (0, "9", "128", False),
        (3, "9", "128", True),
        (3, "128", "128", False),
        (3, "127", "128", False),
        (3, "9", "max", False),
        (3, None, "128", False),
    ],
)
def test_forks_that_are_refused_below_the_containers_limit_are_the_hosts_fault(
    tmp_path: Path, *, version: int, controller: str, denied: int, peak: str | None, limit: str, short: bool
) -> None:
    """A limit of the slice counts as the container's own (systemd #6406); an old kernel does not tell them apart."""
    files = {"pids.events": f"max {denied}", "pids.peak": peak, "pids.max": limit}
    files |= {"memory.events": "oom 0\noom_kill 0", "memory.oom_control": "oom_kill 0"}
    for name, text in files.items():
        if text is not None:
            (tmp_path / name).write_text(f"{text}\n")
    reader = CgroupReader(dict.fromkeys([controller] if version == 2 else [controller, "memory"], tmp_path))
    counters = reader.read()
    reader.close()
    assert (counters.pids_denied, counters.host_short) == (denied, short)


def test_unreadable_counters_are_none() -> None:
    """A process that is no container of ours has no counters, and that is no error."""
    assert reader_for(os.getpid(), _ID).read() == Counters()
    assert reader_for(2**22 + 1, _ID).read() == Counters()


@given(st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=50)), max_size=5), st.data())
def test_the_engines_stream_is_split_however_it_arrives(pieces: list[tuple[int, bytes]], data: st.DataObject) -> None:
    """Each stream's bytes come out in order, whatever the cuts."""
    raw = b"".join(struct.pack("!BxxxI", stream, len(body)) + body for stream, body in pieces)
    demultiplexer, heard = Demultiplexer(), {1: b"", 2: b""}
    while raw:
        cut = data.draw(st.integers(1, len(raw)))
        for stream, body in demultiplexer.feed(raw[:cut]):
            heard[stream] += body
        raw = raw[cut:]
    for stream in (1, 2):
        assert heard[stream] == b"".join(body for number, body in pieces if number == stream)


def test_a_stream_that_is_not_the_engines_is_told() -> None:
    """A header with another stream number."""
    with pytest.raises(ProtocolError, match="stream number 72"):
        list(Demultiplexer().feed(b"HTTP/1.1 404"))


@pytest.mark.parametrize(
    ("controller", "name", "frozen", "thawed"),
    [
        ("", "cgroup.events", "populated 1\nfrozen 1\n", "populated 1\nfrozen 0\n"),
        ("freezer", "freezer.state", "FROZEN\n", "THAWED\n"),
    ],
)
def test_a_frozen_container_is_told_by_both_versions(
    tmp_path: Path, controller: str, name: str, frozen: str, thawed: str
) -> None:
    """As by `docker pause`; where nothing says so it is not."""
    reader = CgroupReader({controller: tmp_path})
    assert not reader.is_frozen()
    for text in (frozen, thawed):
        (tmp_path / name).write_text(text)
        assert reader.is_frozen() is (text == frozen)
    reader.close()
    assert not reader.is_frozen()
