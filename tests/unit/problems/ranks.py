"""Ranks for the tasks that need several: processes that stay, in one gloo group, and run a task's files."""

from __future__ import annotations

import io
import multiprocessing
import os
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.unit.problems.bench import Bench, reseeded

WORLD_SIZE = 2
#: Nothing here takes longer; a collective that waits for a rank that failed would.
PATIENCE_S = 60.0

Verdicts = list[list[tuple[bool, str]]]


class Ranks:
    """The processes. Close it, or use it as a fixture."""

    def __init__(self, meeting: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self._lines: list[Connection] = []
        self._processes = []
        for rank in range(WORLD_SIZE):
            mine, its = context.Pipe()
            process = context.Process(target=_serve, args=(rank, str(meeting), its), daemon=True)
            process.start()
            its.close()
            self._lines.append(mine)
            self._processes.append(process)

    def judge(self, bench: Bench, source: str, cases: Sequence[dict[str, Any]]) -> Verdicts:
        """Run a submission on every case, after a call with other data of the same shape: verdicts by case and rank."""
        return self._ask("judge", bench, (source, list(cases)), [None] * WORLD_SIZE)

    def check(self, bench: Bench, case: dict[str, Any], outputs: Sequence[torch.Tensor]) -> list[tuple[bool, str]]:
        """What each rank's check says of outputs that were never computed."""
        return self._ask("check", bench, case, [_packed(output) for output in outputs])[0]

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.kill()
            process.join()
        for line in self._lines:
            line.close()

    def _ask(self, what: str, bench: Bench, common: object, own: Sequence[object]) -> Verdicts:
        for line, mine in zip(self._lines, own, strict=True):
            line.send((what, bench, common, mine))
        answers = []
        for rank, line in enumerate(self._lines):
            if not line.poll(PATIENCE_S):
                raise AssertionError(f"rank {rank} does not answer; another one has failed, or waits for it")
            answers.append(line.recv())
        failures = [answer for answer in answers if isinstance(answer, str)]
        if failures:
            raise AssertionError("\n".join(failures))
        return [list(by_rank) for by_rank in zip(*answers, strict=True)]


def _packed(output: torch.Tensor) -> bytes:
    stream = io.BytesIO()
    torch.save(output, stream)
    return stream.getvalue()


def _serve(rank: int, meeting: str, line: Connection) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    sys.dont_write_bytecode = True
    torch.set_num_threads(1)
    store = dist.FileStore(meeting, WORLD_SIZE)  # type: ignore[attr-defined]  # torch does not export it by name
    dist.init_process_group("gloo", store=store, rank=rank, world_size=WORLD_SIZE)
    while True:
        try:
            what, bench, common, own = line.recv()
        except EOFError:
            return
        sys.path.insert(0, str(bench.directory))
        try:
            line.send(_judge(rank, bench, *common) if what == "judge" else _check(rank, bench, common, own))
        except Exception as error:  # noqa: BLE001 the test shows it
            line.send(f"rank {rank}: {type(error).__name__}: {error}")
        finally:
            sys.path.remove(str(bench.directory))
            bench.forget()


def _judge(rank: int, bench: Bench, source: str, cases: Sequence[dict[str, Any]]) -> list[tuple[bool, str]]:
    name = f"submission_{rank}"
    (bench.directory / f"{name}.py").write_text(source)
    sys.modules.pop(name, None)
    kernel = bench.module(name).custom_kernel
    verdicts = []
    for case in cases:
        kernel(bench.generate(reseeded(case) | {"rank": rank}))
        output = kernel(bench.generate(case | {"rank": rank}))
        verdicts.append(bench.check(bench.generate(case | {"rank": rank}), output))
    return verdicts


def _check(rank: int, bench: Bench, case: dict[str, Any], packed: bytes) -> list[tuple[bool, str]]:
    output = torch.load(io.BytesIO(packed))
    return [bench.check(bench.generate(case | {"rank": rank}), output)]
