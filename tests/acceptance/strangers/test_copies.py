"""References as users wrote them, and what becomes of their copies: a table, by the kind of report."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Final

import pytest
import torch

from tasks.harness.shared.values import DTYPES
from tests.acceptance.judging.forked_judges import ForkedJudges
from tests.acceptance.strangers.modules import judged, pair

MEMORY_BYTES: Final = 64 << 20


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A reference; its copies must all have one of the verdicts."""

    forward: str
    init: str = ""
    inputs: str = "[torch.randn(8, 16)]"
    #: What stands before the class.
    pre: str = ""
    verdicts: tuple[str, ...] = ("accepted",)
    #: A part of the first copy's message, and what else its result has.
    says: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)
    copies: int = 1
    #: A text of the copy, and one in its place that makes it wrong.
    wrong: tuple[str, str] | None = None
    settings: Mapping[str, Any] = field(default_factory=lambda: {"timed_calls": 0})


Rows = Iterator[tuple[str, Reference]]
_TIMED: Final = {"timed_calls": 3}
_AS_A_TRAINER: Final[Mapping[str, Any]] = {}


def argument_memory() -> Rows:
    """Arguments that share memory or have strides of their own: the reference gets them as a candidate does."""
    arguments = {
        "one tensor twice": "(lambda a: [a, a])(torch.randn(8, 8))",
        "one tensor twice, not contiguous": "(lambda a: [a, a])(torch.randn(16, 16)[::2, ::2])",
        "a transpose": "(lambda a: [a, a.t()])(torch.randn(8, 8))",
        "rows in common": "(lambda a: [a[:8], a[4:12]])(torch.randn(12, 8))",
        "rows in turns": "(lambda a: [a[::2], a[1::2]])(torch.randn(16, 8))",
        "a column": "(lambda a: [a, a[:, 1:2]])(torch.randn(8, 8))",
        "two types": "(lambda a: [a, a.view(torch.int32).clamp_(-9, 9)])(torch.zeros(8, 8))",
    }
    forwards = {
        "changes the first": "x.add_(1)\nreturn x + y",
        "changes the second": "y.add_(2)\nreturn x - y",
        "reads beyond": "return x.as_strided((4, 4), (2, 1)) + y.sum()",
        "asks for strides": "return x * sum(x.stride()) + y",
    }
    for (does, forward), (what, given) in product(forwards.items(), arguments.items()):
        yield f"{does}-{what}", Reference(forward=f"x, y = x\n{forward}", inputs=f"[{given}]", settings=_TIMED)


def unwritten_memory() -> Rows:
    """A reference that shows memory as it got it is invalid."""
    memory = (
        "torch.empty(8, 16)",
        "torch.empty_like(x)",
        "torch.empty_strided((8, 16), (1, 8))",
        "x.new(8, 16)",
        "torch.FloatTensor(8, 16)",
        "torch.ones(1).resize_(8, 16)",
        "torch.empty(400, 8, 16).sum(0)",
        "torch.empty(8, 16, dtype=torch.int64)",
    )
    places = {
        "the output": ("return {}", ""),
        "a part of it": ("y = {}\ny[:4] = 1\nreturn y", ""),
        "an attribute": ("return x * self.m", "x = torch.ones(8, 16)\nself.m = {}"),
        "a buffer that is not saved": (
            "return x * self.m",
            "x = torch.ones(8, 16)\nself.register_buffer('m', {}, persistent=False)",
        ),
        "what the first call keeps": ("if self.m is None:\n    self.m = {}\nreturn x * self.m", "self.m = None"),
    }
    for (place, texts), text in product(places.items(), memory):
        forward, init = (each.replace("{}", text) for each in texts)
        says = "memory that nothing has written"
        yield f"{place}-{text}", Reference(forward=forward, init=init, verdicts=("invalid",), says=says)


