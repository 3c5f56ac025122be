"""The corpora, judged by real judges and workers: honest styles pass, wrong ones and cheats do not win.

No honest style may be refused, however often it is judged: `KERNEL_RUNNER_TEST_EXAMPLES` says how often.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pytest

from runner.extras.trainers.inside.judge.group import MOST_CANDIDATES
from tests.acceptance.judging.forked_judges import ForkedJudges
from tests.acceptance.modules import plain
from tests.acceptance.modules.cheats import CHEATS
from tests.acceptance.modules.honest import HONEST
from tests.acceptance.modules.problems import PROBLEMS, candidate
from tests.acceptance.modules.wrong import WRONG
from tests.support.local_modules import evaluate, group_of

#: A cheat has gained a time if the lower end of its interval is above this.
_GAIN = 1.5
_GROUP = 8
ROUNDS = int(os.environ.get("KERNEL_RUNNER_TEST_EXAMPLES", "1"))


def _judged(processes: ForkedJudges, problem: str, codes: list[str], **settings: Any) -> list[dict[str, Any]]:  # noqa: ANN401 any setting
    return evaluate(group_of(PROBLEMS[problem], *codes, timeout_s=300.0, **settings), start=processes.start)


def _groups(table: Mapping[str, tuple[str, str]]) -> list[tuple[str, list[str]]]:
    """Problem and names of candidates, a few to a group."""
    groups = []
    for problem in PROBLEMS:
        names = [name for name, (of, _) in table.items() if of == problem]
        groups += [(problem, names[start : start + _GROUP]) for start in range(0, len(names), _GROUP)]
    return groups


def _id(value: str | list[str]) -> str:
    """The problem, or the first of the candidates."""
    return value if isinstance(value, str) else value[0]


def _cheats() -> list[tuple[str, list[str]]]:
    """Problem and names; what is to gain a time is timed with no other."""
    verdicts = {name: (cheat.problem, cheat.code) for name, cheat in CHEATS.items() if not cheat.gains_time}
    return [*_groups(verdicts), *((cheat.problem, [name]) for name, cheat in CHEATS.items() if cheat.gains_time)]


def test_the_corpora_are_large_enough() -> None:
    """60 honest styles, 60 wrong ones, 47 cheats; all different."""
    assert len(HONEST) >= 60
    assert len(WRONG) >= 60
    assert len(CHEATS) >= 47
    assert _GROUP <= MOST_CANDIDATES
    codes = [code for _, code in HONEST.values()] + [code for _, code in WRONG.values()]
    assert sorted(name for _, names in _cheats() for name in names) == sorted(CHEATS)
    assert len({(problem, code) for problem, code in (*HONEST.values(), *WRONG.values())}) == len(codes)


@pytest.mark.parametrize(("problem", "names"), _groups(HONEST), ids=_id)
def test_honest_styles_are_accepted(processes: ForkedJudges, problem: str, names: list[str]) -> None:
    """No honest style is refused in any round, by its outputs or, in the first one, by its times."""
    for number in range(ROUNDS):
        timed_calls = 0 if number else 3
        rows = _judged(processes, problem, [HONEST[name][1] for name in names], timed_calls=timed_calls)
        refused = {
            name: (number, row["verdict"], row["message"])
            for name, row in zip(names, rows, strict=True)
            if row["verdict"] != "accepted"
        }
        assert refused == {}


@pytest.mark.parametrize(("problem", "names"), _groups(WRONG), ids=_id)
def test_wrong_ones_are_refused(processes: ForkedJudges, problem: str, names: list[str]) -> None:
    """No wrong one is accepted, and each has a sentence."""
    rows = _judged(processes, problem, [WRONG[name][1] for name in names], timed_calls=0)
    for name, row in zip(names, rows, strict=True):
        assert row["verdict"] not in ("accepted", "invalid", "internal_error"), (name, row)
        assert row["correct"] is False, (name, row)
        assert row["message"], name


@pytest.mark.parametrize("name", CHEATS)
def test_cheats_win_against_a_plain_evaluator(name: str) -> None:
    """Without our defences each of them is accepted, and faster where it gains a time."""
    cheat = CHEATS[name]
    results = []
    # On a busy machine, a cheat of times may need more than one attempt to win.
    for _ in range(5 if cheat.gains_time else 1):
        results.append(plain.judged(PROBLEMS[cheat.problem], cheat.code))
        assert results[-1]["correct"], results
        if results[-1]["speedup"] >= _GAIN:
            break
    assert not cheat.gains_time or results[-1]["speedup"] >= _GAIN, results


def test_the_plain_evaluator_refuses_what_does_not_cheat() -> None:
    """It is no evaluator that accepts everything."""
    for name in ("zeros", "without the activation", "an exception", "a row too few"):
        assert not plain.judged(PROBLEMS["linear"], WRONG[name][1])["correct"], name
    assert plain.judged(PROBLEMS["linear"], candidate("linear"))["correct"]


@pytest.mark.parametrize(("problem", "names"), _cheats(), ids=_id)
def test_cheats_do_not_win(processes: ForkedJudges, problem: str, names: list[str]) -> None:
    """Refused; or accepted, but then with an honest time."""
    rows = _judged(processes, problem, [CHEATS[name].code for name in names], timed_calls=6, inputs=4)
    for name, row in zip(names, rows, strict=True):
        if row["verdict"] == "accepted":
            assert CHEATS[name].gains_time, (name, row)
            assert row["speedup_low"] <= _GAIN, (name, row)
        assert row["verdict"] not in ("invalid", "internal_error"), (name, row)
