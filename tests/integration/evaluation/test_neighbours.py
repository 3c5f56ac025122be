"""What a candidate, a group or a public run does to what follows: nothing; and a good deal where nothing is cleaned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from runner.base.config import Config
from runner.base.model import JobResult, Mode, Verdict
from runner.evaluation import warm_pool
from runner.evaluation.evaluate import Evaluator
from sandbox.host.engine import DockerEngine
from tests.acceptance.modules.neighbours import all_at_once, attacks, without_cleaning
from tests.acceptance.modules.problems import PROBLEMS, candidate
from tests.integration.evaluation.conftest import VECTORADD, evaluate, evaluator_with
from tests.plugins.live import with_few_calls
from tests.support.waiting import PATIENCE_S
from tests.unit import samples

#: A group for each: files, memory, objects of the kernel and processes are in both.
HALVES = (0, 1)
SMALL: Final = with_few_calls(replace(VECTORADD, tests=VECTORADD.tests[:1], benchmarks=VECTORADD.benchmarks[:1]), 3)
RIGHT: Final = "def custom_kernel(data):\n    return data[0] + data[1]\n"
#: Leaves a file in a compiler's cache, and says whether it was there.
CACHES: Final = """
import os, pathlib
p = pathlib.Path(os.environ['TRITON_CACHE_DIR'], 'of-mine')
print('cached', p.exists())
p.parent.mkdir(parents=True, exist_ok=True)
p.touch()
"""
#: Starts as many threads as there may be; they end at once.
MANY: Final = """
import threading
enough = threading.Event()
try:
    while True:
        threading.Thread(target=enough.wait).start()
except RuntimeError:
    enough.set()
"""
#: In a reference: what the judge's user leaves behind, and what looks for it.
_PLACES: Final = "('/judge/of-reference', '/tmp/of-reference', '/dev/shm/of-reference')"
_LEAVES: Final = f"""
import ctypes, os
for place in {_PLACES}:
    open(place, 'w').close()
ctypes.CDLL(None).shmget(78, 4096, 0o1000 | 0o666)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp('sleep', ['sleep', '86397'])
    os._exit(0)
"""
_LOOKS: Final = f"""
import ctypes, glob, os
def running(path):
    try:
        return b'86397' in open(path, 'rb').read()
    except OSError:
        return False
left = [place for place in {_PLACES} if os.path.exists(place)]
left += ['memory'] if ctypes.CDLL(None).shmget(78, 4096, 0o666) >= 0 else []
left += ['process'] if any(map(running, glob.glob('/proc/[0-9]*/cmdline'))) else []
if left:
    raise RuntimeError(f'met {{left}}')
"""


def _verdicts(evaluator: Evaluator, half: int) -> Mapping[str, list[str]]:
    """The verdicts of the two candidates of each attack of a half, sorted."""
    part = list(attacks(candidate("linear")).items())[half :: len(HALVES)]
    group = samples.group(
        *({"id": number, "code": part[number // 2][1]} for number in range(2 * len(part))),
        reference=PROBLEMS["linear"],
        settings={"timed_calls": 0, "inputs": 2, "timeout_s": 100},
    )
    rows = evaluate(evaluator, group).items
    return {
        name: sorted(str(row["verdict"]) for row in rows[2 * number : 2 * number + 2])
        for number, (name, _) in enumerate(part)
    }


@pytest.mark.parametrize("half", HALVES)
def test_no_candidate_meets_another(evaluator: Evaluator, half: int) -> None:
    """Neither files nor processes nor objects of the kernel."""
    found = _verdicts(evaluator, half)
    assert len(found) >= 6
    assert found == {name: ["accepted", "accepted"] for name in found}


def test_each_attack_works_where_nothing_is_cleaned_up(docker_engine: DockerEngine, settings: Config) -> None:
    """The second candidate meets what the first has left, or is killed by it."""
    with without_cleaning(), evaluator_with(docker_engine, settings, [samples.SLOT], warm_containers=0) as evaluator:
        found = {name: verdicts for half in HALVES for name, verdicts in _verdicts(evaluator, half).items()}
    assert found == {name: ["accepted", "runtime_error"] for name in found}


def _run(evaluator: Evaluator, *codes: str, before: str = "", **settings: Any) -> list[tuple[str, str]]:  # noqa: ANN401 any setting
    """Verdict and message of each candidate of a group of the batch; `before`: stands before its reference."""
    group = samples.group(
        *({"id": number, "code": code} for number, code in enumerate(codes)),
        reference=before + PROBLEMS["linear"],
        settings={"timed_calls": 0, "inputs": 2, "timeout_s": 100, **settings},
    )
    rows = evaluate(evaluator, group).items
    return [(str(row["verdict"]), str(row["message"])) for row in rows]


def _submit(evaluator: Evaluator, code: str, *, secret: bool, submission: int = 3, failures: int = 0) -> JobResult:
    """The result of the public or the secret run of a submission."""
    who = {"id": 2 * submission + secret, "submission_id": submission, "secret": secret, "failures": failures}
    return evaluate(evaluator, samples.job_on(SMALL, code, mode=Mode.LEADERBOARD, **who))


def _keeps(evaluator: Evaluator) -> bool:
    """Whether a used container waits for what follows."""
    return evaluator._warm_pool._pools[samples.SLOT.name].kept is not None


def _kept(evaluator: Evaluator) -> Any:  # noqa: ANN401 a container
    """The container that waits for what follows."""
    kept = evaluator._warm_pool._pools[samples.SLOT.name].kept
    assert kept is not None
    return kept.container


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A used container waits for what follows however busy the machine is."""
    monkeypatch.setattr(warm_pool, "IDLE_S", PATIENCE_S)


