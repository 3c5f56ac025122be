"""The trusted side of one rank: makes its inputs, keeps them, copies its output, and checks it.

The functions of a task of several ranks know one rank. generate_input takes `rank`; check_implementation may run a
reference that uses torch.distributed. So the judge has one rank checker per rank, a process with the judge's uid. The
rank checkers are a process group of their own. They join it before any worker has the submission, and accept no
connection afterwards. A rank checker decides nothing, and sees only the outputs of the workers.

Messages on the socket in KR_RANK_CHECKER_FD. Beside these answers, each may be `task_fault {text}` or
`fault {verdict, text, gone}`:

    begin     {rank, world_size, device, memory_bytes, directory, meeting} -> ready     descriptor: its page
    prepare   {arguments, rng_seed} -> prepared {tree, storages, size, nbytes, tensors, shape}   descriptor: inputs
    take      {tree, size}          -> taken {ended_ns, output_bytes, opaque}                descriptor: output arena
    check     {}                    -> checked {good, text} | raised {text}
    structure {}                    -> structured {same}
"""

from __future__ import annotations

import hashlib
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The same as in the judge: the reference's threads must not go on spinning while the submission is timed.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch

from tasks.harness.shared.arenas import Arena
from tasks.harness.shared.process_groups import become_rank, close_listeners, join_group
from tasks.harness.shared.values import Packed, Placed, Snapshot, signature, tree_signature
from tasks.harness.shared.wire import MAX_FROM_JUDGE_BYTES, Channel, PeerClosed, encode

from .accelerator import OUT_OF_MEMORY, DeviceFull, expect_others, held_by_others, require_device
from .author_code import open_page
from .cases import Value
from .faults import Fault
from .problem import CheckRaised, Problem, TaskFault, guard_heap, scramble
from .snapshots import take

Answer = tuple[dict[str, Any], tuple[int, ...]]


@dataclass(kw_only=True)
class _Call:
    """The inputs and the output of the last call."""

    arguments: Mapping[str, Value]
    rng_seed: int
    data: object
    packed: Packed
    placed: Sequence[Placed]
    inputs: Arena
    output: Snapshot | None = None


