"""Groups of modules with real judges and workers: what is recorded, and what one candidate does not do to the next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runner.extras.trainers.client import rewards
from tests.acceptance.judging.forked_judges import ForkedJudges
from tests.acceptance.modules.problems import PROBLEMS, candidate, module, new
from tests.support.local_modules import evaluate, group_of


def _judged(processes: ForkedJudges, reference: str, *codes: str, **settings: Any) -> list[dict[str, Any]]:  # noqa: ANN401 any setting
    given = {"timed_calls": 0, "timeout_s": 200.0, **settings}
    return evaluate(group_of(PROBLEMS.get(reference, reference), *codes, **given), start=processes.start)


_NAMED = (
    "import ctypes, os, pathlib, time\n\ndef named():\n    found = 0\n"
    "    for p in pathlib.Path('/proc').glob('[0-9]*/comm'):\n"
    "        try:\n            found += p.read_text() in 'candidate\\n' and bool(p.with_name('cmdline').read_bytes())\n"
    "        except OSError:\n            pass\n    return found\n"
)


@pytest.mark.parametrize("wrong", [False, True], ids=["right", "wrong"])
def test_no_candidate_lives_while_the_reference_is_timed(
    processes: ForkedJudges, tmp_path: Path, *, wrong: bool
) -> None:
    """Neither its worker nor what it has started: the reference, and further baselines, look for them at each call."""
    seen = tmp_path / "seen"
    # The worker that is timed runs the reference as a candidate's file; the judge's own module looks at nothing.
    look = f"open({str(seen)!r}, 'a').write(f'{{named()}}\\n') if __name__ == 'candidate' else None; return torch.relu"
    reference = _NAMED + PROBLEMS["linear"].replace("return torch.relu", look)
    stays = (
        f"{_NAMED}name = ctypes.CDLL(None).prctl\nname(15, b'candidate')\n"
        "if os.fork() == 0:\n    name(1, 9)\n    time.sleep(86400)\n"
    )
    candidates = [stays + candidate("linear") for _ in range(3)]
    if wrong:
        candidates[::2] = [text.replace("return torch.relu", "return 2 * torch.relu") for text in candidates[::2]]
    rows = _judged(processes, reference, *candidates, timed_calls=5, inputs=1)
    verdict = "wrong_answer" if wrong else "accepted"
    assert [row["verdict"] for row in rows] == [verdict, "accepted", verdict], rows
    counts = seen.read_text().split()
    assert len(counts) > 5 * (2 if wrong else 4)
    assert set(counts) == {"0"}


@pytest.mark.parametrize(
    ("does", "verdict"),
    [
        ("time.sleep(86400)", "time_limit"),
        ("fail(MemoryError('none is left'))", "memory_limit"),
        ("fail(OSError('too many processes'))", "rejected"),
    ],
)
def test_what_fails_beside_a_candidate_alone_is_no_fault_of_the_reference(
    processes: ForkedJudges, does: str, verdict: str
) -> None:
    """It is called again when that candidate is gone, and then it works."""
    # The judge's own module, not the one that is timed.
    beside = f"{does} if named() and __name__ == 'reference' else None; return torch.relu"
    fails = "def fail(error):\n    raise error\n"
    reference = fails + _NAMED + PROBLEMS["linear"].replace("return torch.relu", beside)
    stays = f"{_NAMED}ctypes.CDLL(None).prctl(15, b'candidate')\n{candidate('linear')}"
    rows = _judged(processes, reference, candidate("linear"), stays, candidate("linear"), timed_calls=5, timeout_s=3.0)
    assert [row["verdict"] for row in rows] == ["accepted", verdict, "accepted"], rows
    assert "custom_kernel" not in rows[1]["message"]


def test_what_fails_without_a_candidate_too_is_the_fault_of_the_reference(processes: ForkedJudges) -> None:
    """Whichever candidate is the first to meet it."""
    counted = (
        "type(self).c = getattr(self, 'c', 0) + 1; 1 / (self.c < 60 or __name__ != 'reference'); return torch.relu"
    )
    reference = PROBLEMS["linear"].replace("return torch.relu", counted)
    rows = _judged(processes, reference, *[candidate("linear")] * 2, timed_calls=60)
    assert [row["verdict"] for row in rows] == ["invalid"] * 2, rows
    assert "forward raised: ZeroDivisionError" in rows[0]["message"]


@pytest.mark.parametrize("calls", [1, 6, 12, 18])
def test_a_reference_that_fails_later_gives_no_reward(processes: ForkedJudges, calls: int) -> None:
    """Not 0: wherever a candidate is when the reference's worker ends, before its own code, too."""
    ends = "type(self).c = getattr(self, 'c', 0) + 1; 1 / (self.c < %d or __name__ != 'candidate'); return torch.relu"
    reference = PROBLEMS["linear"].replace("return torch.relu", ends % calls)
    rows = _judged(processes, reference, *[candidate("linear")] * 2, timed_calls=3, inputs=1)
    for row in rows:
        assert (row["verdict"], row["stage"]) in {("accepted", "done"), ("invalid", "reference")}, row
        assert row["verdict"] == "accepted" or rewards.reward("correct@1", row) is None, row


