"""The engine itself: what it refuses, what it says when nothing answers, and that nothing is left behind."""

from __future__ import annotations

import errno
import json
import re
import shutil
import threading
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from sandbox.errors import EngineRefused, EngineUnavailable, Leftover, ProtocolError, SandboxError
from sandbox.host import engine as engine_module
from sandbox.host.cgroup import Counters
from sandbox.host.engine import DockerEngine
from sandbox.host.hostroot import HostRoot
from sandbox.protocol import Step, StepsRequest
from sandbox.spec import Bind, Ending
from tests.integration.sandbox.conftest import QUICK, SLEEP, Workshop, containers, converse, new_owner
from tests.integration.sandbox.engine_proxy import Answer, Call
from tests.support.waiting import PATIENCE_S


def test_no_engine_is_said_clearly(tmp_path: Path) -> None:
    """An address where nothing listens: the address, the reason and what to do."""
    engine = DockerEngine(f"unix://{tmp_path}/nothing.sock", owner="nobody")
    with pytest.raises(EngineUnavailable, match=r"nothing\.sock: FileNotFoundError.*start it") as caught:
        engine.check()
    assert "DOCKER_HOST" in str(caught.value)


def test_what_cannot_be_started_is_refused_and_leaves_nothing(workshop: Workshop) -> None:
    """An absent image, with a hint; an interpreter that is none, with its words: exit code and stderr."""
    before = containers(workshop.engine, workshop.engine.owner).keys()
    with pytest.raises(EngineRefused, match="does not have it; pull or build"):
        workshop.engine.image_id("no.such/image:1")
    spec = workshop.spec()
    for wrong, error, says in (
        (replace(spec, image="sha256:" + "0" * 64), EngineRefused, "does not have it; pull or build"),
        (replace(spec, python="/bin/ls"), ProtocolError, "before 'ready' with exit code"),
        (replace(spec, python="/no/python"), EngineRefused, "no such file"),
    ):
        with pytest.raises(error, match=says):
            workshop.engine.start(wrong)
    assert containers(workshop.engine, workshop.engine.owner).keys() == before


def test_an_image_with_volumes_is_refused(workshop: Workshop) -> None:
    """VOLUME would give every sandbox writable disk."""
    # An empty archive is two blocks of zeros.
    with (
        workshop.imported(bytes(1024), "VOLUME /data") as reference,
        pytest.raises(EngineRefused, match="declares the volumes /data"),
    ):
        workshop.engine.image_id(reference)


def test_the_host_root_is_imported_once(workshop: Workshop, eval_python: Path) -> None:
    """The same host has the same image: nothing is imported where it is there.

    Which id it has is not said: two processes that find none at the same time import one each, under one name.
    """
    with workshop.proxied() as (proxy, engine):
        assert engine.ensure_host_root(HostRoot(eval_python)).startswith("sha256:")
    asked = [(call.method, call.path.partition("?")[0]) for call in proxy.calls]
    assert ("POST", "/images/create") not in asked
    assert any(path.startswith("/images/") for _, path in asked)


@pytest.mark.parametrize(
    "asked",
    [
        "GET /info",
        "POST /containers/create",
        "POST .*/start",
        "GET .*/json",
        "POST .*/wait",
        "POST .*/kill",
        "DELETE /containers",
    ],
)
@pytest.mark.parametrize("answer", [Answer(status=200, body=b"null"), Answer(status=500, body=b'{"error": 1}')])
def test_an_answer_in_no_known_form_is_the_engines_fault(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, asked: str, answer: Answer
) -> None:
    """Whatever was asked: one of the sandbox's errors, and a container that is there is known to be."""
    monkeypatch.setattr(engine_module, "REMOVE_TIMEOUT_S", 0.5)
    monkeypatch.setattr(engine_module, "READY_TIMEOUT_S", 2.0)
    honest, cancel = False, threading.Event()
    container: Leftover | None = None
    cancel.set()

    def before(call: Call) -> Answer | None:
        return answer if not honest and re.match(asked, f"{call.method} {call.path}") else None

    with workshop.proxied(before=before) as (_, engine):
        engine._accepted_images.add(workshop.spec().image)
        try:
            engine.check()
            container = started = engine.start(workshop.spec())
            assert converse(started, SLEEP, cancel=cancel).outcome.ending is Ending.CANCELLED
        except SandboxError as error:
            container = error.leftover
        if container is not None:
            with suppress(SandboxError):
                container.close()
        honest = True
        if container is not None:
            container.close()
        assert containers(workshop.engine, engine.owner) == {}


def test_a_container_whose_creation_was_answered_too_late_is_removed(workshop: Workshop) -> None:
    """It has no owner, and its process lives. What others of this process have created stays."""
    late, answer = threading.Event(), threading.Event()

    def after(call: Call, body: dict[str, Any]) -> dict[str, Any]:
        if late.is_set() and call.path.startswith("/containers/create"):
            late.clear()
            answer.wait(PATIENCE_S)
        return body

    owner = new_owner()
    with (
        workshop.proxied(owner=owner, after=after) as (_, engine),
        engine.start(workshop.spec()) as other,
        ExitStack() as undo,
    ):
        undo.callback(answer.set)
        assert engine.reap_lost() == 0
        engine._timeout_s = 1
        late.set()
        with pytest.raises(
            EngineUnavailable, match=r"TimeoutError: timed out; see what it is busy with.*asked for: create"
        ):
            engine.start(workshop.spec())
        engine._timeout_s = PATIENCE_S
        assert len(containers(workshop.engine, owner)) == 2
        assert engine.reap_lost() == 1
        assert containers(workshop.engine, owner).keys() == {other.id}
        assert converse(other, QUICK).ok