def test_a_candidate_whose_output_fills_a_larger_pipe_ends_no_other_s_judgement(evaluator: Evaluator) -> None:
    """After a flood the judge reads no more of it, so it is full when the next worker gets it."""
    good = candidate("linear")
    flood = "import fcntl, os\nfcntl.fcntl(1, 1031, 1 << 20)\nwhile True:\n    os.write(1, bytes(1 << 20))\n"
    verdicts = [verdict for verdict, _ in _run(evaluator, *(flood, good) * 3)]
    assert verdicts == ["runtime_error", "accepted"] * 3


@pytest.mark.usefixtures("patient")
def test_no_candidate_meets_one_of_the_next_group(evaluator: Evaluator) -> None:
    """Two groups of a batch in one container: neither files nor processes nor objects of the kernel."""
    texts = attacks(candidate("linear"))
    for _ in range(2):
        verdicts = dict(zip(texts, _run(evaluator, *texts.values()), strict=True))
        assert {name: verdict for name, (verdict, _) in verdicts.items()} == dict.fromkeys(texts, "accepted"), verdicts
    assert _kept(evaluator).requests == 2


@pytest.mark.usefixtures("patient")
def test_no_reference_meets_one_of_the_next_group(evaluator: Evaluator) -> None:
    """What the judge's user leaves is gone, too: its directory, shared places, memory, processes."""
    good = candidate("linear")
    assert [verdict for verdict, _ in _run(evaluator, good, before=_LEAVES)] == ["accepted"]
    assert [verdict for verdict, _ in _run(evaluator, good, before=_LOOKS)] == ["accepted"]
    assert _kept(evaluator).requests == 2


@pytest.mark.usefixtures("patient")
def test_each_attack_on_the_next_group_works_where_nothing_is_cleaned_up(
    docker_engine: DockerEngine, settings: Config
) -> None:
    """The candidates and the reference of the next group meet what the first one has left."""
    texts, good = attacks(candidate("linear")), candidate("linear")
    with without_cleaning(), evaluator_with(docker_engine, settings, [samples.SLOT]) as evaluator:
        _run(evaluator, *texts.values())
        verdicts = dict(zip(texts, _run(evaluator, *texts.values()), strict=True))
        _run(evaluator, good, before=_LEAVES)
        ((verdict, message),) = _run(evaluator, good, before=_LOOKS)
    assert {name: verdict for name, (verdict, _) in verdicts.items()} == dict.fromkeys(texts, "runtime_error"), verdicts
    assert verdict == "invalid"
    assert all(what in message for what in ("/judge/of", "/tmp/of", "/dev/shm/of", "memory", "process"))


@pytest.mark.usefixtures("patient")
def test_a_container_that_breaks_after_an_earlier_group_costs_no_verdict(
    evaluator: Evaluator, docker_engine: DockerEngine
) -> None:
    """The group has another container; the pool keeps no container of a group with separate ones."""
    good = candidate("linear")
    assert [verdict for verdict, _ in _run(evaluator, good)] == ["accepted"]
    docker_engine._kill(_kept(evaluator).id)
    assert [verdict for verdict, _ in _run(evaluator, good)] == ["accepted"]
    assert _kept(evaluator).requests == 1
    assert [verdict for verdict, _ in _run(evaluator, good, separate_containers=True)] == ["accepted"]
    assert not _keeps(evaluator)


@pytest.mark.usefixtures("patient")
def test_a_group_that_meets_a_limit_everywhere_is_repeated_once(evaluator: Evaluator) -> None:
    """In a fresh container, whose verdict counts: a candidate that forces it has two tries of each group, not more."""
    good = candidate("linear")
    assert [verdict for verdict, _ in _run(evaluator, good)] == ["accepted"]
    with capture_logs() as logs:
        assert [verdict for verdict, _ in _run(evaluator, MANY + good)] == ["accepted"]
        assert [line["requests"] for line in logs if line["event"] == "request_repeated"] == [2]
        # Of a container that has met a limit nothing is shared.
        assert not _keeps(evaluator)
        _run(evaluator, MANY + good)
        assert len([line for line in logs if line["event"] == "request_repeated"]) == 1


