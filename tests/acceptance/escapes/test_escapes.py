"""Every attempt gets exactly the verdict its file names, leaves nothing, and harms no honest job after it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from sandbox.host.engine import DockerEngine
from tests.acceptance.escapes.case import GVISOR, PROGRAM, Case, all_cases, breached, together, tried
from tests.acceptance.escapes.relax import RELAXATIONS
from tests.acceptance.escapes.rig import HARMED, INTERNAL_ERROR, Played, Rig
from tests.acceptance.escapes.table import table
from tests.plugins.live import ROOT
from tests.support.waiting import PATIENCE_S

CASES = all_cases()
MUTANTS = tuple(case for case in CASES if case.relax is not None)
#: What is nobody's fault is tried again, as a daemon would: gVisor's kernel breaks now and then on a crowded machine.
ATTEMPTS = 3
#: Every board of every case, and all of them under gVisor.
_ALL = os.environ.get("KERNEL_RUNNER_TEST_ESCAPES") == "all"
UNDER_GVISOR = ("bomb_memory", "device_nodes", "network_away", "ptrace", "survivor_double_fork")


class Plays:
    """What became of each selected attempt: played alone, or with all others that may share its container."""

    def __init__(self, rig: Rig, wanted: Sequence[Play]) -> None:
        self._rig = rig
        self._wanted = wanted
        #: By the name of each attempt's test.
        self._queued: dict[str, Future[Played]] = {}

    def queue_all(self) -> None:
        """Play all of them side by side, from now on."""
        for play in self._wanted:
            self._queue(play)

    def __getitem__(self, play: Play) -> Played:
        return self._queue(play).result(PATIENCE_S)

    def _queue(self, play: Play) -> Future[Played]:
        if str(play) not in self._queued:
            group = [other for other in self._wanted if play.shares_with(other)]
            case = together([each.case for each in group]) if play.is_shared else play.case
            queued = self._rig.play(case, play.board, relaxed=play.relaxed)
            self._queued.update(dict.fromkeys(map(str, group), queued))
        return self._queued[str(play)]


@dataclass(frozen=True, kw_only=True)
class Play:
    """A case, the board, whether its defence is off."""

    case: Case
    board: str
    relaxed: bool = False

    @property
    def is_shared(self) -> bool:
        """Whether others may be tried in its container. The long form of the suite gives each its own."""
        return self.case.is_probe and not _ALL

    def shares_with(self, other: Play) -> bool:
        """Whether both are played in one container: on the same board, with the same defence off."""
        if self == other:
            return True
        if not (self.is_shared and other.is_shared) or (self.board, self.relaxed) != (other.board, other.relaxed):
            return False
        return not self.relaxed or self.case.relax == other.case.relax

    def __str__(self) -> str:
        return f"{self.case.name}-without-{self.case.relax}" if self.relaxed else f"{self.case.name}-{self.board}"


AS_THEY_ARE = tuple(
    Play(case=case, board=board) for case in CASES for board in (case.verdicts if _ALL else (case.board,))
)
RELAXED = tuple(Play(case=case, board=case.board, relaxed=True) for case in MUTANTS)


@pytest.fixture(scope="module")
def plays(docker_engine: DockerEngine, eval_python: Path, request: pytest.FixtureRequest) -> Iterator[Plays]:
    """Four slots in one process of tests; a slot in each of several such processes."""
    names = {getattr(getattr(item, "callspec", None), "id", None) for item in request.session.items}
    worker = getattr(request.config, "workerinput", {}).get("workerid")
    slots, first_core = (4, 0) if worker is None else (1, int(worker.removeprefix("gw")))
    with Rig(engine_url=docker_engine.base_url, eval_python=eval_python, slots=slots, first_core=first_core) as rig:
        made = Plays(rig, [play for play in (*AS_THEY_ARE, *RELAXED) if str(play) in names])
        if worker is None:
            made.queue_all()
        yield made


@pytest.mark.parametrize("play", AS_THEY_ARE, ids=str)
def test_an_attempt_gets_its_verdict_and_leaves_nothing(plays: Plays, play: Play) -> None:
    """Verdict and sentence are those of its file, its containers are gone, the honest job after it is as ever."""
    case, result = play.case, plays[play]
    assert not play.is_shared or (tried(result.output, case.name) and not breached(result.output, case.name)), result
    assert result.verdict == case.verdicts[play.board], result
    assert "BREACH" not in result.output
    if case.error is not None:
        assert re.search(case.error, result.error or ""), result.error
    assert result.left == ()
    assert result.honest_verdict == "accepted"
    assert result.slowdown < HARMED


@pytest.mark.parametrize("play", RELAXED, ids=str)
def test_an_attempt_succeeds_where_its_defence_is_off(plays: Plays, play: Play) -> None:
    """Without the one defence the same submission gets through and says so: the case above could have failed."""
    case, result = play.case, plays[play]
    assert not play.is_shared or (tried(result.output, case.name) and breached(result.output, case.name)), result
    assert result.verdict == case.relaxed, result
    assert result.left == ()


def test_probes_in_one_container_are_told_apart() -> None:
    """One that comes through makes the submission wrong, as does one without an orderly end; others hide neither."""
    sources = {
        "refused": "refused('a file of root', os.open, '/proc/1/mem/x', 0, also=(errno.ENOENT, errno.ENOTDIR))",
        "comes_through": "breach('the door')",
        "raises": "raise ValueError('unforeseen')",
        "leaves": "os._exit(0)",
        "refused_too": "libc, os.sep = None, None",
    }
    probes = [case for case in CASES if case.is_probe and case.board == PROGRAM]
    altered = [replace(probes[0], name=name, source=source) for name, source in sources.items()]
    code = together(altered).code(relaxed=False, words={}).decode() + "\nprint(custom_kernel((1, 2)))\n"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert said.stdout.splitlines()[-1] == "1", "wrong, because something was possible"
    assert [name for name in sources if tried(said.stdout, name)] == ["refused", "comes_through", "refused_too"]
    assert [name for name in sources if breached(said.stdout, name)] == ["comes_through", "raises", "leaves"]
    assert "unforeseen" in said.stderr
    with pytest.raises(ValueError, match="expected probes of one board"):
        together([case for case in CASES if case.is_probe])


def test_runs_side_by_side_do_not_meet_in_the_hosts_ipc_namespace() -> None:
    """The case that leaves System V objects has keys of its own in each run."""
    (case,) = (case for case in CASES if case.name == "ipc_left_for_the_next_job")
    codes = [case.code(relaxed=True, words={"BAIT": f"kernel-runner-bait-{key}"}) for key in ("0000000a", "0000000b")]
    assert codes[0] != codes[1]


def test_the_suite_is_as_large_as_it_says() -> None:
    """At least 45 attempts, at least 15 of them played without their defence, and no defence without an attempt."""
    assert len(CASES) >= 45
    assert len(MUTANTS) >= 15
    assert {case.relax for case in MUTANTS} == set(RELAXATIONS)


def test_the_table_says_what_the_cases_say() -> None:
    """docs/attacks.md holds the table that `python -m tests.acceptance.escapes` prints."""
    page = (ROOT / "docs" / "attacks.md").read_text(encoding="utf-8")
    assert table(CASES) in page, "put in what `python -m tests.acceptance.escapes` prints"


@pytest.mark.timeout(3600 if _ALL else 1200)
def test_attempts_get_the_verdicts_of_the_table_under_gvisor(docker_engine: DockerEngine, eval_python: Path) -> None:
    """Five attempts, two that gVisor sees differently among them; KERNEL_RUNNER_TEST_ESCAPES=all plays all."""
    if GVISOR not in docker_engine.check().runtimes:
        pytest.skip("the engine has no runtime runsc: install gVisor and tell the engine of it (make test does)")
    chosen = [case for case in CASES if PROGRAM in case.verdicts and (_ALL or case.name in UNDER_GVISOR)]
    assert len(chosen) >= len(UNDER_GVISOR)
    # No time is looked at here.
    with Rig(engine_url=docker_engine.base_url, eval_python=eval_python, runtime=GVISOR, honest_before=1) as rig:
        for _ in range(ATTEMPTS):
            queued = [(case, rig.play(case, PROGRAM)) for case in chosen]
            results = [(case, future.result(PATIENCE_S)) for case, future in queued]
            assert {case.name: (result.left, result.honest_verdict) for case, result in results} == {
                case.name: ((), "accepted") for case in chosen
            }
            wrong = {
                case.name: result
                for case, result in results
                if result.verdict not in case.expected(PROGRAM, runtime=GVISOR)
            }
            assert {result.verdict for result in wrong.values()} <= {INTERNAL_ERROR}, wrong
            chosen = [case for case in chosen if case.name in wrong]
    assert wrong == {}