def module_dtypes() -> Rows:
    """Tensors of every dtype and of classes of their own, numbers of numpy, a state that is a copy."""
    for name in DTYPES:
        if name == "float4_e2m1fn_x2":
            # Packed halves of bytes, which torch cannot copy.
            yield (
                name,
                Reference(
                    forward="return x.clone()",
                    inputs=f"[torch.rand(8, 16).to(torch.uint8).view(torch.{name})]",
                    verdicts=("invalid",),
                    says="not implemented",
                    settings=_TIMED,
                ),
            )
        elif name.startswith(("float8", "complex32", "uint")):
            inputs = f"[torch.rand(8, 16).mul(50).to(torch.{name})]"
            yield name, Reference(forward="return x.clone()", inputs=inputs, settings=_TIMED)
    for name, forward, init in (
        ("a subclass", "return (x + 1).as_subclass(Named)", ""),
        ("subclasses in a dict", "return {'all': [(x + 1).as_subclass(Named)]}", ""),
        (
            "a parameter of a subclass",
            "return (x @ self.w).as_subclass(torch.Tensor)",
            "self.w = nn.Parameter(torch.rand(16, 4).as_subclass(Named))",
        ),
        (
            "a buffer of a subclass",
            "return x @ self.w",
            "self.register_buffer('w', torch.rand(16, 4).as_subclass(Named))",
        ),
        ("a parameter itself", "return self.w", "self.w = nn.Parameter(torch.rand(16, 4))"),
    ):
        pre = "class Named(torch.Tensor):\n    pass\n"
        yield name, Reference(forward=forward, init=init, pre=pre, settings=_TIMED)
    for kind in ("float32", "float64", "int64", "bool_"):
        forward = f"return x, [numpy.{kind}(1)], {{'a': numpy.{kind}(0)}}"
        yield f"numpy's {kind}", Reference(forward=forward, pre="import numpy\n", settings=_TIMED)
    # What is written to it changes no output: the result does not say that other weights were tried.
    copied = (
        "self.w = nn.Parameter(torch.rand(16, 4))\n"
        "self._register_state_dict_hook(lambda m, s, p, l: {k: v.clone() for k, v in s.items()})"
    )
    yield "a copied state", Reference(forward="return x @ self.w", init=copied, facts={"perturbed": False})


def module_state() -> Rows:
    """Entries of a state_dict of every kind: accepted where they can be made, and else invalid with a sentence."""
    accepted = {"expanded": "torch.ones(1).expand(16)", "sparse": "torch.eye(16).to_sparse()"}
    others = {
        "expanded in one dimension": "torch.arange(4.0).reshape(4, 1).expand(4, 4)",
        "overlapping": "torch.arange(10.0).unfold(0, 3, 1)",
        "compressed": "torch.eye(16).to_sparse_csr()",
        "quantised": "torch.quantize_per_tensor(torch.ones(16), 0.1, 0, torch.qint8)",
        "conjugated": "torch.ones(16, dtype=torch.complex64).conj()",
        "empty": "torch.empty(0, 3)",
        "nothing": "None",
        "without memory": "torch.ones(16, device='meta')",
        "of one number": "torch.tensor(3)",
        "not contiguous": "torch.rand(4, 4).t()",
    }
    for name in sorted({str(kind) for kind in vars(torch).values() if isinstance(kind, torch.dtype)}):
        group = accepted if name.startswith("torch.float8") or name == "torch.bits8" else others
        group[name] = f"torch.zeros(64, dtype=torch.uint8).view({name})"
    for group, verdicts in ((accepted, ("accepted",)), (others, ("accepted", "invalid"))):
        for name, text in group.items():
            init = f"self.register_buffer('m', {text})"
            yield name, Reference(forward="return x + 1", init=init, verdicts=verdicts)
    # It cannot be written to, and need not be.
    inference = "with torch.inference_mode():\n    m = torch.ones(16)\nself.register_buffer('m', m)"
    yield "of inference mode", Reference(forward="return x * self.m", init=inference, settings=_AS_A_TRAINER)
    # One call gives both sides the same weights.
    lazy = "self.l = nn.LazyLinear(4)"
    for name, forward, init in (
        ("lazy", "return self.l(x)", lazy),
        ("two lazy", "return self.b(self.l(x))", f"{lazy}\nself.b = nn.LazyBatchNorm1d()"),
        ("lazy beside an unused one", "return self.l(x)", f"{lazy}\nself.unused = nn.LazyLinear(4)"),
    ):
        yield (
            name,
            Reference(
                forward=forward,
                init=init,
                facts={"weights": "state_dict", "perturbed": True},
                wrong=("self.l(x)", "(self.l(x) * 1.01)"),
                settings=_AS_A_TRAINER,
            ),
        )


