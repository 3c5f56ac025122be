"""One worker per rank, joined by torch.distributed, and one rank checker beside each worker.

One call goes like this. The rank checkers make the inputs of their ranks. The judge's clock starts. Every worker gets
its inputs and says when it has opened them. All workers are told the same moment to begin at. They run the kernel and
say when they are done. Only then the judge fetches the outputs. The rank checkers copy them, and say when the clock
stops. So no rank waits for another to be told, and what a rank writes to another's output counts as
long as any kernel runs. The slowest rank's claim is the call's time. The rank checkers check the outputs.

A rank that fails or dies leaves the others inside a collective. They have a moment of grace. Then the rank to blame is
named, and a rank that has not answered by then cannot be asked again.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch

from tasks.harness.shared.arenas import Arena
from tasks.harness.shared.cores import judge_core, on_core
from tasks.harness.shared.profilers import Capture, Profile
from tasks.harness.shared.values import pack
from tasks.harness.shared.wire import MAX_FROM_WORKER_BYTES, Channel, Interrupted, PeerClosed, WireViolation, encode

from .calibration import calibrate
from .cases import Value
from .faults import Fault, died, ending_of, expect, flooded, tampered, too_late
from .gather import Reply, gather
from .hand_over import Calibration
from .problem import Problem, TaskFault
from .rank_checkers import Answers, RankCheckers, named
from .request import Compiled
from .sched_delay import SchedDelay
from .snapshots import claimed, needed
from .worker_client import PROFILE_BYTES, SPIN_NS, profile_message, profile_of
from .worker_output import Collector
from .workers import Call

#: Time from the last worker's "opened" to the common start. The judge sends the start to all workers meanwhile.
_LEAD_NS = 100_000
_LEAD_PER_RANK_NS = 25_000
#: Time after the time limit for the ranks' stall reporters to report.
_STALL_REPORT_NS = 1_000_000_000
#: Answers that a worker may send before the expected one.
_UNASKED = {"returned": ("stuck",)}
#: Characters of one rank's stall report.
_MAX_PLACE = 200


@dataclass(kw_only=True)
class _RankInputs:
    """The inputs of one rank: where they lie, and their size."""

    message: Mapping[str, Any]
    fd: int
    nbytes: int
    tensors: int
    shape: str = ""


@dataclass(kw_only=True)
class _Run:
    """One call: the workers' answers and the judge's clock."""

    trees: list[object]
    claims_ns: tuple[int, ...]
    output_arenas: list[Arena]
    start_ns: int
    #: See Call.
    delayed_ns: int | None


class MultiRank:
    """One worker per rank; see `Workers`."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        checkers: Sequence[socket.socket],
        collector: Collector,
        *,
        device: str,
        memory_bytes: int,
    ) -> None:
        """`sockets`: to the workers, by rank. `checkers`: to as many rank checkers."""
        self._channels = [
            Channel(sock, max_bytes=MAX_FROM_WORKER_BYTES, accept_descriptors=False, wake_fd=collector.wake_fd)
            for sock in sockets
        ]
        self._collector = collector
        self._device = device
        self._world_size = len(sockets)
        self._memory_bytes = memory_bytes // len(sockets)
        self._lead_ns = _LEAD_NS + _LEAD_PER_RANK_NS * len(sockets)
        self._core = judge_core()
        self._sched_delay = SchedDelay()
        self._spin_ns = SPIN_NS if self._core is not None else 0
        self._checkers = RankCheckers(checkers)
        self._joined = False
        self._device_order = b""
        self._waited_ns = 0
        self._waiting_cpu_ns = 0
        #: Of the last call: the type of a returned object that is no tensor data, by rank.
        self._opaque: Mapping[int, str] = {}

    @property
    def waited_ns(self) -> int:
        """See Workers."""
        return self._waited_ns

    @property
    def judging_ns(self) -> int:
        """See Workers."""
        return time.thread_time_ns() - self._waiting_cpu_ns + self._checkers.used_ns

    def prepare(self, files: Mapping[str, str], directory: Path, *, deadline_ns: int) -> None:
        """See Workers."""
        Problem.unpack(files, directory)
        meeting = directory / f".meeting-{secrets.token_hex(8)}"
        common = {"world_size": self._world_size, "device": self._device}
        begin = common | {
            "op": "begin",
            "memory_bytes": self._memory_bytes,
            "directory": str(directory),
            "meeting": str(meeting),
        }
        # A page with each message.
        messages = [encode(begin | {"rank": rank}, descriptors=1) for rank in self._ranks()]
        self._checkers.begin(messages, deadline_ns=deadline_ns)
        # The interpreters of workers and rank checkers may still be starting.
        for rank in self._ranks():
            self._tell(rank, encode(common | {"op": "enroll", "rank": rank}), deadline_ns)
        for answer in self._listen("enrolled", deadline_ns).values():
            self._sched_delay.watch(answer["pid"])
        self._checkers.hear("ready", deadline_ns=deadline_ns)

    def probe(self, *, deadline_ns: int) -> int:
        """See Workers."""
        return self._calibration_call((0, torch.zeros(64, dtype=torch.uint8), 64), 64, deadline_ns)[0]

    def calibrate(self, *, deadline_ns: int) -> Calibration:
        """See Workers."""
        costs = calibrate(
            lambda value, output_capacity: self._calibration_call(value, output_capacity, deadline_ns),
            most_bytes=self._memory_bytes // 8,
            ranks=self._world_size,
            lead_ns=self._lead_ns,
        )
        return Calibration(message=costs)

    def begin_device(self, *, flush_bytes: int | None, deadline_ns: int, tried: bool) -> None:  # noqa: ARG002 not yet
        """See Workers. The workers have to meet before."""
        self._device_order = encode({"op": "prepare_device", "flush_bytes": flush_bytes, "tried": tried})

    def prepare_device(self, device: str, *, deadline_ns: int) -> tuple[None, str]:  # noqa: ARG002 for one device
        """See Workers."""
        for rank in self._ranks():
            self._tell(rank, self._device_order, deadline_ns)
        self._listen("device_prepared", deadline_ns)
        return None, "calls of several ranks begin together, by the clock"

    def control(self, cases: object, count: int, *, like: Call, kernel_ns: int, deadline_ns: int) -> None:
        """See Workers."""

    def load(
        self, files: Mapping[str, str], submission: str, *, deadline_ns: int, compiled: Compiled | None = None
    ) -> None:
        """See Workers. Rank 0 loads first and alone: it writes the files and builds. The others find all built."""
        if compiled is not None:
            raise TaskFault("a compiled submission has one device: ranks meet through torch.distributed")
        for first, ranks in ((True, [0]), (False, list(self._ranks())[1:])):
            message = encode({"op": "load", "files": dict(files) if first else {}, "submission": submission})
            for rank in ranks:
                self._tell(rank, message, deadline_ns)
            self._listen("loaded", deadline_ns, ranks=ranks)

    def settle(self, *, deadline_ns: int) -> None:
        """See Workers. The ranks join a new process group, at first and after each call that went wrong."""
        if not self._joined:
            self._ask({"op": "join", "meeting": f".meeting-{secrets.token_hex(8)}"}, "joined", deadline_ns)
            self._joined = True

    def flush(self, *, deadline_ns: int) -> None:
        """See Workers."""
        self._ask({"op": "flush"}, "flushed", deadline_ns)

    def call(
        self,
        arguments: Mapping[str, Value],
        *,
        rng_seed: int | None,
        output_capacities: tuple[int, ...],
        deadline_ns: int,
    ) -> Call:
        """See Workers."""
        with ExitStack() as stack:
            rank_inputs = self._prepared(arguments, rng_seed, deadline_ns, stack)
            run = self._hand_over(rank_inputs, output_capacities or (0,) * self._world_size, deadline_ns, stack)
            taken = self._taken(run, deadline_ns)
        self._opaque = {rank: answer["opaque"] for rank, answer in taken.items() if answer["opaque"] is not None}
        return Call(
            shape=tuple(rank_input.shape for rank_input in rank_inputs),
            claims_ns=run.claims_ns,
            output_capacities=tuple(taken[rank]["output_bytes"] for rank in self._ranks()),
            outside_ns=_ended_ns(taken) - run.start_ns,
            delayed_ns=run.delayed_ns,
            tensors=sum(rank_input.tensors for rank_input in rank_inputs),
            input_bytes=sum(rank_input.nbytes for rank_input in rank_inputs),
        )

    def check(self, *, deadline_ns: int) -> str:
        """See Workers."""
        for rank, kind in sorted(self._opaque.items()):
            raise Fault(
                "wrong_answer", f"custom_kernel returned a {kind}, which cannot be read as tensor data"
            ).of_rank(rank)
        return self._checkers.check(deadline_ns=deadline_ns)

    def profile(
        self,
        arguments: Mapping[str, Value],
        *,
        rng_seed: int | None,
        capture: Capture | None,  # noqa: ARG002 for a single rank
        deadline_ns: int,
    ) -> tuple[Profile, ...]:
        """See Workers."""
        with ExitStack() as stack:
            rank_inputs = self._prepared(arguments, rng_seed, deadline_ns, stack)
            self._open(rank_inputs, deadline_ns)
            output_arenas = [stack.enter_context(Arena.create(PROFILE_BYTES)) for _ in rank_inputs]
            for rank, output_arena in enumerate(output_arenas):
                message = encode(profile_message(output_arena, None, deadline_ns), descriptors=1)
                self._tell(rank, message, deadline_ns, (output_arena.fd,))
            answers = self._listen("profiled", deadline_ns)
            return tuple(profile_of(answers[rank], output_arena) for rank, output_arena in enumerate(output_arenas))

    def close(self) -> None:
        """End the rank checkers."""
        self._checkers.close()

    # -- one call --------------------------------------------------------------------------------------------------

    def _prepared(
        self, arguments: Mapping[str, Value], rng_seed: int | None, deadline_ns: int, stack: ExitStack
    ) -> list[_RankInputs]:
        """Every rank's inputs, in arenas whose descriptors the stack closes."""
        # One seed for all, so that data that a task draws for all ranks is the same on each.
        seed = secrets.randbits(32) if rng_seed is None else rng_seed
        message = {"op": "prepare", "arguments": dict(arguments), "rng_seed": seed}
        rank_inputs: list[_RankInputs] = []
        for _, answer in sorted(self._checkers.ask(message, "prepared", deadline_ns=deadline_ns).items()):
            stack.callback(os.close, answer["fd"])
            rank_inputs.append(
                _RankInputs(
                    message={key: answer[key] for key in ("tree", "storages", "size")},
                    fd=answer["fd"],
                    nbytes=answer["nbytes"],
                    tensors=answer["tensors"],
                    shape=answer["shape"],
                )
            )
        return rank_inputs

    def _hand_over(
        self, rank_inputs: Sequence[_RankInputs], output_capacities: Sequence[int], deadline_ns: int, stack: ExitStack
    ) -> _Run:
        """Make the call on every rank."""
        output_arenas = [stack.enter_context(Arena.create(nbytes)) for nbytes in output_capacities]
        for output_arena in output_arenas:
            output_arena.poison()
        for rank, output_arena in enumerate(output_arenas):
            self._tell(
                rank, encode({"op": "arm", "size": output_arena.size}, descriptors=1), deadline_ns, (output_arena.fd,)
            )
        self._listen("armed", deadline_ns)
        with on_core(self._core):
            # The first inputs leave with the next message and not before, so nothing can be computed early.
            before = self._sched_delay.total_ns()
            start = time.perf_counter_ns()
            self._open(rank_inputs, deadline_ns)
            at = time.perf_counter_ns() + self._lead_ns
            left = max(0, deadline_ns - time.monotonic_ns())
            go = {"op": "go", "at_ns": at, "until_ns": at + left}
            # A little more than the time limit, so that every rank can say where it is.
            returned = self._ask(go, "returned", deadline_ns + _STALL_REPORT_NS)
            answers = self._ask({"op": "deliver"}, ("done", "need"), deadline_ns)
            short = [rank for rank, answer in answers.items() if answer["op"] == "need"]
            for rank in short:
                with self._of_rank(rank):
                    nbytes = needed(
                        answers[rank], input_bytes=rank_inputs[rank].nbytes, memory_bytes=self._memory_bytes
                    )
                output_arenas[rank] = stack.enter_context(Arena.create(nbytes))
                output_arenas[rank].poison()
                message = encode({"op": "output_arena", "size": output_arenas[rank].size}, descriptors=1)
                self._tell(rank, message, deadline_ns, (output_arenas[rank].fd,))
            if short:
                answers |= self._listen("done", deadline_ns, ranks=short)
        claims = []
        for rank in self._ranks():
            with self._of_rank(rank):
                claims.append(claimed(returned[rank]))
        return _Run(
            trees=[answers[rank].get("tree") for rank in self._ranks()],
            claims_ns=tuple(claims),
            output_arenas=output_arenas,
            start_ns=start,
            delayed_ns=self._sched_delay.since(before),
        )

    def _open(self, rank_inputs: Sequence[_RankInputs], deadline_ns: int) -> None:
        encoded = [encode({"op": "open", **rank_input.message}, descriptors=1) for rank_input in rank_inputs]
        for rank, rank_input in enumerate(rank_inputs):
            self._tell(rank, encoded[rank], deadline_ns, (rank_input.fd,))
        self._listen("opened", deadline_ns, spin_ns=self._spin_ns)

    def _taken(self, run: _Run, deadline_ns: int) -> Answers:
        messages = []
        for rank, (tree, output_arena) in enumerate(zip(run.trees, run.output_arenas, strict=True)):
            with self._of_rank(rank):
                messages.append(_passed_on(tree, output_arena))
        descriptors = [output_arena.fd for output_arena in run.output_arenas]
        self._checkers.tell(messages, descriptors, deadline_ns=deadline_ns)
        return self._checkers.hear("taken", deadline_ns=deadline_ns)

    def _calibration_call(self, value: tuple[object, ...], output_capacity: int, deadline_ns: int) -> tuple[int, int]:
        """One call of the calibration kernel on every rank: span and slowest claim."""
        packed = pack(value)
        with ExitStack() as stack:
            rank_inputs = []
            for _ in self._ranks():
                placed, size = packed.place()
                arena = stack.enter_context(Arena.create(size))
                packed.write(arena, placed)
                rank_inputs.append(
                    _RankInputs(
                        message=packed.message(placed, arena.size),
                        fd=arena.fd,
                        nbytes=packed.nbytes,
                        tensors=packed.tensors,
                    )
                )
            run = self._hand_over(rank_inputs, (output_capacity,) * self._world_size, deadline_ns, stack)
            taken = self._taken(run, deadline_ns)
        return _ended_ns(taken) - run.start_ns, max(run.claims_ns)

    # -- the workers -----------------------------------------------------------------------------------------------

    def _ranks(self) -> range:
        return range(self._world_size)

    @contextlib.contextmanager
    def _of_rank(self, rank: int) -> Iterator[None]:
        """Name the rank in whatever fault is raised inside; its channel says too much or too little to go on."""
        try:
            yield
        except Fault as fault:
            raise fault.of_rank(rank, gone=True) from fault

    def _ask(self, message: Mapping[str, Any], expected: str | tuple[str, ...], deadline_ns: int) -> Answers:
        """Say the same to all and hear what each one answers."""
        encoded = encode(message)
        for rank in self._ranks():
            self._tell(rank, encoded, deadline_ns)
        return self._listen(expected, deadline_ns, spin_ns=self._spin_ns)

    def _tell(self, rank: int, message: bytes, deadline_ns: int, descriptors: tuple[int, ...] = ()) -> None:
        try:
            self._channels[rank].send(message, descriptors, deadline_ns=deadline_ns)
        except (PeerClosed, Interrupted) as error:
            raise self._dead(rank) from error
        except TimeoutError as error:
            raise too_late(f"{named([rank])} did not listen") from error

    def _listen(
        self,
        expected: str | tuple[str, ...],
        deadline_ns: int,
        *,
        ranks: Sequence[int] | None = None,
        spin_ns: int = 0,
    ) -> Answers:
        """One answer of each rank."""
        asked = list(self._ranks() if ranks is None else ranks)
        ops = (expected,) if isinstance(expected, str) else expected
        start, began_ns = time.monotonic_ns(), time.thread_time_ns()
        heard = gather(
            [self._channels[rank] for rank in asked],
            good=lambda message: message["op"] in ops,
            deadline_ns=deadline_ns,
            wake_fd=self._collector.wake_fd,
            spin_ns=spin_ns,
        )
        self._waited_ns += time.monotonic_ns() - start
        self._waiting_cpu_ns += time.thread_time_ns() - began_ns
        answers = {asked[one.index]: one.message for one in heard if one.error is None}
        if self._collector.flooded:
            raise flooded()
        if len(answers) < len(asked) or any(answer["op"] not in ops for answer in answers.values()):
            self._joined = False
            self._blame(asked, heard, ops)
        return answers

    def _blame(self, asked: Sequence[int], heard: Sequence[Reply], ops: tuple[str, ...]) -> NoReturn:
        """Blame, in order: protocol violation, death, first exception, timeout."""
        silent = [rank for index, rank in enumerate(asked) if index not in {one.index for one in heard}]
        faults = list(_faults(asked, heard, ops))
        for fault in faults:
            if fault.verdict == "rejected":
                raise fault
        gone = [asked[one.index] for one in heard if isinstance(one.error, PeerClosed)]
        if gone or self._collector.worker_exit is not None:
            raise self._dead((gone or silent or asked)[0])
        stuck = {asked[one.index]: one.message for one in heard if one.message.get("op") == "stuck"}
        if faults:
            raise Fault(faults[0].verdict, faults[0].message, gone=bool(silent), trace=faults[0].trace)
        if stuck:
            raise too_late(_places(stuck, silent))
        others = f", {named([rank for rank in asked if rank not in silent])} had" if len(silent) < len(asked) else ""
        raise too_late(f"{named(silent)} had not answered{others}")

    def _dead(self, rank: int) -> Fault:
        """How the first dead worker ended. `rank`: a closed channel's, for when init says nothing."""
        fault = died(self._collector)
        ended = self._collector.worker_exit
        if ended is None or fault.output_limit:
            return fault if fault.output_limit else fault.of_rank(rank)
        return ending_of(ended).of_rank(ended.rank)


