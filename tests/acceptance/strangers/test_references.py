"""What users reported of references, and of candidates that are more than their copies."""

from __future__ import annotations

from typing import Final

import pytest
import torch

from runner.extras.trainers.inside.judge.compare import Tolerance, compare
from runner.extras.trainers.inside.judge.reference_module import FILL, SIGN
from tasks.harness.judge.own_settings import OwnSettings
from tasks.harness.judge.problem import Problem, fill_heap
from tasks.harness.shared.values import DTYPES
from tests.acceptance.judging.forked_judges import ForkedJudges
from tests.acceptance.modules.problems import module
from tests.acceptance.strangers.modules import copy_of, judged, pair

_FLOAT8 = [name for name in DTYPES if name.startswith("float8")]
#: Of float4 torch converts none.
_WEIGHTS = [name for name in DTYPES if "float" in name and not name.startswith("float4")]
_TWO = "self.a = {}(nn.Linear(16, 16))\nself.b = {}(nn.Linear(16, 4))"
_MARK = "\N{ZERO WIDTH NO-BREAK SPACE}"
_TWO_ARGUMENTS = "self, x, t"


@pytest.mark.parametrize("name", _FLOAT8)
def test_a_step_of_float8_is_no_error(processes: ForkedJudges, name: str) -> None:
    """Sums in double round to a neighbour here and there; zeros and halves are wrong."""
    init = "self.w = nn.Parameter(torch.rand(256, 64) / 16)"
    text = "return (x{0} @ self.w{0}){1}.to(torch.{2})"
    inputs = "[torch.rand(64, 256)]"
    reference, _ = pair(text.format("", "", name), init, inputs=inputs)
    copies = [
        pair(text.format(*parts, name), init, inputs=inputs)[1] for parts in ((".double()", ""), ("", ".mul(0.4)"))
    ]
    rows = judged(processes, reference, *copies, timed_calls=0)
    assert [row["verdict"] for row in rows] == ["accepted", "wrong_answer"], rows


def test_a_lazy_part_that_is_not_used(processes: ForkedJudges) -> None:
    """Entries that only the candidate has are not its fault."""
    reference, _ = pair("return x + 1")
    _, code = pair("return x + 1", "self.unused = nn.LazyLinear(2)")
    (row,) = judged(processes, reference, code)
    assert row["verdict"] == "accepted", row


@pytest.mark.parametrize(
    ("of_reference", "of_candidate", "end"),
    [
        ("", "torch.compile", ""),
        ("torch.compile", "", ""),
        ("", "torch.jit.script", ""),
        ("", "", "_Made = ModelNew\ndef ModelNew():\n    return torch.compile(_Made())\n"),
    ],
)
def test_weights_of_compiled_parts(processes: ForkedJudges, of_reference: str, of_candidate: str, end: str) -> None:
    """They have the names that they have without: a candidate gets them, in whichever order it makes its parts."""
    forward = "return self.b(self.a(x))"
    reference, _ = pair(forward, _TWO.format(of_reference, of_reference))
    _, candidate = pair(forward, "\n".join(reversed(_TWO.format(of_candidate, of_candidate).splitlines())))
    (row,) = judged(processes, reference, candidate + end, timed_calls=0)
    assert (row["verdict"], row["weights"], row["perturbed"]) == ("accepted", "state_dict", True), row


def test_a_change_after_many_calls_is_never_a_candidates_fault(processes: ForkedJudges) -> None:
    """Where the judge's reference changes while a group is judged, a new one says so; before, nothing is to be seen."""
    reference, copy = pair("self.n = getattr(self, 'n', 0) + 1\nreturn x * (2 if self.n > 60 else 1)")
    rows = judged(processes, reference, *[copy] * 6, timed_calls=10)
    assert {row["verdict"] for row in rows} == {"accepted", "invalid"}, rows


@pytest.mark.parametrize("name", _WEIGHTS)
@pytest.mark.parametrize("byte", [FILL, FILL | SIGN])
def test_uninitialised_weights_are_moderate_numbers(name: str, byte: int) -> None:
    """None is infinite, NaN, or so small that an output of zeros would be right."""
    try:
        fill_heap(byte)
        least, most = abs(torch.empty(2000, dtype=DTYPES[name]).double()).aminmax()
    finally:
        fill_heap(0xFF)
    assert 1 <= least <= most < 10_000 or name == "float8_e8m0fnu"


@pytest.mark.parametrize(
    ("forward", "inputs"),
    [
        ("return F.binary_cross_entropy(x, t)", "[torch.rand(4, 5), torch.rand(4, 5).round()]"),
        ("return F.cross_entropy(x, t)", "[torch.randn(4, 500), torch.randint(0, 500, (4,))]"),
        ("return x[t]", "[torch.randn(500, 3), torch.randint(0, 500, (4,))]"),
    ],
    ids=["probabilities", "classes", "indices"],
)
def test_a_reference_defined_for_its_own_inputs_alone(processes: ForkedJudges, forward: str, inputs: str) -> None:
    """Few elements show less than the whole range, and many calls go beyond what a few have shown."""
    reference = f"{module('Model', forward, args=_TWO_ARGUMENTS)}\ndef get_inputs():\n    return {inputs}\n"
    (row,) = judged(processes, reference, copy_of(reference), inputs=8, timed_calls=40)
    assert row["verdict"] == "accepted", row
    assert len(row["distributions"]) > 1