def test_a_reference_that_remembers_is_the_fault_of_no_candidate(processes: ForkedJudges) -> None:
    """Neither of the first that differs from it, nor of the next: it keeps the weights of its first eval call."""
    layers = "self.l = nn.Linear(16, 16)\nself.w = None"
    remembers = (
        "if self.training:\n    return self.l(x)\n"
        "if self.w is None:\n    self.w = self.l.weight.clone()\nreturn F.linear(x, self.w, self.l.bias)"
    )
    reference = f"{module('Model', remembers, layers)}\ndef get_inputs():\n    return [torch.randn(4, 16)]\n"
    rows = _judged(processes, reference, *[new("return self.l(x)", "self.l = nn.Linear(16, 16)")] * 3)
    assert [row["verdict"] for row in rows] == ["invalid"] * 3, rows


def test_further_baselines_are_numbers_of_their_own(processes: ForkedJudges) -> None:
    """Beside the one that counts; one that needs a device makes the reference invalid here."""
    (row,) = _judged(processes, "linear", candidate("linear"), timed_calls=6, inputs=1, further_baselines=["compile"])
    assert row["verdict"] == "accepted", row
    (found,) = row["baselines"].values()
    assert found["speedup"] == pytest.approx(found["reference_ns"] / row["candidate_ns"], rel=0.5)
    assert found["speedup_low"] <= found["speedup"] <= found["speedup_high"]
    for row in _judged(processes, "linear", *[candidate("linear")] * 2, baseline="graphs"):
        assert (row["verdict"], row["stage"]) == ("invalid", "reference")
        assert row["message"] == "the baseline graphs needs a device, and this GPU type has none"


def test_a_candidate_gains_nothing_by_seeding_for_itself(processes: ForkedJudges) -> None:
    """The harness's seeding is in the time of both sides, and short enough for the interval."""
    own = "import sys\nmodule = sys.modules['runner.extras.trainers.inside.worker.module']\n"
    cheap = f"{own}module.seed_some = lambda names, seed: torch.default_generator.manual_seed(seed)\n"
    honest, forged = _judged(
        processes, "dropout", candidate("dropout"), candidate("dropout") + cheap, timed_calls=12, inputs=1
    )
    assert (honest["verdict"], forged["verdict"]) == ("accepted", "accepted"), (honest, forged)
    assert forged["speedup_low"] <= max(1.0, honest["speedup_high"]), (honest, forged)