def module_history() -> Rows:
    """An output that depends on earlier calls is invalid; state is no history, nor is a cache."""
    counted = "self.n = getattr(self, 'n', 0) + 1\nreturn x * (2 if self.n > {} else 1)"
    invalid: dict[str, Any] = {"verdicts": ("invalid",), "says": "depends on earlier calls"}
    first = "if not self.inited:\n    self.inited = True\n    self.s.data.copy_(-x.mean(0))\nreturn x + self.s"
    init = "self.inited = False\nself.s = nn.Parameter(torch.zeros(16))"
    yield (
        "parameters of the first inputs",
        Reference(forward=first, init=init, copies=3, settings=_AS_A_TRAINER, **invalid),
    )
    for name, forward, init, pre in (
        ("an attribute", "if self.f is None:\n    self.f = x.clone()\nreturn x - self.f", "self.f = None", ""),
        ("a mean", "self.m = 0.9 * self.m + 0.1 * x.mean()\nreturn x + self.m", "self.m = 0.0", ""),
        ("a buffer", "self.n += 1\nreturn x * self.n", "self.register_buffer('n', torch.zeros(()))", ""),
        ("the file", "if not CALLS:\n    CALLS.append(x.clone())\nreturn x - CALLS[0]", "", "CALLS = []\n"),
        ("the class", counted.format(10).replace("self", "type(self)"), "", ""),
        ("ten calls", counted.format(10), "", ""),
        ("25 calls", counted.format(25), "", ""),
    ):
        yield name, Reference(forward=forward, init=init, pre=pre, settings={"timed_calls": 10}, **invalid)
    for name, forward, init in (
        ("batch norm", "return self.b(x)", "self.b = nn.BatchNorm1d(16)"),
        (
            "a cache",
            "if self.m is None:\n    self.m = torch.ones(16, 16).tril()[3]\nreturn x * self.m",
            "self.m = None",
        ),
        ("dropout", "return self.d(x)", "self.d = nn.Dropout(0.5)"),
    ):
        yield name, Reference(forward=forward, init=init)


def replaced_state() -> Rows:
    """Calls that give names of the state_dict other tensors: a copy's weights are the reference's in every call."""
    random = "torch.randn(16)"
    replaces = {
        "a parameter": ("self.w = nn.Parameter(self.w.clone())", f"self.w = nn.Parameter({random})"),
        "a parameter of a part": ("self.l.weight = nn.Parameter(self.l.weight * 1)", "self.l = nn.Linear(16, 16)"),
        "a buffer": ("self.w = self.w * 1", f"self.register_buffer('w', {random})"),
        "a part": ("self.l = copy.deepcopy(self.l)", "self.l = nn.Linear(16, 16)"),
        "a part of another dtype": ("self.l = self.l.double().float()", "self.l = nn.Linear(16, 16)"),
        "a name that was not there": ("self.register_buffer('w', torch.ones(16))", "pass"),
        "a name that is gone": (
            "self._buffers.pop('m', None)",
            f"self.w = nn.Parameter({random})\nself.register_buffer('m', torch.ones(16))",
        ),
    }
    for kind, (call, init) in replaces.items():
        returns = f"return {'self.l(x)' if 'self.l' in init else 'x * self.w'}"
        once = f"if self.new:\n    self.new = False\n    {call}"
        more: dict[str, Any] = {"pre": "import copy\n", "settings": _TIMED}
        yield f"each call-{kind}", Reference(forward=f"{call}\n{returns}", init=init, **more)
        yield f"first call-{kind}", Reference(forward=f"{once}\n{returns}", init=f"self.new = True\n{init}", **more)
    # A norm by hand has the statistics of its own calls; one that leaves them out in eval mode is wrong.
    yield (
        "running statistics",
        Reference(
            forward="if self.training:\n    mean, var = x.mean(0), x.var(0)\n"
            "    self.mean = 0.9 * self.mean + 0.1 * mean\n    self.var = 0.9 * self.var + 0.1 * var\n"
            "else:\n    mean, var = self.mean, self.var\nreturn (x - mean) / (var + 1e-5).sqrt()",
            init="self.register_buffer('mean', torch.zeros(16))\nself.register_buffer('var', torch.ones(16))",
            wrong=("= self.mean, self.var", "= 0, x.var(0)"),
            settings=_AS_A_TRAINER,
        ),
    )