def test_a_distribution_that_fails_now_and_then_is_left_out(processes: ForkedJudges) -> None:
    """One draw may be right where others are not: matrices that are positive definite as they are made."""
    reference = (
        f"{module('Model', 'return torch.linalg.cholesky(x)')}\n"
        "def get_inputs():\n    return [torch.corrcoef(torch.randn(4, 40))]\n"
    )
    for _ in range(4):
        (row,) = judged(processes, reference, copy_of(reference), inputs=8, timed_calls=40)
        assert row["verdict"] == "accepted", row


_SLOW: Final = "time.sleep({})\nreturn x * 2"


def test_a_slow_reference_uses_up_no_candidates_time(processes: ForkedJudges) -> None:
    """Calls of the reference, and checks by it, take longer than the candidate may; it returns at once."""
    reference, _ = pair(_SLOW.format(0.3), inputs="[torch.rand(8)]", pre="import time\n")
    _, code = pair("return x * 2")
    (row,) = judged(processes, reference, code, timeout_s=6.0, timed_calls=40, inputs=20)
    assert row["verdict"] == "accepted", row
    # Fewer calls than asked for, as each takes the judge long.
    assert 5 <= row["candidate_stats"]["calls"] < 40
    assert row["speedup_low"] > 10


def test_a_reference_that_is_too_slow_is_named_with_what_it_needs(processes: ForkedJudges) -> None:
    """And no candidate is."""
    reference, _ = pair(_SLOW.format(1.1), inputs="[torch.rand(8)]", pre="import time\n")
    _, code = pair("return x * 2")
    (row,) = judged(processes, reference, code, timeout_s=3.0)
    assert (row["verdict"], row["stage"]) == ("invalid", "reference"), row
    for words in ("too slow for timeout_s 3", "expected a timeout_s of"):
        assert words in row["message"]


def test_an_output_of_a_candidate_that_does_not_fit_is_its_own(processes: ForkedJudges) -> None:
    """With a sum that is right: inputs twice, outputs three times."""
    reference, copy = pair("return x.sum()")
    (row,) = judged(processes, reference, copy.replace("x.sum()", "torch.zeros(1 << 23)"), memory_bytes=64 << 20)
    assert row["verdict"] == "memory_limit", row
    assert f"may hold {64 << 20} bytes" in row["message"]
    assert "custom_kernel" not in row["message"]


def test_the_judges_own_settings_stay() -> None:
    """Whatever was set in the block is there in the next one, and nowhere else."""
    settings, one = OwnSettings(), torch.ones(3)
    before = (torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads())
    with settings.installed("code"):
        torch.set_default_device("meta")
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(not before[1])
        torch.set_num_threads(before[2] + 1)
    assert (torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads()) == before
    assert compare(one, torch.ones(3), Tolerance()).problem is None
    with settings.installed("code"):
        assert torch.ones(1).device.type == "meta"
        assert torch.get_default_dtype() == torch.float64
    assert torch.ones(1).device.type == "cpu"


def test_settings_of_a_task_do_not_reach_the_judge() -> None:
    """They are there in the task's next function, and nowhere else."""

    def generate(size: int) -> torch.Tensor:
        made = torch.ones(size)
        torch.set_default_device("meta")
        torch.set_default_dtype(torch.float64)
        return made

    def check(data: object, output: object) -> bool:
        del data, output
        return torch.ones(1).device.type == "meta" and torch.ones(1).dtype == torch.float64

    task = Problem(generate=generate, check=check, reference=None, modules=frozenset())
    made = task.generate({"size": 3}, rng_seed=1)
    assert isinstance(made, torch.Tensor)
    assert (made.dtype, torch.ones(1).device.type, torch.ones(1).dtype) == (torch.float32, "cpu", torch.float32)
    assert task.check(made, made) == (True, "")


@pytest.mark.parametrize("marked", ["reference", "candidate", "both"])
def test_a_byte_order_mark_is_no_part_of_the_text(processes: ForkedJudges, marked: str) -> None:
    """Of a reference, of a candidate."""
    reference, copy = pair("return x + 1")
    reference = reference if marked == "candidate" else _MARK + reference
    (row,) = judged(processes, reference, copy if marked == "reference" else _MARK + copy, timed_calls=0)
    assert row["verdict"] == "accepted", row


def test_a_line_that_names_an_encoding_counts(processes: ForkedJudges) -> None:
    """As in a file that Python reads: its source is found by those who look for it; an unknown name is an error."""
    reference, copy = pair(
        "assert inspect.getsource(type(self))\nreturn x + len('\N{GREEK SMALL LETTER SIGMA}')", pre="import inspect\n"
    )
    latin, unknown = (f"# -*- coding: {name} -*-\n{copy}" for name in ("latin-1", "no-such-encoding"))
    rows = judged(processes, reference, copy, latin, unknown, timed_calls=0)
    # Two letters in the second.
    assert [row["verdict"] for row in rows] == ["accepted", "wrong_answer", "compile_error"], rows
    (row,) = judged(processes, f"# coding: no-such-encoding\n{reference}", copy)
    assert row["verdict"] == "invalid", row


@pytest.mark.parametrize("text", ["\ud800", "x = '\ud800'", "\0", "x = 1\0", "\N{ZERO WIDTH NO-BREAK SPACE}" * 2])
def test_texts_that_are_no_python_are_refused(processes: ForkedJudges, text: str) -> None:
    """Half characters and zeros: the reference is invalid, a candidate does not compile, and neighbours are judged."""
    reference, copy = pair("return x + 1")
    bad, good = judged(processes, reference, text + copy, copy, timed_calls=0)
    assert (bad["verdict"], good["verdict"]) == ("compile_error", "accepted"), bad
    (row,) = judged(processes, text + reference, copy)
    assert row["verdict"] == "invalid", row
