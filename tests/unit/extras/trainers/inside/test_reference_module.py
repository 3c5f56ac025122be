"""References as they are found: both forms of constructor arguments, and what is wrong with some of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from runner.extras.trainers.inside.judge import prepare as prepare_module
from runner.extras.trainers.inside.judge.compare import compare
from runner.extras.trainers.inside.judge.distributions import transformed
from runner.extras.trainers.inside.judge.group import Settings
from runner.extras.trainers.inside.judge.prepare import Prepared, prepare
from runner.extras.trainers.inside.judge.reference_module import InvalidReference, Reference

_HEAD = "import torch\nimport torch.nn as nn\n"


def _reference(text: str, tmp_path: Path, *, limit_s: float = 20.0) -> Reference:
    return Reference(_HEAD + text, "Model", directory=tmp_path, weight_seed=5, limit_s=limit_s)


def _prepared(text: str, tmp_path: Path, **settings: object) -> Prepared:
    return prepare(_reference(text, tmp_path), Settings.from_message(settings), memory_bytes=1 << 30)


def _module(forward: str, *, inputs: str = "[torch.randn(4, 8)]", init: str = "", more: str = "") -> str:
    return (
        "class Model(nn.Module):\n    def __init__(self, *args, **kwargs):\n"
        f"        super().__init__()\n        {init or 'pass'}\n"
        f"    def forward(self, x):\n        {forward}\n"
        f"def get_inputs():\n    return {inputs}\n{more}"
    )


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        ("[]", ([], {})),
        ("[3, 0.5]", ([3, 0.5], {})),
        ("[[], {}]", ([], {})),
        ("[[3], {'p': 0.5}]", ([3], {"p": 0.5})),
        ("[[3, 4], 5]", ([[3, 4], 5], {})),
        ("(3,)", ([3], {})),
    ],
)
def test_both_forms_of_constructor_arguments(returned: str, expected: object, tmp_path: Path) -> None:
    """Both forms of constructor arguments."""
    text = _module("return x", more=f"def get_init_inputs():\n    return {returned}\n")
    assert _reference(text, tmp_path).init_inputs() == expected


@pytest.mark.parametrize(
    ("made", "read"),
    [
        ("torch.ones(4)", "x"),
        ("[torch.ones(4)]", "x[0]"),
        ("collections.OrderedDict(a=torch.ones(4))", "x['a']"),
        ("collections.namedtuple('P', 'a b')(torch.ones(4), 3)", "x.a"),
        ("types.SimpleNamespace(a=[torch.ones(4)])", "x.a[0]"),
        ("_mock_config(a=torch.ones(4))", "x.a"),
    ],
)
def test_a_call_changes_copies_of_its_inputs_in_any_container(made: str, read: str, tmp_path: Path) -> None:
    """In the precision that was asked for."""
    text = "import collections, types\nfrom _paritybench_helpers import _mock_config\n"
    reference = _reference(text + _module(f"return {read}.mul_(2) + 0", inputs=f"[{made}]"), tmp_path)
    reference.precision = torch.float16
    reference.construct()
    args = reference.inputs(1)
    for _ in range(2):
        output, (left,) = reference.run(args, None)
        assert torch.equal(output, torch.full((4,), 2.0, dtype=torch.float16))
        assert torch.equal(left, output)


def test_the_precision_leaves_integers_and_bools_alone(tmp_path: Path) -> None:
    """The precision leaves integers and bools alone."""
    text = _module("return x", inputs="[torch.ones(2), torch.ones(2, dtype=torch.int64), torch.ones(2) > 0, 7]")
    reference = _reference(text, tmp_path)
    reference.precision = torch.float16
    assert [getattr(item, "dtype", item) for item in reference.inputs(1)] == [torch.float16, torch.int64, torch.bool, 7]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("class Model(:", "no Python"),
        ("x = " + "+".join("1" * 100_000), "no Python: SyntaxError: the text cannot be compiled: maximum recursion"),
        ("raise RuntimeError('x')", "cannot be imported: RuntimeError: x"),
        ("import nothing_of_that_name", "cannot be imported: ModuleNotFoundError"),
        ("raise SystemExit(3)", "cannot be imported: SystemExit"),
        ("def get_inputs(): return []", "defines no class Model"),
        ("class Model(nn.Module): pass", "no function get_inputs"),
        (_module("return x", inputs="torch.ones(2) @ 3"), "get_inputs raised"),
        (_module("return x", inputs="5"), "get_inputs returned a int"),
        (_module("return x", init="raise ValueError('no')"), "constructor raised: ValueError: no"),
        (_module("return x / 0 - x / 0"), "holds NaN"),
        (_module("return torch.full((2,), float('inf'))"), "no finite number"),
        (_module("return undefined"), "forward raised: NameError"),
        (_module("return object()"), "cannot be compared"),
        (_module("self.n = getattr(self, 'n', 0) + 1; return x * self.n"), "different outputs"),
        (_module("import os; return x + int.from_bytes(os.urandom(2), 'big')"), "different outputs"),
        (_module("return x", more="def get_init_inputs():\n    return 3\n"), "get_init_inputs returned a int"),
    ],
)
def test_what_is_wrong_with_a_reference_is_told(text: str, said: str, tmp_path: Path) -> None:
    """What is wrong with a reference is told."""
    with pytest.raises(InvalidReference, match=said.replace("(", r"\(")):
        _prepared(text, tmp_path)


def test_a_reference_that_does_not_end_is_interrupted(tmp_path: Path) -> None:
    """A reference that does not end is interrupted."""
    with pytest.raises(InvalidReference, match="took longer than"):
        _reference("while True: pass", tmp_path, limit_s=0.2)


def test_inputs_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    """Inputs that do not fit are refused."""
    reference = _reference(_module("return x", inputs="[torch.ones(1000)]"), tmp_path)
    with pytest.raises(InvalidReference, match="4000 bytes"):
        prepare(reference, Settings(), memory_bytes=4096)


@pytest.mark.parametrize(
    ("forward", "init", "found", "trials_in_eval"),
    [
        ("return self.d(x)", "self.d = nn.Dropout(0.5)", (True, False, "both", False), 2),
        ("return x + torch.randn_like(x)", "", (True, True, "both", False), 2),
        ("return self.d(x)", "self.d = nn.Dropout(0.5); self.eval()", (False, False, "eval", False), 0),
        # A train mode that is not repeatable leaves eval mode alone.
        (
            "return self.l(x)",
            "self.l = torch.nn.utils.spectral_norm(nn.Linear(8, 8), n_power_iterations=1)",
            (False, False, "eval", True),
            5,
        ),
        ("return self.b(x)", "self.b = nn.BatchNorm1d(8)", (False, False, "both", True), 2),
        ("return self.b(x)", "self.b = nn.LayerNorm(8)", (False, False, "both", False), 2),
    ],
)
def test_what_a_reference_is(
    forward: str, init: str, found: tuple[bool, bool, str, bool], trials_in_eval: int, tmp_path: Path
) -> None:
    """Random in train mode and in eval mode; the mode of its calls; whether they move its state."""
    prepared = _prepared(_module(forward, init=init), tmp_path)
    assert (prepared.random, prepared.random_in_eval, prepared.mode, prepared.stateful) == found
    assert sum(trial.in_eval for trial in prepared.trials if not trial.is_second) == trials_in_eval


@pytest.mark.parametrize(
    ("draw", "expected"),
    [
        ("torch.rand(4, 8)", ("torch",)),
        ("torch.from_numpy(numpy.random.rand(4, 8))", ("numpy",)),
        ("random.random()", ("python",)),
        ("random.random() + torch.rand(4, 8)", ("python", "torch")),
        ("restored()", ("python", "torch", "cuda", "numpy")),
    ],
)
def test_the_generators_that_a_call_uses_are_seeded(draw: str, expected: tuple[str, ...], tmp_path: Path) -> None:
    """And no others; all where a call puts its own back, so that nothing shows which it was."""
    text = (
        "import random\nimport numpy\ndef restored():\n    with torch.random.fork_rng(devices=[]):\n"
        "        return torch.rand(4, 8)\n" + _module(f"return x + {draw} if self.training else x")
    )
    prepared = _prepared(text, tmp_path)
    assert (prepared.random, prepared.used_generators(in_eval=False)) == (True, expected)
    assert prepared.used_generators(in_eval=True) == ()


@pytest.mark.parametrize(("asked", "calls"), [(0, 0), (1, 3), (2, 3), (3, 3), (20, 20)])
def test_there_are_as_many_timed_calls_as_an_interval_needs(asked: int, calls: int, tmp_path: Path) -> None:
    """None, or three and more; of slow modules five at most."""
    prepared = _prepared(_module("return x + 1"), tmp_path, timed_calls=asked)
    assert prepared.timed_calls == calls
    prepared.call_s = 60.0
    assert prepared.timed_calls == min(calls, 5)


def test_timed_calls_have_every_distribution_as_often(tmp_path: Path) -> None:
    """In an order of their own, so that a worker cannot know what the next call is like."""
    prepared = _prepared(_module("return x + 1"), tmp_path)
    names = prepared.distributions
    assert len(names) > 2
    assert prepared.timed_distributions == tuple(names)
    inputs = prepared.timed_inputs()
    expected = {name: transformed(prepared.reference.inputs(7), name, prepared.ranges)[0] for name in names}
    drawn = [inputs(7)[0] for _ in range(3 * len(names))]
    counts = [sum(torch.equal(item, one) for item in drawn) for one in expected.values()]
    assert counts == [3] * len(names)


def test_timed_calls_have_no_distribution_that_is_handed_over_in_another_way(tmp_path: Path) -> None:
    """Expanded inputs would have other bytes; correctness calls have them all the same."""
    prepared = _prepared(_module("return x + 1", inputs="[torch.randn(1, 8).expand(4, 8)]"), tmp_path)
    assert len(prepared.distributions) > 1
    assert prepared.timed_distributions == ("original",)


@pytest.mark.parametrize(
    ("forward", "degenerate"),
    [
        ("return torch.softmax(x.sum(1, keepdim=True), 1)", True),
        ("return (x - x.mean(1, keepdim=True)).mean(1)", True),
        ("return x * 1e-9", True),
        # Of plain get_inputs alone.
        ("return (x.abs().max() > 1.2) * torch.ones(1)", True),
        ("return torch.softmax(x, 1)", False),
        ("return (x > 0)", False),
    ],
)
def test_a_reference_that_a_constant_satisfies_is_degenerate(forward: str, degenerate: bool, tmp_path: Path) -> None:
    """A reference that a constant satisfies is degenerate."""
    assert _prepared(_module(forward), tmp_path).degenerate == degenerate


@pytest.mark.parametrize(
    ("forward", "factor", "more", "passes"),
    [
        ("return torch.softmax(x, 1)", 1.01, 0, False),
        ("return torch.softmax(x, 1)", 1 + 5e-5, 0, True),
        ("return x / x.norm() / 100", 1.01, 0, False),
        # What cancels is known no better than the numbers that do.
        ("return torch.softmax(x, 1) + ((x + 9) - 9 - x)", 1, 2e-7, True),
        # A step of another dtype is more.
        ("return torch.softmax(x.double(), 1).half()", 1, 6e-8, True),
        ("return torch.where(x < 3, 0, 1e-5)", 1, 2e-7, True),
    ],
)
def test_small_outputs_have_a_floor_of_their_own(
    forward: str, factor: float, more: float, *, passes: bool, tmp_path: Path
) -> None:
    """Where steps of the inputs change them by far less than the usual one."""
    prepared = _prepared(_module(forward, inputs="[torch.randn(4, 100_000)]"), tmp_path)
    assert not prepared.degenerate
    for trial in prepared.trials:
        output = prepared.expected(trial, perturbed=False).output
        other = (output.double() * factor + more).to(output.dtype)
        assert (compare(output, other, prepared.tolerance).problem is None) == passes


def test_the_state_that_a_call_leaves_is_seen_in_the_next(tmp_path: Path) -> None:
    """Once, in eval mode, where calls change a state. Other expected outputs are those of the untouched state."""
    prepared = _prepared(_module("return self.b(x)", init="self.b = nn.BatchNorm1d(8)"), tmp_path)
    trial = prepared.trials[-1]
    assert trial.in_eval
    first = prepared.expected(trial, perturbed=False)
    assert torch.allclose(first.output, first.args[0] / (1 + 1e-5) ** 0.5)
    (second,) = (trial for trial in prepared.trials if trial.is_second)
    x = prepared.expected(second, perturbed=False).args[0]
    moved = x.mean(0) * 0.1, x.var(0) * 0.1 + 0.9
    assert torch.allclose(prepared.expected(second, perturbed=False).output, (x - moved[0]) / (moved[1] + 1e-5).sqrt())
    assert not any(trial.is_second for trial in _prepared(_module("return x + 1"), tmp_path).trials)


def test_shifted_weights_that_break_a_module_are_not_used(tmp_path: Path) -> None:
    """Shifted weights that break a module are not used."""
    kept = _module("return x * self.w", init="self.w = nn.Parameter(torch.ones(8))")
    assert _prepared(kept, tmp_path).shifted_state is not None
    assert _prepared(kept, tmp_path, perturb=False).shifted_state is None
    broken = _module("return x * (self.w - 1).sign().sqrt()", init="self.w = nn.Parameter(torch.ones(64)[:8] * 1.0)")
    assert _prepared(broken.replace("randn(4, 8)", "rand(4, 8)"), tmp_path).shifted_state is None


def test_each_trial_is_called_once_before_a_candidate_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where outputs are too large to keep: beside the first one's, which three steps need, no call is repeated."""
    seeds: list[int | None] = []
    run = Reference.run

    def counted(self: Reference, args: list[object], seed: int | None) -> object:
        seeds.append(seed)
        return run(self, args, seed)

    monkeypatch.setattr(Reference, "run", counted)
    monkeypatch.setattr(prepare_module, "_KEPT_BYTES", 0)
    prepared = _prepared(_module("return x * 3"), tmp_path)
    calls = [seeds.count(trial.seed) for trial in prepared.trials]
    assert len(calls) > 3
    assert calls[1:] == [1] * (len(calls) - 1)
