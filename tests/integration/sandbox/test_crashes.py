"""Killed at any point, daemon or engine: the next start leaves no container, volume, mount or unfinished file."""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import NotReaped
from sandbox.host import engine as engine_module
from sandbox.host.engine import HOST_ROOT_REPOSITORY, DockerEngine
from sandbox.host.hostroot import HostRoot
from sandbox.host.stage import stage
from sandbox.policy.hostconfig import LABEL_OWNER
from sandbox.spec import Ending
from tests.integration.sandbox.conftest import QUICK, SLEEP, Workshop, containers, converse, new_owner
from tests.integration.sandbox.engine_proxy import Call
from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[3]
SEED = int(os.environ.get("KERNEL_RUNNER_TEST_SEED") or random.randrange(10**6))  # noqa: S311 no secret

#: Stages code and starts containers until it is killed: half of them used, half left waiting. Says so at every step.
_WORKER = """
import pickle, sys, threading
from pathlib import Path
from sandbox.host.engine import DockerEngine
from sandbox.protocol import Step, StepsRequest
from sandbox.host.stage import stage
url, owner, directory = sys.argv[1:4]
spec = pickle.load(sys.stdin.buffer)
engine = DockerEngine(url, owner=owner)
sleep = StepsRequest(files={}, steps=(Step(name='test', argv=('/bin/sleep', '0.05')),))
kept = []
for number in range(1000):
    print('staging', flush=True)
    stage(Path(directory), {f'number{number}': Path(__file__ if '__file__' in globals() else sys.executable)})
    print('starting', flush=True)
    container = engine.start(spec)
    print('started', flush=True)
    if number % 2:
        kept.append(container)
    else:
        container.run(sleep, on_progress=None, cancel=threading.Event())
        print('closing', flush=True)
        container.close()
"""


def _volumes_of(found: Iterable[dict[str, Any]]) -> set[str]:
    """Those that these containers use; what else the engine holds may be another test's."""
    mounts = [mount for container in found for mount in container["Mounts"]]
    return {mount["Name"] for mount in mounts if mount["Type"] == "volume"}


def _volumes(engine: DockerEngine) -> set[str]:
    with engine._client(60) as api:
        return {volume["Name"] for volume in (api.volumes()["Volumes"] or [])}


