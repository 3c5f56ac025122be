"""The engine itself: what it refuses, what it says when nothing answers, and that nothing is left behind."""

from __future__ import annotations

import shutil
import threading
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.errors import EngineRefused, EngineUnavailable, ProtocolError, RootFilesystemError
from sandbox.host.cgroup import Counters
from sandbox.host.engine import DockerEngine
from sandbox.host.hostroot import HostRoot
from sandbox.protocol import Step, StepsRequest
from sandbox.spec import Bind, Ending
from tests.integration.sandbox.conftest import Workshop
from tests.integration.sandbox.engine_proxy import EngineProxy
from tests.support.waiting import PATIENCE_S

_REQUEST = StepsRequest(files={}, steps=(Step(name="test", argv=("/bin/true",)),))


@pytest.fixture
def other_owner() -> DockerEngine:
    """An engine object with an owner label of its own."""
    return DockerEngine(owner=f"tests-{uuid.uuid4().hex[:12]}")


def test_no_engine_is_said_clearly(tmp_path: Path) -> None:
    """An address where nothing listens: the address, the reason and what to do."""
    engine = DockerEngine(f"unix://{tmp_path}/nothing.sock", owner="nobody")
    with pytest.raises(EngineUnavailable, match=r"nothing\.sock: FileNotFoundError.*start it") as caught:
        engine.check()
    assert "DOCKER_HOST" in str(caught.value)
    with pytest.raises(EngineRefused, match="expected unix:///path"):
        DockerEngine("tcp://127.0.0.1:2375", owner="nobody")


def test_a_missing_image_is_refused_with_a_hint(workshop: Workshop) -> None:
    """Neither image_id nor start pretends that an absent image is something else."""
    with pytest.raises(EngineRefused, match="does not have it; pull or build"):
        workshop.engine.image_id("no.such/image:1")
    with pytest.raises(EngineRefused, match="does not have it; pull or build"):
        workshop.engine.start(replace(workshop.spec(), image="sha256:" + "0" * 64))


def test_an_image_with_volumes_is_refused(workshop: Workshop) -> None:
    """VOLUME would give every sandbox writable disk."""
    # An empty archive is two blocks of zeros.
    tag = uuid.uuid4().hex
    with workshop.engine._client(60) as api:
        api.import_image_from_data(bytes(1024), repository="kernel-runner/test", tag=tag, changes=["VOLUME /data"])
    try:
        with pytest.raises(EngineRefused, match="declares the volumes /data"):
            workshop.engine.image_id(f"kernel-runner/test:{tag}")
    finally:
        with workshop.engine._client(60) as api:
            api.remove_image(f"kernel-runner/test:{tag}")


def test_the_host_root_is_imported_once(workshop: Workshop, eval_python: Path) -> None:
    """The same host has the same image: nothing is imported where it is there.

    Which id it has is not said: two processes that find none at the same time import one each, under one name.
    """
    proxy = EngineProxy(workshop.engine.base_url)
    engine = DockerEngine(proxy.url, owner=workshop.engine.owner)
    try:
        assert engine.ensure_host_root(HostRoot(eval_python)).startswith("sha256:")
    finally:
        engine.close()
        proxy.close()
    asked = [(call.method, call.path.partition("?")[0]) for call in proxy.calls]
    assert ("POST", "/images/create") not in asked
    assert any(path.startswith("/images/") for _, path in asked)


def test_an_image_environment_reaches_no_process(workshop: Workshop, eval_python: Path) -> None:
    """What an image sets in ENV, and its entry point, are not passed on; its own Python runs init."""
    tag = uuid.uuid4().hex
    root = HostRoot(eval_python)
    with workshop.engine._client(60) as api:
        api.import_image_from_data(
            root.tar(),
            repository="kernel-runner/test",
            tag=tag,
            changes=["ENV SECRET=1 NVIDIA_VISIBLE_DEVICES=all", 'ENTRYPOINT ["/bin/false"]', "USER 65534"],
        )
    try:
        image = workshop.engine.image_id(f"kernel-runner/test:{tag}")
        env = Step(name="env", argv=("/usr/bin/env",), result_pipe=False)
        report = workshop.run(replace(workshop.spec(), image=image), StepsRequest(files={}, steps=(env,)))
        assert report.ok, report.message
        assert "SECRET" not in report.steps[0].stdout
        assert "NVIDIA" not in report.steps[0].stdout
    finally:
        with workshop.engine._client(60) as api:
            api.remove_image(f"kernel-runner/test:{tag}")


def test_an_interpreter_that_is_none_is_told_with_its_words(workshop: Workshop) -> None:
    """The container ends before `ready`: exit code and stderr are in the error, and nothing is left."""
    before = _containers(workshop.engine)
    with pytest.raises(ProtocolError, match="before 'ready' with exit code"):
        workshop.engine.start(replace(workshop.spec(), python="/bin/ls"))
    with pytest.raises(EngineRefused, match="no such file"):
        workshop.engine.start(replace(workshop.spec(), python="/no/python"))
    assert _containers(workshop.engine) == before