def _faults(asked: Sequence[int], heard: Sequence[Reply], ops: tuple[str, ...]) -> Iterator[Fault]:
    """The faults in the messages, in the order of arrival."""
    for one in heard:
        try:
            if isinstance(one.error, WireViolation):
                raise tampered(str(one.error))
            if one.error is None and one.message["op"] not in (*ops, *_UNASKED.get(ops[0], ())):
                expect(one.message, ops[0])
        except Fault as fault:
            yield fault.of_rank(asked[one.index])


def _ended_ns(taken: Answers) -> int:
    """When the call was over for the last rank checker."""
    return max(int(answer["ended_ns"]) for answer in taken.values())


def _passed_on(tree: object, output_arena: Arena) -> bytes:
    """A worker's description of its output, for the rank checker. What arrived as JSON may not be sendable: a Fault."""
    try:
        return encode({"op": "take", "tree": tree, "size": output_arena.size}, descriptors=1)
    except (ValueError, RecursionError) as error:
        raise tampered(f"an output that cannot be described: {type(error).__name__}") from error


def _places(stuck: Mapping[int, Mapping[str, Any]], silent: Sequence[int]) -> str:
    """Where the ranks were at the time limit, by their own word. Ranks that did not wait for others come first."""
    answers = sorted(stuck.items(), key=lambda item: (item[1].get("waits") is True, item[0]))
    texts = ((rank, str(message.get("text"))[:_MAX_PLACE]) for rank, message in answers)
    places = [f"rank {rank} {''.join(filter(str.isprintable, text))}" for rank, text in texts]
    return "; ".join([*([f"{named(silent)} had not answered"] if silent else []), *places])
