"""Every known way to cheat: caught, or in vain, where all defences are up; through where the one it names is not.

An attack that comes through nowhere would prove nothing about the defences, so each is also made without them: before
a judge that lacks one (relax), or before an evaluator that has no judge (naive). What needs a container to be stopped
is stopped in one by the acceptance cases that it names; here its other half is played, without the container.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.acceptance.attacks.catalogue import (
    ACCEPTANCE,
    CASES,
    DEFENCES,
    FAMILIES,
    LETTERS,
    TASKS,
    Attack,
    attacks,
    table,
)
from tests.acceptance.attacks.play import CASES as TASK_CASES
from tests.acceptance.attacks.play import CONTAINER, Outcome, in_one_process, judged, naive, outcomes, request_of
from tests.acceptance.attacks.relax import CHANGES
from tests.acceptance.escapes.case import load as load_escape
from tests.acceptance.judging.forked_judges import ForkedJudges

ATTACKS = attacks()
PLAYED = [attack for attack in ATTACKS if not attack.proved & CONTAINER]
SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
PAGE = Path(__file__).parents[3] / "docs" / "attacks.md"


@pytest.mark.parametrize("attack", [pytest.param(attack, id=attack.name) for attack in PLAYED])
def test_it_is_caught_or_gains_nothing(processes: ForkedJudges, attack: Attack) -> None:
    """Its verdict is the one in its folder, and no time below that of its work is reported."""
    for outcome in outcomes(processes, attack, attack.given):
        assert outcome.verdict in (attack.verdict, attack.or_else, attack.busy), outcome
        if outcome.verdict == attack.verdict and attack.error is not None:
            assert re.search(attack.error, outcome.message or ""), outcome
        if attack.work_ns is not None and outcome.verdict == "accepted":
            assert (outcome.time_ns or 0) >= attack.holds * attack.work_ns, outcome


@pytest.mark.parametrize("attack", [pytest.param(attack, id=attack.name) for attack in ATTACKS if attack.in_process])
def test_it_wins_in_one_process(processes: ForkedJudges, attack: Attack) -> None:
    """An evaluator of the usual shape accepts it, and takes it to be as many times faster as the table says."""
    # What threads do on a busy machine does not come out alike every time; once is enough to show the way.
    for _ in range(12):
        outcome = in_one_process(processes, attack)
        if outcome.verdict == "accepted" and (attack.speedup is None or _is_faster(attack, outcome)):
            return
    raise AssertionError(outcome)


def _is_faster(attack: Attack, outcome: Outcome) -> bool:
    if attack.speedup is None or attack.work_ns is None or outcome.time_ns is None:
        raise ValueError(f"{attack.name}: expected a speedup, work and a time, found {outcome}")
    return outcome.time_ns * attack.speedup < attack.work_ns


@pytest.mark.parametrize(
    ("attack", "without"),
    [
        pytest.param(attack, names, id=f"{attack.name}-without-{names}")
        for attack in ATTACKS
        for names in attack.without
        if names not in ("readonly", "network", "trusted")
    ],
)
def test_it_gets_through_where_its_defence_is_off(processes: ForkedJudges, attack: Attack, without: str) -> None:
    """The same submission is accepted, with a wrong output or a time that it cannot have had."""
    if without == "uid" and os.geteuid() and SCOPE.exists() and int(SCOPE.read_text()):
        pytest.skip("this host lets no process of a user write to another one's memory")
    # What an allocator decides does not come out alike every time, nor do times on a busy machine; once is enough to
    # show the way.
    for _ in range(1 if attack.work_ns is None else 12):
        played = outcomes(processes, attack, (*attack.given, *without.split("+")))
        outcome = next((each for each in reversed(played) if each.verdict == "accepted"), played[-1])
        if _gets_through(attack, outcome):
            return
    raise AssertionError(outcome)


def _gets_through(attack: Attack, outcome: Outcome) -> bool:
    """Whether it is accepted, in less than its work takes."""
    if outcome.verdict != "accepted" or attack.work_ns is None:
        return outcome.verdict == "accepted"
    spans = [case["outside_median_ns"] for case in outcome.details.get("cases", ())]
    return outcome.time_ns is not None and outcome.time_ns < attack.holds * max([attack.work_ns, *spans])


@pytest.mark.parametrize(
    ("task", "without"), [*((task, None) for task in sorted(TASK_CASES)), *(("add", name) for name in CHANGES)]
)
def test_an_honest_submission_passes(processes: ForkedJudges, task: str, without: str | None) -> None:
    """It passes where all defences are up, and a judge that lacks one still works."""
    mode = "benchmark" if task == "add" else "test"
    honest = Attack(
        name="honest",
        family="late",
        seen="",
        why="",
        verdict="accepted",
        task=task,
        mode=mode,
        source=(TASKS / task / "control" / "submission.py").read_text(encoding="utf-8"),
    )
    outcome = judged(processes, request_of(honest), without=() if without is None else (without,))
    assert outcome.verdict == "accepted", outcome
    if task == "add" and without is None:
        assert naive(processes, request_of(honest), {}).verdict == "accepted"


def test_the_naive_evaluator_refuses_what_is_wrong(processes: ForkedJudges) -> None:
    """A wrong output that does not cheat fails there: what passes there has cheated."""
    wrong = next(attack for attack in ATTACKS if attack.name == "patches_allclose")
    source = "def custom_kernel(data):\n    return data[0]\n"
    assert naive(processes, request_of(wrong, submission=source), {}).verdict == "wrong_answer"


def test_the_corpus_is_complete() -> None:
    """Every folder is read, every attack gets through somewhere, every defence is shown to be one."""
    assert {attack.name for attack in ATTACKS} == {path.name for path in CASES.iterdir() if path != TASKS}
    assert len(ATTACKS) >= 45
    assert not [attack.name for attack in ATTACKS if not attack.without]
    assert set().union(*(attack.proved for attack in ATTACKS)) >= set(DEFENCES) - {"readonly"}
    assert {letter for letter, _ in DEFENCES.values()} == set(LETTERS)
    played = [attack for attack in ATTACKS if attack.in_process]
    assert {attack.family for attack in played} == set(FAMILIES)
    assert not [attack.name for attack in played if (attack.speedup is None) != (attack.work_ns is None)]


def test_what_is_played_in_containers_is_there() -> None:
    """The acceptance cases that attacks name exist, and have verdicts."""
    for attack in ATTACKS:
        assert attack.elsewhere or not attack.proved & CONTAINER, attack.name
        for name in attack.elsewhere:
            kind, _, case = name.partition("/")
            if kind == "cases":
                assert (ACCEPTANCE / "cases" / case / "expect.yml").exists(), name
            else:
                assert load_escape(ACCEPTANCE / "escapes" / "cases" / f"{case}.py").verdicts, name


def test_the_page_has_the_table() -> None:
    """docs/attacks.md is in step: `python -m tests.acceptance.attacks` prints what belongs there."""
    assert table() in PAGE.read_text(encoding="utf-8")
