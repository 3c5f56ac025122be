"""Settings of the process that a reference changes, when its file is run or when it is called."""

from __future__ import annotations

import pytest
import torch

from runner.extras.trainers.inside.judge.compare import Tolerance, compare
from tasks.harness.judge.own_settings import OwnSettings
from tasks.harness.judge.problem import Problem
from tests.acceptance.judging.forked_judges import ForkedJudges
from tests.acceptance.strangers.modules import judged, pair

_PRE = (
    "import decimal, gc, locale, logging, os, random, resource, signal, socket, sys, threading, warnings\n"
    "import numpy as np\n"
)
_SETTINGS = (
    "torch.set_default_device('meta')",
    "torch.set_default_device('cpu')",
    "torch.set_default_dtype(torch.float64)",
    "torch.set_default_dtype(torch.float16)",
    "torch.use_deterministic_algorithms(True)",
    "torch.set_num_threads(1)",
    "torch.set_printoptions(precision=1)",
    "torch.set_grad_enabled(False)",
    "torch.set_grad_enabled(True)",
    "torch.inference_mode().__enter__()",
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
    "torch.device('meta').__enter__()",
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
    "torch.set_num_interop_threads(1)",
    "resource.setrlimit(resource.RLIMIT_AS,(1<<31,1<<31))",
    "logging.disable()",
    "torch.multiprocessing.set_sharing_strategy('file_system')",
    "sys.set_int_max_str_digits(640)",
    "torch.utils.deterministic.__setattr__('fill_uninitialized_memory',True)",
)
#: With these the reference itself cannot work, or cannot be called twice.
_BROKEN = ("'meta'", "inference_mode", "interop")


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


@pytest.mark.parametrize("first", range(0, len(_SETTINGS), 6))
@pytest.mark.parametrize("where", ["file", "call"])
def test_settings_do_not_reach_the_judge(processes: ForkedJudges, first: int, where: str) -> None:
    """A copy is accepted, beside a candidate that sets nothing; or the reference is invalid with a sentence."""
    for setting in _SETTINGS[first : first + 6]:
        pre, forward = (f"{_PRE}{setting}\n", "") if where == "file" else (_PRE, f"{setting}\n")
        (row,) = judged(processes, *pair(f"{forward}return x.float() * 2", pre=pre), inputs=2)
        expected = {"accepted", *(["invalid"] if any(word in setting for word in _BROKEN) else [])}
        assert row["verdict"] in expected, (setting, row["message"], row)