def gradients_of_modules() -> Rows:
    """Reference and candidate see the same mode of gradients everywhere; where there are none they may be asked for."""
    trains = (
        "w = nn.Parameter(torch.ones(1))\n(w * 3).sum().backward()\n"
        "torch.optim.SGD([w], lr=0.5).step()\nr = float(w.detach())"
    )
    # Statements that set `r`, by what they do.
    does = {
        "asks for the mode": "r = 2.0 if torch.is_grad_enabled() else 3.0",
        "asks a result": "r = 2.0 if (torch.ones(1, requires_grad=True) * 2).requires_grad else 3.0",
        "computes with gradients": (
            "with torch.enable_grad():\n    w = torch.ones(1, requires_grad=True)\n"
            "    r = torch.autograd.grad((w * 3).sum(), w)[0].item()"
        ),
        "computes without": "with torch.no_grad():\n    r = (torch.ones(1, requires_grad=True) * 2).item()",
        "sets the mode": "torch.set_grad_enabled(not torch.is_grad_enabled())\nr = 2.0",
        "trains with gradients": f"with torch.enable_grad():\n{textwrap.indent(trains, '    ')}",
        "trains": trains,
    }
    uses, keeps, sets = "return x * self.r", "self.r = r", "r = 1.0\n"
    for what, text in does.items():
        refused: dict[str, Any] = {"verdicts": ("invalid",), "says": "does not require grad"}
        more = {"settings": _TIMED, **(refused if what == "trains" else {})}
        for mode in ("", "torch.set_grad_enabled(False)\n")[: 1 if "trains" in what else 2]:
            name = f"{what}{' without gradients' * bool(mode)}"
            yield f"{name}-file", Reference(forward=uses, init=keeps, pre=f"{mode}{text}\n", settings=_TIMED)
            yield f"{name}-constructor", Reference(forward=uses, init=f"{text}\n{keeps}", pre=mode + sets, **more)
            yield f"{name}-call", Reference(forward=f"{text}\nreturn x * r", init=keeps, pre=mode + sets, **more)


def reference_settings() -> Rows:
    """Settings of the process do not reach the judge; with some the reference cannot work, or not be called twice."""
    pre = (
        "import decimal, gc, locale, logging, os, random, resource, signal, socket, sys, threading, warnings\n"
        "import numpy as np\n"
    )
    broken = (
        "torch.set_default_device('meta')",
        "torch.inference_mode().__enter__()",
        "torch.device('meta').__enter__()",
        "torch.set_num_interop_threads(1)",
    )
    fine = (
        "torch.set_default_device('cpu')",
        "torch.set_default_dtype(torch.float64)",
        "torch.set_default_dtype(torch.float16)",
        "torch.use_deterministic_algorithms(True)",
        "torch.set_num_threads(1)",
        "torch.set_printoptions(precision=1)",
        "torch.set_grad_enabled(False)",
        "torch.set_grad_enabled(True)",
        "torch.autocast('cpu').__enter__()",
        "torch.set_float32_matmul_precision('medium')",
        "warnings.simplefilter('error')",
        "np.seterr(all='raise')",
        "torch.autograd.set_detect_anomaly(True)",
        "torch.set_flush_denormal(True)",
        "sys.setrecursionlimit(150)",
        "os.chdir('/')",
        "sys.stdout.close()",
        "sys.stderr.close()",
        "gc.disable()",
        "socket.setdefaulttimeout(0.001)",
        "torch.set_warn_always(True)",
        "torch.device('cpu').__enter__()",
        "signal.signal(signal.SIGALRM, signal.SIG_DFL)",
        "signal.signal(signal.SIGALRM, signal.SIG_IGN)",
        "locale.setlocale(locale.LC_ALL,'')",
        "sys.setswitchinterval(1)",
        "torch.set_default_tensor_type(torch.DoubleTensor)",
        "random.seed(0)",
        "torch.manual_seed(0)",
        "decimal.getcontext().prec=2",
        "sys.settrace(lambda *a: None)",
        "threading.stack_size(32768)",
        "os.umask(0o777)",
        "resource.setrlimit(resource.RLIMIT_AS,(1<<31,1<<31))",
        "logging.disable()",
        "torch.multiprocessing.set_sharing_strategy('file_system')",
        "sys.set_int_max_str_digits(640)",
        "torch.utils.deterministic.__setattr__('fill_uninitialized_memory',True)",
    )
    returns = "return x.float() * 2"
    for group, verdicts in ((broken, ("accepted", "invalid")), (fine, ("accepted",))):
        for setting in group:
            more: dict[str, Any] = {"verdicts": verdicts, "settings": {"inputs": 2}}
            yield f"file-{setting}", Reference(forward=returns, pre=f"{pre}{setting}\n", **more)
            yield f"call-{setting}", Reference(forward=f"{setting}\n{returns}", pre=pre, **more)