@pytest.mark.usefixtures("patient")
def test_no_secret_run_meets_its_public_one(evaluator: Evaluator) -> None:
    """In the same container it finds compilers' caches, and nothing else; then the container is gone."""
    code = all_at_once(CACHES + RIGHT)
    public = _submit(evaluator, code, secret=False)
    assert public.verdict is Verdict.ACCEPTED, public.error
    container = _kept(evaluator)
    secret = _submit(evaluator, code, secret=True)
    assert secret.verdict is Verdict.ACCEPTED, secret.error
    assert container.requests == 2
    assert not _keeps(evaluator)
    assert [result.runs[0].meta["stdout"].strip() for result in (public, secret)] == ["cached False", "cached True"]


@pytest.mark.usefixtures("patient")
def test_a_secret_run_meets_its_public_one_where_nothing_is_cleaned_up(
    docker_engine: DockerEngine, settings: Config
) -> None:
    """It meets whatever was left, unless a process that was left kills it first."""
    with without_cleaning(), evaluator_with(docker_engine, settings, [samples.SLOT]) as evaluator:
        assert _submit(evaluator, all_at_once(RIGHT), secret=False).verdict is Verdict.ACCEPTED
        container = _kept(evaluator)
        result = _submit(evaluator, all_at_once(RIGHT), secret=True)
    assert container.requests == 2
    assert result.verdict is Verdict.RUNTIME_ERROR


@pytest.mark.usefixtures("patient")
def test_only_the_next_job_of_the_slot_gets_the_container_of_a_public_run(evaluator: Evaluator) -> None:
    """Another submission's, the same one's public run, and a secret run that has failed get another one."""
    for next_one in ({"submission": 4, "secret": True}, {"secret": False}, {"secret": True, "failures": 1}):
        assert _submit(evaluator, RIGHT, secret=False).verdict is Verdict.ACCEPTED
        container = _kept(evaluator)
        assert _submit(evaluator, RIGHT, **next_one).verdict is Verdict.ACCEPTED
        assert (container.requests, container._closed) == (1, True)
    assert not _keeps(evaluator)
    assert _submit(evaluator, RIGHT, secret=True).verdict is Verdict.ACCEPTED


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    ("code", "verdict"), [(RIGHT.replace("+", "-"), Verdict.WRONG_ANSWER), (MANY + RIGHT, Verdict.ACCEPTED)]
)
def test_after_a_public_run_that_is_wrong_or_met_a_limit_the_container_is_removed(
    evaluator: Evaluator, code: str, verdict: Verdict
) -> None:
    """A limit that it met without harm is none for the verdict, but the secret run gets another container."""
    result = _submit(evaluator, code, secret=False)
    assert result.verdict is verdict, result.error
    assert not _keeps(evaluator)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("killed", [False, True])
def test_what_ends_a_container_after_a_public_run_costs_no_verdict(
    evaluator: Evaluator, docker_engine: DockerEngine, killed: bool
) -> None:
    """The secret run has another container, whether the one that was kept is gone, or meets a limit in it."""
    code = (f"import pathlib\nif pathlib.Path('/work/.cache').exists():\n    exec({MANY!r})\n" + CACHES) * (not killed)
    assert _submit(evaluator, code + RIGHT, secret=False).verdict is Verdict.ACCEPTED
    container = _kept(evaluator)
    if killed:
        docker_engine._kill(container.id)
    result = _submit(evaluator, code + RIGHT, secret=True)
    assert result.verdict is Verdict.ACCEPTED, result.error
    assert (container.requests, container._closed) == (2, True)
    assert bool(result.report["outcome"]["pids_denied"]) is not killed


@pytest.mark.usefixtures("patient")
def test_a_wrong_answer_of_a_secret_run_stands_whatever_limit_it_met(evaluator: Evaluator) -> None:
    """A submission that fails must not get a second try by using up the container's processes."""
    # A container that was used has given out more process ids than a fresh one.
    code = f"""
import os, pathlib
if not pathlib.Path('/work/.cache').exists():
    for _ in range(300):
        if os.fork() == 0:
            os._exit(0)
        os.wait()
used = os.getpid() > 300
if used:
    exec({MANY!r})
{CACHES}
def custom_kernel(data):
    return data[0] - data[1] if used else data[0] + data[1]
"""
    assert _submit(evaluator, code, secret=False).verdict is Verdict.ACCEPTED
    container = _kept(evaluator)
    result = _submit(evaluator, code, secret=True)
    assert result.verdict is Verdict.WRONG_ANSWER, result.error
    assert container.requests == 2
    assert result.report["outcome"]["pids_denied"]
