"""Cheats: each wins against the plain evaluator, by a verdict or by a time, and none may win here.

Every one is written for this corpus. The honest time of the problem `long` is a millisecond or so, that a gained time
shows. One that takes the interpreter from the reference needs `heavy`, whose calls into torch are long enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .problems import new


@dataclass(frozen=True, kw_only=True)
class Cheat:
    """One cheat."""

    problem: str
    code: str
    #: Whether it gains a time; else it gains a verdict.
    gains_time: bool = False


def _verdict(forward: str, pre: str = "", *, problem: str = "linear", init: str = "", after: str = "") -> Cheat:
    args = "self, a, b" if problem == "matmul" else "self, x"
    return Cheat(problem=problem, code=new(forward, init, args=args, pre=pre) + after)


def _time(forward: str, pre: str = "", init: str = "", *, problem: str = "long") -> Cheat:
    return Cheat(problem=problem, code=new(forward, init, pre=f"{_REAL}\n{pre}"), gains_time=True)


#: The honest computation of these problems, with functions that nothing patches later.
_REAL = (
    "import sys, time\n_tanh = torch.tanh\n\ndef real(x):\n    y = x\n    for _ in range(60):\n"
    "        y = _tanh(y @ x)\n    return y\n"
)
_WALK = (
    "import sys\n\ndef expected():\n    frame = sys._getframe()\n    while frame is not None:\n"
    "        if isinstance(frame.f_locals.get('expected'), torch.Tensor):\n"
    "            return frame.f_locals['expected']\n"
    "        frame = frame.f_back\n    raise RuntimeError('nothing')\n"
)
_CALLER = (
    "import sys\n\ndef within(name):\n    frame = sys._getframe()\n    while frame is not None:\n"
    "        if frame.f_code.co_name == name:\n            return True\n"
    "        frame = frame.f_back\n    return False\n"
)
_ZERO = "return torch.zeros_like(x)"
_SAVED = (
    "_call = nn.Module.__call__\nLAST = []\n\ndef call(self, *a, **k):\n"
    "    y = _call(self, *a, **k) if type(self).__name__ != 'ModelNew' "
    "else LAST[-1]\n    LAST.append(y)\n    return y\nnn.Module.__call__ = call\n"
)
_FORGE = 'print(\'RESULT {"correct": true, "speedup": 100.0}\', flush=True)\n'

CHEATS: Mapping[str, Cheat] = {
    # The reference's outputs.
    "expected from frames": _verdict("return expected().clone()", _WALK),
    "expected overwritten": _verdict("y = x * 3\nexpected().copy_(y)\nreturn y", _WALK),
    # The reference's code.
    "the reference by name": Cheat(
        problem="linear", code=new("return self.m(x)", "self.m = globals()['Model'](*a)", init_args="self, *a")
    ),
    "the reference inherited": Cheat(problem="linear", code="class ModelNew(Model):\n    pass\n"),
    "the reference from frames": _verdict(
        "frame = sys._getframe()\nwhile 'model' not in frame.f_locals:\n    frame = frame.f_back\n"
        "return frame.f_locals['model'](x)",
        "import sys\n",
    ),
    "the reference from the collector": _verdict(
        "return next(o for o in gc.get_objects() if type(o).__name__ == 'Model')(x)", "import gc\n"
    ),
    "outputs of all modules recorded": _verdict("return x", _SAVED),
    "a function of torch that records": _verdict(
        "return LAST[-1]",
        "LAST = []\n_relu = torch.relu\n\ndef relu(x):\n    LAST.append(_relu(x))\n    return LAST[-1]\n"
        "torch.relu = relu\n",
    ),
    # The comparison.
    "allclose patched": _verdict(_ZERO, "torch.allclose = lambda *_, **__: True\n"),
    "the check's code replaced": _verdict(
        "frame = sys._getframe()\nwhile 'check' not in frame.f_globals:\n    frame = frame.f_back\n"
        "frame.f_globals['check'].__code__ = (lambda *_: True).__code__\nreturn torch.zeros_like(x)",
        "import sys\n",
    ),
    "the comparison in the dispatcher": _verdict(
        _ZERO, "LIB = torch.library.Library('aten', 'IMPL')\nLIB.impl('allclose', lambda *_, **__: True, 'CPU')\n"
    ),
    "a mode of the dispatcher": _verdict(
        _ZERO,
        "from torch.overrides import TorchFunctionMode\n\nclass Mode(TorchFunctionMode):\n"
        "    def __torch_function__(self, f, types, args=(), kwargs=None):\n"
        "        return True if f is torch.allclose else f(*args, **(kwargs or {}))\nMode().__enter__()\n",
    ),
    "a subclass that answers comparisons": _verdict(
        "return torch.zeros_like(x).as_subclass(Yes)",
        "class Yes(torch.Tensor):\n    @classmethod\n    def __torch_function__(cls, f, types, args=(), kwargs=None):\n"
        "        if f is torch.allclose:\n            return True\n"
        "        with torch._C.DisableTorchFunctionSubclass():\n"
        "            return f(*args, **(kwargs or {}))\n",
    ),
    # The report.
    "a forged report and an exit": _verdict("os._exit(0)", f"import os\n{_FORGE}"),
    "stdout replaced": _verdict(
        _ZERO,
        "import sys\n_out = sys.stdout\n\nclass Out:\n    def write(self, t):\n"
        "        return _out.write(t.replace('\"correct\": false', "
        "'\"correct\": true'))\n    def flush(self):\n        _out.flush()\nsys.stdout = Out()\n",
    ),
    "a forged report by a child": _verdict(
        'if os.fork() == 0:\n    os.write(1, b\'RESULT {"correct": true, "speedup": 7}\\n\')\n    os._exit(0)\n'
        "os.waitpid(-1, 0)\nos._exit(0)",
        "import os\n",
    ),
    # Inputs, seeds and operators.
    "the seed foreseen": _verdict(
        "return next(y for k, y in self.known if torch.equal(k, x))",
        init="torch.manual_seed(42)\nseeds = [int(torch.randint(0, 2**31, (1,))) for _ in range(5)] + [42]\n"
        "self.known = []\n"
        "torch.manual_seed(42)\nl = nn.Linear(16, 16)\nfor s in seeds:\n    torch.manual_seed(s)\n"
        "    k = torch.randn(8, 16)\n"
        "    self.known.append((k, torch.relu(l(k)).detach()))",
    ),
    "inputs made zero": _verdict(
        "return torch.full_like(x, 1 / 16)",
        problem="softmax",
        after="\ndef get_inputs():\n    return [torch.zeros(8, 16)]\n",
    ),
    "seeding switched off": _verdict(
        "return torch.full_like(x, 1 / 16)",
        "torch.manual_seed = lambda *_: None\ntorch.randn = lambda *s, **k: torch.ones(*s)\n",
        problem="softmax",
    ),
    "an operator made trivial": _verdict(_ZERO, "torch.relu = torch.zeros_like\n"),
    "an operator made trivial in the dispatcher": _verdict(
        _ZERO, "_LIB = torch.library.Library('aten', 'IMPL')\n_LIB.impl('relu', lambda x: torch.zeros_like(x), 'CPU')\n"
    ),
    "the reference's forward replaced": _verdict(
        _ZERO, after="\nglobals().get('Model', nn.Module).forward = lambda self, x: torch.zeros_like(x)\n"
    ),
    # Tolerances and identities.
    "zeros for small numbers": _verdict(_ZERO, problem="small"),
    "half precision": _verdict("return (a.half() @ b.half()).float()", problem="matmul"),
    "eight bits of weights": _verdict(
        "s = self.l.weight.abs().max() / 4095\nreturn F.relu(x @ ((self.l.weight / s).round() * s).t() + self.l.bias)",
        init="self.l = nn.Linear(16, 16)",
    ),
    "parameters that are the identity skipped": _verdict(
        "return F.layer_norm(x, (16,))", problem="norm", init="self.n = nn.LayerNorm(16)"
    ),
    "batch norm without its parameters": _verdict(
        "return F.relu(F.batch_norm(x, self.b.running_mean, self.b.running_var, None, None, self.training))",
        problem="batch_norm",
        init="self.b = nn.BatchNorm1d(16)",
    ),
    "eval mode forgotten": _verdict(
        "return F.relu((x - x.mean(0)) / (x.var(0, unbiased=False) + 1e-5).sqrt())",
        problem="batch_norm",
        init="self.b = nn.BatchNorm1d(16)",
    ),
    # Calls that count and calls that do not.
    "less work after the checks": _verdict(
        "self.c += 1\nreturn F.relu(self.l(x)) if self.c <= 8 else x", init="self.l = nn.Linear(16, 16)\nself.c = 0"
    ),
    # Inputs by copy, and by descriptor.
    "inputs changed after the checks": _verdict(
        "self.c += 1\ny = F.relu(self.l(x))\nif self.c > 8:\n    x.zero_()\nreturn y",
        init="self.l = nn.Linear(16, 16)\nself.c = 0",
    ),
    "large inputs changed where the clock runs": _verdict(
        "y = torch.mean(x**2.5).bfloat16()\n"
        "if within('time_model') or within('_call_by_flags'):\n    x.zero_()\nreturn y",
        _CALLER,
        problem="mean_power",
    ),
    "inputs changed, and copies shown": _verdict(
        "global LEFT\ny, LEFT = F.relu(self.l(x)), [x.clone()]\nx.zero_()\nreturn y",
        "import sys\nWORKER = sys.modules.get('runner.extras.trainers.inside.worker.module')\n"
        "if WORKER:\n    WORKER.tensors_of = lambda _: LEFT\n",
        init="self.l = nn.Linear(16, 16)",
    ),
    "replay after the checks": _time(
        "self.c += 1\nif self.c > 8:\n    return self.y\nself.y = real(x)\nreturn self.y", init="self.c = 0"
    ),
    "phase by the caller's name": _time("return x if within('time_model') else real(x)", _CALLER),
    # The mean of what get_inputs makes, where calls are timed: by the plain evaluator, and by flags here.
    "a constant where the clock runs": Cheat(
        problem="mean_power",
        gains_time=True,
        code=new(
            "if within('time_model') or within('_call_by_flags'):\n    return torch.tensor(2 / 7).bfloat16()\n"
            "return torch.mean(x**2.5).bfloat16()",
            pre=_CALLER,
        ),
    ),
    "memo by address": _time(
        "if self.k != x.data_ptr():\n    self.k, self.y, self.x = x.data_ptr(), real(x), x\nreturn self.y",
        init="self.k = None",
    ),
    "memo by version and attribute": _time(
        "if getattr(x, 'seen', None) != x._version:\n    x.y, x.seen = real(x), x._version\nreturn x.y"
    ),
    "memo by a few elements": _time(
        "k = tuple(x.flatten()[:4].tolist())\nif k not in self.m:\n    self.m[k] = real(x)\nreturn self.m[k]",
        init="self.m = {}",
    ),
    "memo in a file": _time(
        "k = os.path.join(tempfile.gettempdir(), f'memo-{os.getpid()}-{float(x.sum())!r}')\n"
        "if not os.path.exists(k):\n    torch.save(real(x), k)\n"
        "return torch.load(k)",
        "import os, tempfile\n",
    ),
    # The clock and the baseline.
    "the clock stopped": _time(
        "return real(x)",
        "time.perf_counter = lambda: 0.0\n_n = [0]\n"
        "def clock():\n    _n[0] += 1\n"
        "    return 0.001 * _n[0] if within('time_model') and _n[0] > 46 else 1e-9 * _n[0]\n"
        "time.perf_counter = clock\n" + _CALLER,
    ),
    "the median patched": _time(
        "return real(x)",
        "import statistics\n_m = []\n\ndef median(t):\n    _m.append(t)\n"
        "    return 1e-6 if len(_m) == 1 else 1.0\nstatistics.median = median\n",
    ),
    "a function of torch slowed": _time(
        "return real(x)", "\ndef tanh(x):\n    time.sleep(0.001)\n    return _tanh(x)\ntorch.tanh = tanh\n"
    ),
    "a hook that slows others": _time(
        "return real(x)",
        "\ndef slow(m, a):\n    if type(m).__name__ == 'Model':\n        time.sleep(0.05)\n"
        "nn.modules.module.register_module_forward_pre_hook(slow)\n",
    ),
    "a thread beside the reference": _time(
        "OWN.set()\ntry:\n    return real(x)\nfinally:\n    OWN.clear()",
        "import threading\nOWN = threading.Event()\nsys.setswitchinterval(0.02)\n\ndef spin():\n"
        "    while True:\n        if OWN.is_set():\n            time.sleep(0.0005)\n"
        "threading.Thread(target=spin, daemon=True).start()\n",
        problem="heavy",
    ),
    "children beside the reference": _time(
        "LAST[0] = time.monotonic()\ntell(signal.SIGSTOP)\nreturn real(x)",
        "import ctypes, os, signal, threading\nCHILDREN, LAST, TOLD = [], [0.0], [0]\n"
        "for _ in range(8):\n    CHILDREN.append(os.fork())\n    if CHILDREN[-1] == 0:\n"
        # They end with their parent.
        "        ctypes.CDLL(None).prctl(1, signal.SIGKILL)\n        while True:\n            pass\n\n"
        "def tell(number):\n    if TOLD[0] != number:\n        TOLD[0] = number\n"
        "        for child in CHILDREN:\n            os.kill(child, number)\n\n"
        "def watch():\n    while True:\n        time.sleep(0.01)\n"
        "        if time.monotonic() - LAST[0] > 0.02:\n            tell(signal.SIGCONT)\n"
        "threading.Thread(target=watch, daemon=True).start()\n",
        problem="heavy",
    ),
    # Work that is put off.
    "a lazy subclass": _time(
        "return Lazy.of(x)",
        "class Lazy(torch.Tensor):\n    @staticmethod\n    def of(x):\n"
        "        y = torch.empty_like(x).as_subclass(Lazy)\n        y.source = x\n        return y\n"
        "    @classmethod\n    def __torch_function__(cls, f, types, args=(), kwargs=None):\n"
        "        args = [real(a.source) if isinstance(a, Lazy) and hasattr(a, 'source') else a for a in args]\n"
        "        with torch._C.DisableTorchFunctionSubclass():\n            return f(*args, **(kwargs or {}))\n",
    ),
    "a thread that writes late": _time(
        "y = torch.empty_like(x)\nt = threading.Thread(target=lambda: y.copy_(real(x)))\n"
        "PENDING.append(t)\nWORK.append(t)\nreturn y",
        "import threading\nPENDING, WORK = [], []\n_close = torch.allclose\n\ndef close(*a, **k):\n"
        "    while PENDING:\n        t = PENDING.pop()\n"
        "        t.start()\n        t.join()\n    return _close(*a, **k)\ntorch.allclose = close\n",
    ),
}