def reference_ends() -> Rows:
    """A reference that ends its process does so in its own worker first."""
    invalid: dict[str, Any] = {"verdicts": ("invalid",), "says": "the process"}
    imports = "import os\n"
    for ends in ("os._exit(0)", "os._exit(1)", "os.abort()", "os.kill(os.getpid(), 4)", "os.closerange(0, 4096)"):
        yield f"file-{ends}", Reference(forward="return x + 1", pre=f"{imports}{ends}\n", **invalid)
        yield f"constructor-{ends}", Reference(forward="return x + 1", init=ends, pre=imports, **invalid)
        yield f"call-{ends}", Reference(forward=f"{ends}\nreturn x + 1", pre=imports, **invalid)


def small_randomness() -> Rows:
    """Generators decide a part of the output smaller than the tolerance, or seldom any: seeds make copies equal."""
    for name, forward, pre in (
        ("both modes", "return x + 6e-5 * torch.randn_like(x)", ""),
        ("one mode", "return x + 6e-5 * torch.randn_like(x) if self.training else x", ""),
        ("few calls", "return x * (3 if torch.rand(1) < 0.1 else 1)", ""),
        ("numpy", "return x + 6e-5 * torch.from_numpy(np.random.randn(8, 16)).float()", "import numpy as np\n"),
        ("random", "return x + 6e-5 * random.gauss(0, 1)", "import random\n"),
        ("dropout", "return F.dropout(x, 1e-3, self.training)", ""),
    ):
        facts = {"random": True, "max_abs_error": 0.0} if name == "both modes" else {}
        yield name, Reference(forward=forward, pre=pre, copies=3, facts=facts, settings=_AS_A_TRAINER)


def judge_costs() -> Rows:
    """Inputs, parameters and outputs that do not fit: named with what they need, before the memory is used."""
    invalid: dict[str, Any] = {"verdicts": ("invalid",), "says": str(MEMORY_BYTES), "facts": {"stage": "reference"}}
    few = "[torch.rand(8)]"
    for name, forward, init, inputs in (
        ("inputs", "return x.sum()", "", "[torch.rand(1 << 28)]"),
        ("inputs twice", "return x.sum()", "", "[torch.rand(1 << 22)]"),
        ("expanded inputs", "return x.sum()", "", "[torch.rand(8).expand(1 << 34, 8)]"),
        ("inputs of numpy's", "return x.sum()", "", "[torch.from_numpy(__import__('numpy').ones(1 << 27))]"),
        ("parameters", "return x", "self.l = nn.Linear(1 << 14, 1 << 14)", few),
        ("parameters twice", "return x", "self.l = nn.Linear(1 << 11, 3 << 10)", few),
        ("outputs", "return x.expand(1 << 25, 8).contiguous()", "", few),
        ("outputs thrice", "return x.expand(1 << 20, 8).contiguous()", "", few),
        ("expanded outputs", "return x.expand(1 << 30, 1 << 10, 8)", "", few),
    ):
        settings = {"memory_bytes": MEMORY_BYTES}
        yield name, Reference(forward=forward, init=init, inputs=inputs, settings=settings, **invalid)


REPORTS = (
    argument_memory, unwritten_memory, module_dtypes, module_state, module_history, replaced_state,
    gradients_of_modules, reference_settings, reference_ends, small_randomness, judge_costs,
)  # fmt: skip
REFERENCES = {f"{rows.__name__}-{name}": reference for rows in REPORTS for name, reference in rows()}


@pytest.mark.parametrize("name", REFERENCES)
def test_a_copy_is_accepted_or_its_reference_says_what_is_wrong(processes: ForkedJudges, name: str) -> None:
    """No copy bears the blame; what is made wrong beside it is a wrong answer."""
    case = REFERENCES[name]
    reference, copy = pair(case.forward, case.init, inputs=case.inputs, pre=case.pre)
    codes = [copy] * case.copies + ([] if case.wrong is None else [copy.replace(*case.wrong)])
    rows = judged(processes, reference, *codes, **case.settings)
    assert {row["verdict"] for row in rows[: case.copies]} <= {*case.verdicts}, rows
    assert all(row["message"] and "custom_kernel" not in row["message"] for row in rows), rows
    assert case.says in rows[0]["message"], rows
    assert {key: rows[0][key] for key in case.facts} == case.facts, rows
    assert [row["verdict"] for row in rows[case.copies :]] == ["wrong_answer"] * (case.wrong is not None), rows
