"""Hosts one PyTorch module in a worker: a candidate's, or the reference's where its calls are timed.

The judge's orders come as inputs of calls, like those of a kernel, so they use the same wire, arenas and clock. Every
order is a dict with the key `do`:

    construct  {args, kwargs, seed, device, dtype, baseline}  seeds all generators, makes the module -> {state, lazy}
               state: name, shape and dtype of every entry of its state_dict that has a shape; lazy: whether others
               have none yet; baseline: eager, compile (torch.compile), tf32 (matrix products in TF32), graphs (replays
               of CUDA graphs)
    fill       {args, seed}                 one call, which gives lazy entries their shapes -> {state, lazy}
    limit      {bytes}                      lets this process have so much more memory of its own, and no more -> None
    state      {state}                      copies tensors into the module's own, in place -> None
    mode       {eval}                       eval(), or back to the mode of construction, module by module -> None
    call       {args, seed, generators}     one call -> what the module returned
               seed: an int64 tensor, or null where generators is empty; generators: names of those that it seeds
    left       {}                           -> the tensors of the last call's args, as the call left them

Other seeds are int64 tensors, for all generators. The candidate's code shares this process, so nothing here decides
anything.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import torch

from runner.extras.trainers.inside.shared import paritybench
from runner.extras.trainers.inside.shared.module_values import decode_value, has_lazy_parts, loadable_state, plain
from runner.extras.trainers.inside.shared.own_memory import limit_memory
from tasks.harness.shared import torch_headers
from tasks.harness.shared.generators import seed_all, seed_some
from tasks.harness.shared.source import compile_text
from tasks.harness.shared.values import tensors_of
from tasks.harness.worker.submission import LoadFailed, Submission

_FILE = "candidate.py"


def parse(code: str) -> CodeType:
    """Compile a candidate's text, without running any of it.

    Raises:
        SyntaxError: it is no Python.
    """
    return compile_text(code, _FILE)


def load_module(code: str, entry_points: list[str]) -> Submission:
    """Run a candidate's file and find its class. What the file raises passes through.

    Raises:
        LoadFailed: it defines no class of these names.
    """
    # Compilers and inspect look for the source of functions in the file.
    data, directory = code.encode("utf-8"), Path.cwd()
    (directory / _FILE).write_bytes(data)
    sys.path.insert(0, str(directory))
    paritybench.install()
    torch_headers.prepare()
    module = ModuleType("candidate")
    module.__file__ = str(directory / _FILE)
    sys.modules["candidate"] = module
    exec(compile_text(data, module.__file__), module.__dict__)  # noqa: S102 that is what this process is for
    for name in entry_points:
        kind = module.__dict__.get(name)
        if callable(kind):
            # Arguments are decoded before the timed span.
            host = Host(kind)
            return Submission(kernel=host.answer, adapt=host.read, file=_FILE)
    raise LoadFailed(f"the candidate defines no class {' or '.join(entry_points)}")


class Host:
    """A class, and the module that is made of it."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make
        #: As it was made, and as it is called.
        self._plain: Any = None
        self._module: Any = None
        #: Each module of it, and whether it was made in train mode.
        self._modes: list[tuple[torch.nn.Module, bool]] = []
        #: Arguments of the last call. Here until the next order is read, since freeing them takes time.
        self._args: Any = ()
        self._orders: Mapping[str, Callable[[dict[str, Any]], object]] = {
            "construct": self._construct,
            "fill": self._fill,
            "limit": self._limit,
            "state": self._load_state,
            "mode": self._set_mode,
            "left": self._left,
        }

    def read(self, order: Any) -> Any:
        """Decode an order, before it is carried out and before the clock runs."""
        order = decode_value(order)
        if order["do"] == "call":
            self._args = order["args"]
        return order

    def answer(self, order: dict[str, Any]) -> object:
        """Carry out one order; see the module."""
        if order["do"] == "call":
            # All of this is inside the timed span, on both sides alike, and a candidate could leave it out: what it
            # may take is in the interval of a speed-up (`side.skippable_ns`).
            if order["seed"] is not None:
                seed_some(order["generators"], int(order["seed"]))
            output = self._module(*order["args"])
            return output if type(output) is torch.Tensor else plain(output)
        return self._orders[order["do"]](order)

    def _construct(self, order: dict[str, Any]) -> object:
        self._plain = self._module = None
        seed_all(int(order["seed"]))
        with torch.no_grad():
            module = self._make(*order["args"], **order["kwargs"])
        # For all calls. The file had gradients, unless it asked for none.
        torch.set_grad_enabled(False)
        if not callable(module):
            raise TypeError(f"the class makes a {type(module).__name__}, which cannot be called")
        device, dtype = order["device"], order["dtype"]
        if isinstance(module, torch.nn.Module):
            module = module.to(device=device) if dtype is None else module.to(device=device, dtype=dtype)
        self._plain, self._module = module, _BASELINES[order["baseline"]](module)
        self._modes = (
            [(part, part.training) for part in module.modules()] if isinstance(module, torch.nn.Module) else []
        )
        return self._describe()

    def _fill(self, order: dict[str, Any]) -> object:
        seed_all(int(order["seed"]))
        self._module(*order["args"])
        return self._describe()

    def _describe(self) -> object:
        shapes = [[name, list(item.shape), str(item.dtype)] for name, item in loadable_state(self._plain).items()]
        return {"state": shapes, "lazy": has_lazy_parts(self._plain)}

    def _limit(self, order: dict[str, Any]) -> None:
        limit_memory(order["bytes"])

    def _load_state(self, order: dict[str, Any]) -> None:
        # Asked for anew: a call may have given a name another tensor (`self.mean = 0.9 * self.mean + ...`), or none.
        with torch.no_grad():
            for name, item in loadable_state(self._plain).items():
                if name in order["state"]:
                    # In place: the version counter rises, which tells honest caches of folded weights.
                    item.copy_(order["state"][name])

    def _set_mode(self, order: dict[str, Any]) -> None:
        if isinstance(self._module, Graphed):
            self._module.forget()
        if order["eval"] and hasattr(self._module, "eval"):
            self._module.eval()
        elif not order["eval"]:
            for module, train in self._modes:
                module.training = train

    def _left(self, _: dict[str, Any]) -> object:
        args, self._args = self._args, ()
        return tensors_of(args)