class RankChecker:
    """Answers the judge's messages for one rank."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._memory_bytes = 0
        self._rank = 0
        self._problem: Problem
        self._call: _Call | None = None

    def serve(self) -> None:
        """Answer until the judge is gone."""
        handlers: Mapping[str, Callable[[dict[str, Any], Sequence[int]], Answer]] = {
            "begin": self._begin,
            "prepare": self._prepare,
            "take": self._take,
            "check": self._check,
            "structure": self._structure,
        }
        while True:
            message, descriptors = self._channel.receive()
            began_ns = time.process_time_ns()
            try:
                answer, sent = handlers[message["op"]](message, descriptors)
            except TaskFault as fault:
                answer, sent = {"op": "task_fault", "text": str(fault)}, ()
            except OUT_OF_MEMORY as error:
                answer, sent = _out_of_memory(error), ()
            except Fault as fault:
                answer, sent = (
                    {"op": "fault", "verdict": fault.verdict, "text": fault.message, "gone": fault.gone},
                    (),
                )
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)
            answer = {**answer, "used_ns": time.process_time_ns() - began_ns}
            self._channel.send(encode(answer, descriptors=len(sent)), sent)
            for descriptor in sent:
                os.close(descriptor)

    def _begin(self, message: dict[str, Any], descriptors: Sequence[int]) -> Answer:
        open_page(os.dup(descriptors[0]))
        self._rank, self._memory_bytes = message["rank"], message["memory_bytes"]
        place = {key: message[key] for key in ("rank", "world_size", "device")}
        become_rank(**place)
        # Start torch's threads now: later the submission may have used up the container's processes.
        torch.ones(1 << 20).add_(1)
        require_device(message["device"])
        if message["device"] != "cpu":
            expect_others()
        join_group(Path(message["meeting"]), **place)
        self._problem = Problem.load(Path(message["directory"]))
        # The workers share the loopback device: no process may join the group later.
        close_listeners()
        return {"op": "ready"}, ()

    def _prepare(self, message: dict[str, Any], _: Sequence[int]) -> Answer:
        # Before the next inputs are made: both together may not fit into memory.
        self._call = None
        arguments: dict[str, Value] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in message["arguments"].items()
        }
        arguments["rank"] = self._rank
        data = self._problem.generate(arguments, rng_seed=message["rng_seed"])
        packed = self._problem.pack(data, memory_bytes=self._memory_bytes)
        placed, size = packed.place()
        inputs = Arena.create(size)
        packed.write(inputs, placed)
        self._call = _Call(
            arguments=arguments,
            rng_seed=message["rng_seed"],
            data=data,
            packed=packed,
            placed=placed,
            inputs=inputs,
        )
        shape = hashlib.sha256(repr(tree_signature(packed)).encode()).hexdigest()
        answer = {
            "op": "prepared",
            **packed.message(placed, inputs.size),
            "nbytes": packed.nbytes,
            "tensors": packed.tensors,
            "shape": shape,
        }
        descriptor = inputs.fd
        inputs.forget()
        return answer, (descriptor,)

    def _take(self, message: dict[str, Any], descriptors: Sequence[int]) -> Answer:
        # A calibration has no inputs of a task.
        call = self._call
        output_arena = Arena(descriptors[0], message["size"])
        output_arena.forget()
        taken = take(
            message["tree"],
            inputs=output_arena if call is None else call.inputs,
            placed=() if call is None else call.placed,
            output_arena=output_arena,
            input_bytes=0 if call is None else call.packed.nbytes,
            memory_bytes=self._memory_bytes,
        )
        if call is not None:
            call.output = taken.output
        return {
            "op": "taken",
            "ended_ns": taken.ended_ns,
            "output_bytes": taken.output_bytes,
            "opaque": taken.output.opaque,
        }, ()

    def _check(self, _: dict[str, Any], __: Sequence[int]) -> Answer:
        try:
            good, text = self._problem.check(self._last.data, self._output.value())
        except CheckRaised as raised:
            return {"op": "raised", "text": str(raised)}, ()
        return {"op": "checked", "good": good, "text": text}, ()

    def _structure(self, _: dict[str, Any], __: Sequence[int]) -> Answer:
        """Whether the output has the structure of the reference's.

        All rank checkers are asked: the reference of one would wait for the others for ever.
        """
        call = self._last
        expected = self._problem.expected(self._problem.generate(call.arguments, rng_seed=call.rng_seed))
        same = self._output.has_tensor if expected is None else signature(expected) == self._output.signature
        return {"op": "structured", "same": same}, ()

    @property
    def _last(self) -> _Call:
        if self._call is None:
            raise RuntimeError("no inputs have been made")
        return self._call

    @property
    def _output(self) -> Snapshot:
        if self._last.output is None:
            raise RuntimeError("no output has been taken")
        return self._last.output


def _out_of_memory(error: Exception) -> dict[str, Any]:
    """Whose fault it is that memory of the device was missing."""
    held = str(error) if isinstance(error, DeviceFull) else held_by_others()
    if held is None:
        return {"op": "task_fault", "text": f"the judge needs more memory than the device has: {error}"}
    # The references of the other ranks may wait for this one, so the ranks cannot go on.
    return {"op": "fault", "verdict": "memory_limit", "text": held, "gone": True}


def main() -> int:
    """Entry point: serve the judge at KR_RANK_CHECKER_FD until it is gone."""
    guard_heap()
    scramble()
    descriptor = int(os.environ.pop("KR_RANK_CHECKER_FD"))
    os.set_inheritable(descriptor, False)
    channel = Channel(
        socket.socket(fileno=descriptor), max_bytes=MAX_FROM_JUDGE_BYTES, accept_descriptors=True, wake_fd=None
    )
    code = 0
    try:
        RankChecker(channel).serve()
    except PeerClosed:
        pass
    except Exception:  # noqa: BLE001 the harness boundary: the judge sees the line end, and says what stands on stderr
        traceback.print_exc()
        code = 1
    # Threads of gloo, NCCL and the task may still run, and would keep the interpreter from ending.
    sys.stderr.flush()
    os._exit(code)
