"""Candidates of a group that compile are built before their slot is used, each for itself alone."""

from __future__ import annotations

import io
import os
import tarfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from runner.base.config import Config
from runner.base.errors import CancelledByRequest
from runner.base.gpu_types import Registry
from runner.base.model import JobResult, Progress
from runner.evaluation.attempt import HostResources
from runner.evaluation.build_cache import Build
from runner.evaluation.context import Place
from runner.evaluation.evaluate import Evaluator
from runner.extras.trainers.kinds import module as kind
from sandbox import protocol
from sandbox.host.build_archive import BuildArchive
from sandbox.host.engine import ContainerReport, DockerEngine
from tests.integration.extras.trainers.kinds.test_modules import GOOD, REFERENCE
from tests.support.waiting import PATIENCE_S
from tests.unit import samples

#: One core, so that others are left for builds.
CORE = min(os.sched_getaffinity(0))
SLOT = replace(samples.SLOT, cpus=(CORE,))
#: What torch's extension builder makes of it in a second, because no header of torch's is read.
_INLINE = """
import ctypes
from torch.utils.cpp_extension import load_inline

print("builds", flush=True)
library = ctypes.CDLL(load_inline(
    name="factor", cpp_sources=['extern "C" int factor() { return %s; }'], is_python_module=False,
    no_implicit_headers=True, verbose=%s, use_pch=True,
))
"""
_COMPILES = _INLINE % (1, True) + GOOD.replace("torch.relu(", "library.factor() * torch.relu(")
_REFUSED = _INLINE % ("undeclared", False) + GOOD
#: Leaves a note in the cache, and says in its output which notes it finds: whether they were made ahead, and whose.
_NOTES = f"""
import os  # load_inline
from pathlib import Path
AHEAD = os.sched_getaffinity(0) != {{{CORE}}}
cache = Path(os.environ["TORCH_EXTENSIONS_DIR"])
if AHEAD:
    (cache / "%s").mkdir(parents=True)
    (cache / "%s" / "note").write_text("%s")
else:
    found = sorted(path.read_text() for path in cache.rglob("note"))
    if found != %s:
        raise RuntimeError(f"found {{found}}")
"""

pytestmark = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="a build worker needs a core beside the slot's, this machine has one"
)


@pytest.fixture
def made(docker_engine: DockerEngine, settings: Config) -> Iterator[Evaluator]:
    """An evaluator with a build worker; nothing is warm."""
    chosen = settings.model_copy(update={"build_workers": "auto", "warm_containers": 0, "build_timeout_s": PATIENCE_S})
    evaluator = Evaluator(docker_engine, Registry.load(), chosen)
    evaluator._build_cache.arrange([SLOT])
    yield evaluator
    evaluator.close()


def _run(evaluator: Evaluator, codes: list[str], phases: list[str] | None = None, **settings: Any) -> JobResult:  # noqa: ANN401 any setting
    group = samples.group(
        *({"id": 10 + number, "code": code} for number, code in enumerate(codes)),
        reference=REFERENCE,
        settings={"timed_calls": 0, "inputs": 2, "timeout_s": PATIENCE_S, **settings},
    )

    def note(progress: Progress) -> None:
        if phases is not None:
            phases.append(progress.phase)

    return evaluator.run(group, SLOT, cancel=threading.Event(), on_progress=note)


def _notes(name: str, *, expects: list[str] | None = None) -> str:
    """A candidate that leaves a note of this name when it is built, and expects these notes when it runs."""
    return _NOTES % (name, name, name, [name] if expects is None else expects) + GOOD