class Graphed:
    """A module whose calls replay a CUDA graph. The first call with inputs of other shapes or dtypes captures one."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._graphs: dict[object, tuple[Any, list[torch.Tensor], Any]] = {}

    def eval(self) -> None:
        """Put the module into eval mode."""
        self._module.eval()

    def forget(self) -> None:
        """Drop all graphs: the next call does something else."""
        self._graphs.clear()

    def __call__(self, *args: Any) -> Any:
        """The module's output."""
        tensors = tensors_of(args)
        kind = tuple((item.shape, item.dtype) for item in tensors)
        if kind not in self._graphs:
            self._graphs[kind] = self._capture(args)
        graph, own, output = self._graphs[kind]
        for place, item in zip(own, tensors, strict=True):
            place.copy_(item)
        graph.replay()
        return output

    def _capture(self, args: Any) -> tuple[Any, list[torch.Tensor], Any]:
        own = copy.deepcopy(args)
        stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch lacks it
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            # As torch's manual asks: what a library sets up at its first calls must not be in the graph.
            for _ in range(3):
                self._module(*own)
        torch.cuda.current_stream().wait_stream(stream)
        graph: Any = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output = self._module(*own)
        return graph, tensors_of(own), output


def _with_tf32(module: Any) -> Any:
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    return module


_BASELINES: Mapping[str, Callable[[Any], Any]] = {
    "eager": lambda module: module,
    "compile": torch.compile,
    "tf32": _with_tf32,
    "graphs": Graphed,
}