def _start(workshop: Workshop, url: str, owner: str, directory: Path) -> subprocess.Popen[bytes]:
    child = subprocess.Popen(
        [sys.executable, "-c", _WORKER, url, owner, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
    )
    assert child.stdin is not None
    child.stdin.write(pickle.dumps(workshop.spec()))
    child.stdin.close()
    return child


def _kill(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()
    assert child.stdout is not None
    child.stdout.close()


@pytest.mark.parametrize("owner_of_next", ["the same", "another"])
def test_a_killed_process_leaves_nothing_after_the_next_start(
    workshop: Workshop, tmp_path: Path, owner_of_next: str
) -> None:
    """Killed at steps and moments drawn from a seed; found by its label, or, as `eval` is, by its being dead."""
    random_numbers = random.Random(SEED)  # noqa: S311 no secret
    owner = new_owner()
    left: set[str] = set()
    volumes: set[str] = set()
    for step in (b"starting", b"started", b"closing", b"staging"):
        child = _start(workshop, workshop.engine.base_url, owner, tmp_path)
        assert child.stdout is not None
        seen = 0
        wanted = random_numbers.randrange(1, 3)
        for line in child.stdout:
            seen += line.strip() == step
            if seen == wanted:
                break
        time.sleep(random_numbers.random() * 0.1)
        _kill(child)
        found = containers(workshop.engine, owner)
        left |= found.keys()
        volumes |= _volumes_of(found.values())
    assert left, f"nothing was left to find (seed {SEED})"

    begun_s = time.monotonic()
    engine = DockerEngine(workshop.engine.base_url, owner=owner if owner_of_next == "the same" else "someone else")
    engine.reap()
    engine.close()
    # A create that was under way when its sender died may be granted a moment later.
    while found := containers(workshop.engine, owner):
        assert time.monotonic() < begun_s + PATIENCE_S, f"{found} (seed {SEED})"
        workshop.engine.reap_orphans()
    assert not volumes & _volumes(workshop.engine)
    mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8")
    assert not any(container in mounts for container in left)
    stage(tmp_path, {})
    assert list(tmp_path.glob(".stage-*")) == []


def test_old_root_file_systems_go_and_those_in_use_stay(workshop: Workshop, eval_python: Path) -> None:
    """Of this owner's earlier imports all but the named ones, also those without a name; nothing of anybody else's.

    What an operator has made from one, by `docker commit` of a container, has its labels.
    """
    owner = new_owner()
    own = f"test/{owner.lower()}"
    with workshop.engine._client(60) as api:
        for tag, label in (("old", owner), ("old", owner), ("kept", owner), ("foreign", "somebody")):
            api.import_image_from_data(
                HostRoot(eval_python).tar(),
                repository=HOST_ROOT_REPOSITORY,
                tag=f"{owner}-{tag}",
                changes=[f"LABEL {LABEL_OWNER}={label}", f"LABEL only={owner}-{tag}"],
            )
        api.import_image_from_data(
            HostRoot(eval_python).tar(), repository=own, tag="own", changes=[f"LABEL {LABEL_OWNER}={owner}"]
        )
    engine = DockerEngine(workshop.engine.base_url, owner=owner)
    try:
        kept = engine.image_id(f"{HOST_ROOT_REPOSITORY}:{owner}-kept")
        assert engine.prune_host_roots([kept]) == 2
        with workshop.engine._client(60) as api:
            tags = {tag for image in api.images(name=HOST_ROOT_REPOSITORY) for tag in image["RepoTags"] or ()}
        assert {tag.rpartition("-")[2] for tag in tags if owner in tag} == {"kept", "foreign"}
    finally:
        with workshop.engine._client(60) as api:
            for name in (f"{own}:own", *(f"{HOST_ROOT_REPOSITORY}:{owner}-{tag}" for tag in ("kept", "foreign"))):
                api.remove_image(name)
        engine.close()


def test_an_engine_that_loses_its_connections_is_our_fault_and_recovers(workshop: Workshop) -> None:
    """Every connection drops in the middle of a run: no verdict, and the next run over the same object works."""
    with workshop.proxied(owner=workshop.engine.owner) as (proxy, engine):
        with engine.start(workshop.spec()) as container:
            report = converse(container, SLEEP, on_progress=lambda *_: proxy.cut())
        assert report.outcome.ending is Ending.DIED
        assert report.ok is None
        with engine.start(workshop.spec()) as container:
            assert converse(container, QUICK).ok


def test_one_removal_that_hangs_is_told_from_an_engine_that_is_away(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are gone, what is left is named with its labels, and goes when the engine lets it."""
    owner, obeys = new_owner(), threading.Event()

    def hang(call: Call) -> None:
        if call.method == "DELETE" and stuck.id in call.path:
            obeys.wait(PATIENCE_S)

    with (
        DockerEngine(workshop.engine.base_url, owner=owner) as direct,
        direct.start(replace(workshop.spec(), labels={"kernel-runner.slot": "cpu7"})) as stuck,
        direct.start(workshop.spec()),
        workshop.proxied(owner=owner, before=hang) as (_, engine),
        ExitStack() as undo,
    ):
        undo.callback(obeys.set)
        whole = engine._remove

        def remove(container_id: str) -> None:
            # Short for the one that hangs; the others' removal may take a busy machine longer.
            hangs = container_id == stuck.id and not obeys.is_set()
            monkeypatch.setattr(engine_module, "REMOVE_TIMEOUT_S", 1.0 if hangs else PATIENCE_S)
            whole(container_id)

        monkeypatch.setattr(engine, "_remove", remove)
        with pytest.raises(NotReaped) as caught:
            engine.reap()
        ((left, labels),) = caught.value.left
        assert (left.id, labels["kernel-runner.slot"]) == (stuck.id, "cpu7")
        assert containers(workshop.engine, owner).keys() == {stuck.id}
        obeys.set()
        left.close()
        assert containers(workshop.engine, owner) == {}