def _watch_slot(made: Evaluator, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Is set when the slot's devices and cores are used."""
    used, using = threading.Event(), HostResources.using

    def watch(resources: HostResources, place: Place) -> AbstractContextManager[None]:
        used.set()
        return using(resources, place)

    monkeypatch.setattr(HostResources, "using", watch)
    return used


def _built(logs: list[Any]) -> dict[int, dict[str, Any]]:
    return {entry["candidate"]: entry for entry in logs if entry["event"] == "build_finished"}


def _verdicts(found: JobResult) -> list[str]:
    return [item["verdict"] for item in found.items]


def test_what_compiles_is_built_beside_the_slot_and_not_again(made: Evaluator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The slot is free until all is built. Ninja finds nothing to do in the run; what is refused gets to no worker."""
    used = _watch_slot(made, monkeypatch)
    during: list[bool] = []
    output: dict[str, str] = {}
    build, rows_of = made._build_cache.build, kind.rows_of

    def watch_build(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 handed through
        built = build(*args, **kwargs)
        during.append(used.is_set())
        return built

    def watch_report(group: Mapping[str, Any], report: ContainerReport, **facts: Any) -> Any:  # noqa: ANN401 handed through
        output.update({step.name: step.stdout for step in report.steps})
        return rows_of(group, report, **facts)

    monkeypatch.setattr(made._build_cache, "build", watch_build)
    monkeypatch.setattr(kind, "rows_of", watch_report)
    phases: list[str] = []
    with capture_logs() as logs:
        found = _run(made, [GOOD, _COMPILES, _REFUSED], phases)
    assert _verdicts(found) == ["accepted", "accepted", "compile_error"], found.items
    builds = _built(logs)
    assert sorted(builds) == [11, 12]
    assert during == [False, False]
    assert all(CORE not in build["cpus"] for build in builds.values())
    assert (builds[11]["exit_codes"], builds[12]["exit_codes"]) == ({"compile": 0}, {"compile": 3})
    assert "ninja: no work to do." in output["candidate.11"]
    assert output["candidate.12"] == ""
    plain, compiled, refused = found.items
    assert "undeclared" in refused["message"]
    assert (refused["stage"], refused["compiled"], refused["kb_correct"]) == ("compile", False, False)
    # Running the file takes milliseconds, a build at least an import of torch.
    assert plain["build_ms"] < min(compiled["build_ms"], refused["build_ms"])
    assert phases.index("build") < phases.index("candidates")
    assert found.report["phases_ns"]["build"] >= max(build["seconds"] for build in builds.values()) * 1e9


def test_a_build_is_for_its_candidate_alone_and_is_no_verdict(made: Evaluator) -> None:
    """Each finds what its own build left, also if that failed; of one that dies, or is hostile, nothing is used."""
    bad = {"import sys; sys.exit('no device')": True, "import ctypes; ctypes.string_at(0)": False}
    bad |= {"os.symlink('/judge', cache / 'away')": False}
    codes = [_notes("one"), GOOD, _notes("two")]
    for number, (does, kept) in enumerate(bad.items()):
        name = f"bad{number}"
        codes.append(_notes(name, expects=None if kept else []).replace("else:", f"    {does}\nelse:", 1))
    with capture_logs() as logs:
        found = _run(made, codes)
    assert _verdicts(found) == ["accepted"] * 6, found.items
    assert {number: build["bundle_bytes"] > 0 for number, build in _built(logs).items()} == {
        **dict.fromkeys((10, 12), True),
        **{13 + number: kept for number, kept in enumerate(bad.values())},
    }


def test_an_archive_that_cannot_be_unpacked_leaves_nothing(
    made: Evaluator, monkeypatch: pytest.MonkeyPatch, state_dir: Path
) -> None:
    """One file of it is there when it breaks. Its candidate finds a clean place, and the next one its own archive."""

    def build(_: object, *, what: Mapping[str, Any], **__: object) -> tuple[Build, int]:
        name = "one" if what["candidate"] == 10 else "two"
        made_of = io.BytesIO()
        with tarfile.open(fileobj=made_of, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
            note = tarfile.TarInfo(f".cache/torch_extensions/{name}/note")
            note.size = len(name)
            archive.addfile(note, io.BytesIO(name.encode()))
            if name == "one":
                pipe = tarfile.TarInfo(".cache/torch_extensions/one/pipe")
                pipe.type = tarfile.FIFOTYPE
                archive.addfile(pipe)
        kept = BuildArchive(state_dir)
        kept.take(protocol.ArchivePiece(data=made_of.getvalue()))
        return Build(archive=kept, report=None), 1

    monkeypatch.setattr(made._build_cache, "build", build)
    found = _run(made, [_notes("one", expects=[]), _notes("two")])
    assert _verdicts(found) == ["accepted"] * 2, found.items


def test_a_group_can_be_cancelled_while_it_is_built(made: Evaluator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its containers are gone, and the slot was never used."""
    used = _watch_slot(made, monkeypatch)
    cancelled = threading.Event()

    def hear(progress: Progress) -> None:
        if progress.phase == "build":
            cancelled.set()

    group = samples.group({"id": 1, "code": "import time  # load_inline\ntime.sleep(600)\n"}, reference=REFERENCE)
    with pytest.raises(CancelledByRequest, match=r"cancelled (before|while) it was built"):
        made.run(group, SLOT, cancel=cancelled, on_progress=hear)
    assert not used.is_set()