def test_a_state_that_does_not_move_is_flagged(processes: ForkedJudges) -> None:
    """Running statistics that a candidate does not keep are no wrong answer; whatever its entries are called."""
    still = new(
        "q = self.q\nif q.training:\n    return F.relu(F.batch_norm(x, None, None, q.weight, q.bias, True))\n"
        "return F.relu(q(x))",
        "self.q = nn.BatchNorm1d(16)",
    )
    moved = new("return F.relu(self.q(x))", "self.q = nn.BatchNorm1d(16)")
    candidates = [text.replace("self.q", name) for name in ("self.b", "self.q") for text in (still, moved)]
    rows = _judged(processes, "batch_norm", *candidates)
    assert [row["verdict"] for row in rows] == ["accepted"] * 4, rows
    assert ["another_state" in row["flags"] for row in rows] == [True, False] * 2, rows


def _random_until(calls: int, then: str) -> str:
    """A candidate that draws as the reference below in so many calls in train mode, then does something else."""
    forward = (
        "global calls, last\ny = self.l(x)\nif not self.training:\n    return y\ncalls += 1\n"
        f"again, last = last is not None and torch.equal(last, x), x.clone()\nif calls <= {calls}:\n"
        f"    return F.dropout(y, 0.1)\nown = y * (torch.rand(64, 64, generator=own_seed) >= 0.1) / 0.9\n{then}"
    )
    pre = "calls, last, own_seed = 0, None, torch.Generator()\nown_seed.seed()\n"
    return new(forward, "self.l = nn.Linear(64, 64)", pre=pre)


@pytest.mark.parametrize("calls", range(4))
def test_each_random_answer_is_compared_for_itself(processes: ForkedJudges, calls: int) -> None:
    """In whichever call a candidate begins to draw for itself, rightly or wrongly, and whoever was judged before."""
    reference = module("Model", "return F.dropout(self.l(x), 0.1, self.training)", "self.l = nn.Linear(64, 64)")
    reference += "\ndef get_inputs():\n    return [torch.randn(64, 64)]\n"
    wrong = ("return 0 * y", "return own if again else 0 * y")
    texts = [_random_until(calls, then) for then in ("return own", *wrong)]
    rows = _judged(processes, reference, *texts, _random_until(0, "return own"))
    assert [row["verdict"] for row in rows] == ["accepted", "wrong_answer", "wrong_answer", "accepted"], rows


def test_a_demanded_kernel_is_demanded(processes: ForkedJudges) -> None:
    """A library call is refused then, also below comments that name a kernel; a language that is imported is one."""
    text = candidate("linear")
    texts = [
        f'"""A kernel by load_inline: __global__ void k()."""\n# @triton.jit\n{text}',
        f"try:\n    import helion\nexcept ImportError:\n    helion = None\n{text}",
    ]
    rows = _judged(processes, "linear", *texts, require_custom_kernel=True)
    assert [row["verdict"] for row in rows] == ["rejected", "accepted"], rows
    assert ["no_custom_kernel" in row["flags"] for row in rows] == [True, False]


def test_a_candidate_that_ends_badly_harms_no_neighbour(processes: ForkedJudges) -> None:
    """Hanging, flooding, dying, filling the socket: the others have their verdicts."""
    hangs = new("while True:\n    pass")
    floods = new("import os\nwhile True:\n    os.write(1, b'x' * 65536)")
    dies = new("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)")
    forges = new(
        "import os\nfor fd in range(3, 4096):\n    try:\n        os.write(fd, b'KRW1' + b'x' * 64)\n"
        "    except OSError:\n        pass\nreturn x"
    )
    good = candidate("linear")
    rows = _judged(processes, "linear", good, hangs, floods, dies, forges, good, timeout_s=20.0, inputs=2)
    assert rows[1]["verdict"] == "time_limit", rows[1]
    assert rows[2]["verdict"] in {"runtime_error", "time_limit"}, rows[2]
    assert rows[3]["verdict"] == "runtime_error", rows[3]
    assert "SIGSEGV" in rows[3]["message"]
    assert rows[4]["verdict"] in {"rejected", "runtime_error", "wrong_answer"}, rows[4]
    assert [rows[0]["verdict"], rows[5]["verdict"]] == ["accepted"] * 2, rows