@pytest.mark.parametrize("place", ["sandbox.host.accounts.socket.socket", "sandbox.host.engine.attach"])
def test_a_process_that_may_open_no_more_files_is_told_so(workshop: Workshop, place: str) -> None:
    """It is neither the engine's fault nor a lack of uids, and nothing is left."""
    refused = OSError(errno.EMFILE, "Too many open files")
    with DockerEngine(workshop.engine.base_url, owner=new_owner()) as engine:
        engine.check()
        with patch(place, side_effect=refused), pytest.raises(SandboxError, match="Too many open files"):
            engine.start(workshop.spec())
        assert containers(workshop.engine, engine.owner) == {}


@pytest.mark.parametrize(("first", "then"), [("1.40", "1.41"), ("1.41", "1.40")])
def test_another_release_of_the_engine_takes_the_place_of_one_in_use(workshop: Workshop, first: str, then: str) -> None:
    """Its API has other versions: the next call, whichever it is, is made in one of those."""
    speaks = first

    def before(call: Call) -> Answer | None:
        if call.path == "/version":
            return Answer(status=200, body=json.dumps({"ApiVersion": speaks}).encode())
        return None if call.version == speaks else Answer.error("client version is too old or too new", 400)

    with workshop.proxied(before=before) as (_, engine):
        engine.check()
        speaks = then
        with engine.start(workshop.spec()) as container:
            assert converse(container, QUICK).ok
        assert engine.check().api_version == then


def test_an_image_environment_reaches_no_process(workshop: Workshop, eval_python: Path) -> None:
    """What an image sets in ENV, and its entry point, are not passed on; its own Python runs init."""
    changes = ("ENV SECRET=1 NVIDIA_VISIBLE_DEVICES=all", 'ENTRYPOINT ["/bin/false"]', "USER 65534")
    with workshop.imported(HostRoot(eval_python).tar(), *changes) as reference:
        spec = replace(workshop.spec(), image=workshop.engine.image_id(reference))
        env = Step(name="env", argv=("/usr/bin/env",), result_pipe=False)
        report = workshop.run(spec, StepsRequest(files={}, steps=(env,)))
    assert report.ok, report.message
    assert "SECRET" not in report.steps[0].stdout
    assert "NVIDIA" not in report.steps[0].stdout


def test_a_box_takes_one_request_and_is_gone_after_close(workshop: Workshop) -> None:
    """A second request is refused; close is idempotent; the engine no longer knows the container."""
    container = workshop.engine.start(workshop.spec())
    try:
        assert converse(container, QUICK).ok
        with pytest.raises(EngineRefused, match="it has had 1"):
            converse(container, QUICK)
    finally:
        container.close()
    container.close()
    assert container.id not in containers(workshop.engine, workshop.engine.owner)


def test_reaping_removes_what_is_ours_and_nothing_that_a_living_process_uses(workshop: Workshop) -> None:
    """Running containers with our label go; those of another owner, whose process lives, stay."""
    with (
        DockerEngine(workshop.engine.base_url, owner=new_owner()) as other,
        workshop.engine.start(workshop.spec()) as foreign,
        other.start(workshop.spec()),
    ):
        assert [other.reap_orphans(), other.reap(), other.reap()] == [0, 1, 0]
        assert converse(foreign, QUICK).ok


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
        report = converse(container, SLEEP, on_progress=lambda *_: workshop.engine._kill(container.id))
    assert report.outcome.ending is Ending.DIED
    assert report.outcome.exit_code == 137
    assert report.ok is None


def test_a_bind_may_have_any_name(workshop: Workshop, tmp_path: Path) -> None:
    """As an evaluation environment's path: the kernel writes some characters otherwise (moby #38458)."""
    names = ("a b", "tab\there", "back\\slash", "line\nend", "feed\fed", "no\u00a0break", "日本\u3000x", "#dash - dash")
    binds = tuple(Bind(source=str(tmp_path), target=f"/srv/{name}") for name in names)
    report = workshop.run(replace(workshop.spec(), binds=(*workshop.template.binds, *binds)), QUICK)
    assert report.ok, report.message


@pytest.mark.parametrize("wall_s", [0.5, PATIENCE_S])
def test_a_container_that_somebody_pauses_has_not_used_up_its_time(workshop: Workshop, wall_s: float) -> None:
    """Nor would a program in it have, once it goes on. It can be killed and removed like that, too."""
    with workshop.engine.start(workshop.spec(wall_s=wall_s)) as container:
        workshop.engine._on(container.id, "pause", lambda api: api.pause(container.id))
        report = converse(container, QUICK)
    assert report.outcome.ending is Ending.DIED
    assert "paused" in (report.outcome.detail or "")
    assert container.id not in containers(workshop.engine, workshop.engine.owner)


def test_the_end_of_a_container_that_has_said_all_is_waited_for_where_the_kernel_tells_nothing(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under gVisor: only the engine can say then that memory ran out."""
    for readable in (True, False):
        with workshop.engine.start(workshop.spec()) as container:
            if not readable:
                monkeypatch.setattr(container._counters, "read", Counters)
            report = converse(container, QUICK)
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
    report = workshop.run(spec, QUICK)
    assert report.outcome.ending is Ending.BAD_REPORT
    assert reason in (report.outcome.detail or "")