def test_a_box_takes_one_request_and_is_gone_after_close(workshop: Workshop) -> None:
    """A second request is refused; close is idempotent; the engine no longer knows the container."""
    container = workshop.engine.start(workshop.spec())
    try:
        assert container.run(_REQUEST, on_progress=None, cancel=threading.Event()).ok
        with pytest.raises(EngineRefused, match="it has had 1"):
            container.run(_REQUEST, on_progress=None, cancel=threading.Event())
    finally:
        container.close()
    container.close()
    assert container.id not in _containers(workshop.engine)


def test_reap_removes_what_a_dead_daemon_left_and_nothing_else(workshop: Workshop, other_owner: DockerEngine) -> None:
    """Running containers with our label go, those of another owner stay."""
    ours = other_owner.start(workshop.spec())
    foreign = workshop.engine.start(workshop.spec())
    try:
        assert other_owner.reap() == 1
        assert other_owner.reap() == 0
        assert foreign.run(_REQUEST, on_progress=None, cancel=threading.Event()).ok
    finally:
        foreign.close()
        ours.close()
        other_owner.close()


def test_a_container_whose_daemon_goes_away_ends_by_itself(workshop: Workshop) -> None:
    """When the connection drops, as it does when the daemon is killed, init ends the container."""
    container = workshop.engine.start(workshop.spec())
    try:
        container._attachment.close()
        state = workshop.engine._ended(container.id, PATIENCE_S)
        assert state is not None
        assert state.exit_code == 3
    finally:
        container.close()


def test_a_container_killed_from_outside_is_a_death(workshop: Workshop) -> None:
    """No `end` frame: the outcome says died, with the exit code of SIGKILL."""
    with workshop.engine.start(workshop.spec()) as container:
        sleep = StepsRequest(files={}, steps=(Step(name="test", argv=("/bin/sleep", "100")),))
        report = container.run(
            sleep, on_progress=lambda *_: workshop.engine._kill(container.id), cancel=threading.Event()
        )
    assert report.outcome.ending is Ending.DIED
    assert report.outcome.exit_code == 137
    assert report.ok is None


def test_the_end_of_a_container_that_has_said_all_is_waited_for_where_the_kernel_tells_nothing(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under gVisor: only the engine can say then that memory ran out."""
    for readable in (True, False):
        with workshop.engine.start(workshop.spec()) as container:
            if not readable:
                monkeypatch.setattr(container._counters, "read", Counters)
            report = container.run(_REQUEST, on_progress=None, cancel=threading.Event())
        assert report.outcome.ending is Ending.COMPLETED
        assert report.outcome.exit_code == (None if readable else 0)


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        ("os.write(1, b'garbage, not frames')", "frame announces"),
        ("daemon.send({'type': 'surprise'})", "does not know"),
        ("daemon.send({'type': 'step', 'name': 'x'})", "lacks"),
        (
            "[daemon.send({'type': 'progress', 'phase': 'A' * 400000, 'done': 1, 'total': 1}) for _ in range(9)]",
            "bytes of report",
        ),
    ],
)
def test_a_bad_report_ends_the_container(workshop: Workshop, tmp_path: Path, says: str, reason: str) -> None:
    """A compromised init may send anything; the engine hears garbage, unknown frames and floods as such."""
    staged = next(bind for bind in workshop.template.binds if bind.target == "/kernel-runner")
    code = tmp_path / "code"
    # Without bytecode, which is not compared with the source.
    shutil.copytree(staged.source, code, ignore=shutil.ignore_patterns("__pycache__"))
    init = code / "sandbox" / "inside" / "init.py"
    init.chmod(0o644)
    text = init.read_text(encoding="utf-8")
    before = "run_steps(incoming.request,"
    assert before in text
    init.write_text(text.replace(before, f"{says}; {before}"), encoding="utf-8")
    tmp_path.chmod(0o755)
    binds = tuple(bind for bind in workshop.template.binds if bind != staged)
    spec = replace(workshop.spec(report_bytes=1 << 20), binds=(*binds, Bind(source=str(code), target="/kernel-runner")))
    report = workshop.run(spec, _REQUEST)
    assert report.outcome.ending is Ending.BAD_REPORT
    assert reason in (report.outcome.detail or "")


def test_engines_are_shared_between_threads(workshop: Workshop) -> None:
    """Four containers at once over one engine object."""
    results: list[bool | None] = []

    def work() -> None:
        results.append(workshop.run(workshop.spec(), _REQUEST).ok)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert results == [True] * 4


def test_an_environment_of_another_python_is_refused(tmp_path: Path) -> None:
    """An interpreter that leads out of what is bound is named before any container is made."""
    fake = tmp_path / "env" / "bin" / "python"
    fake.parent.mkdir(parents=True)
    shutil.copy(shutil.which("true") or "/bin/true", fake)
    with pytest.raises(RootFilesystemError, match="does not run as a Python interpreter"):
        HostRoot(fake).tar()


def _containers(engine: DockerEngine) -> set[str]:
    with engine._client(60) as api:
        label = f"kernel-runner.owner={engine.owner}"
        return {str(item["Id"]) for item in api.containers(all=True, quiet=True, filters={"label": label})}
