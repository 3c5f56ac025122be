"""Candidates a second in groups of tiny modules on a device, and where their time goes. No time fails anything.

    python -m tests.gpu.group_times [--groups 4] [--size 8] [--emulate [--costs h100]]

Processes are forks that have imported torch, as in a container. Neither container nor queue is in the figures. A tree
that stands first on PYTHONPATH is measured in place of this one: two trees can be compared in one call.

With `--costs` the emulated device's operations take as long as that device's, by `tests.support.emulated_gpu.COSTS`.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, cast

from runner.extras.boards.fork_server import ForkServers
from runner.extras.trainers.inside.judge.request import GroupRequest
from sandbox.protocol import StepResult
from tasks.harness.local import Start
from tests.acceptance.modules.problems import sent
from tests.support.local_modules import SuccessivePair, make_context

SETTINGS: Final = {"timed_calls": 20, "inputs": 5, "timeout_s": 60.0}
#: Parts of a group, in the order of their first moments.
PARTS: Final = {
    "begin": "processes, first contexts; end",
    "reference": "prepare the reference, contexts ahead, calibration",
    "worker": "workers of candidates",
    "compile": "run the candidates' files",
    "construct": "construct modules",
    "correctness": "compare outputs",
    "timing": "timed calls of candidates",
    "reference_timing": "timed calls of the reference",
    "done": "results",
}


@dataclass(kw_only=True)
class Groups:
    """What groups took."""

    #: How many times as long everything takes as it is told.
    slowed: int = 1
    seconds: float = 0.0
    verdicts: Counter[str] = field(default_factory=Counter)
    #: How times may be trusted, by word.
    timing: Counter[str] = field(default_factory=Counter)
    parts_ms: dict[str, float] = field(default_factory=dict)

    @property
    def candidates(self) -> int:
        """How many were judged."""
        return self.verdicts.total()

    @property
    def each_s(self) -> float:
        """What a candidate took."""
        return self.seconds / max(self.candidates, 1)

    def judge(self, number: int, *, size: int, start: Start, ahead: Start) -> None:
        """Judge a group, and add what it took."""
        reference, codes = sent(number, size=size)
        group: Mapping[str, Any] = {
            "kind": "module",
            "reference": reference,
            "settings": SETTINGS,
            "candidates": [{"id": index, "code": code} for index, code in enumerate(codes)],
        }
        began_s = time.monotonic()
        with SuccessivePair(start=start, ahead=ahead) as pair:
            # As a daemon says of a device on which a group has run.
            request = GroupRequest(group=group, device="cuda", memory_bytes=4 << 30, streams_wait=True)
            steps = pair.run(request.to_payload()).steps
        took_s = time.monotonic() - began_s
        self.seconds += took_s / self.slowed
        for name, part_ms in _parts_ms(steps, took_s).items():
            self.parts_ms[name] = self.parts_ms.get(name, 0.0) + part_ms / self.slowed
        for step in steps:
            if step.judged is not None:
                self.verdicts[step.judged.verdict] += 1
                if step.judged.verdict == "accepted":
                    self.timing[step.judged.assurance["timing"]] += 1

    def table(self) -> str:
        """The parts of all groups together, as Markdown."""
        each_s = self.each_s
        rate = f"{self.candidates} candidates, {each_s:.3f} s for one, {1 / each_s:.2f} candidates/s"
        lines = [
            f"{rate}; {dict(self.verdicts)}; times {dict(self.timing)}",
            *("| part | ms for a candidate | share |", "|---|---|---|"),
        ]
        for name, what in PARTS.items():
            part_ms = self.parts_ms.get(name, 0.0) / max(self.candidates, 1)
            lines.append(f"| {what} | {part_ms:.1f} | {part_ms / each_s / 1e3:.1%} |")
        return "\n".join(lines)


def _parts_ms(steps: Sequence[StepResult], took_s: float) -> Mapping[str, float]:
    """Where the time of a group went, in milliseconds."""
    parts: dict[str, float] = {}
    for step in steps:
        for name, part_ms in (step.judged.details.get("parts_ms", {}) if step.judged is not None else {}).items():
            parts[name] = parts.get(name, 0.0) + part_ms
    if steps:
        parts["reference"] = (steps[0].start_ns - steps[0].duration_ns) / 1e6
        parts["begin"] = took_s * 1e3 - steps[-1].start_ns / 1e6
    return parts


def measure(count: int, *, size: int, start: Start, ahead: Start, slowed: int = 1) -> Groups:
    """Judge groups, after one that compiles what torch compiles once. `ahead`: as in SuccessivePair."""
    Groups().judge(0, size=size, start=start, ahead=ahead)
    groups = Groups(slowed=slowed)
    for number in range(1, count + 1):
        groups.judge(number, size=size, start=start, ahead=ahead)
    return groups


def start_ahead(servers: ForkServers) -> Start:
    """Starts workers that make their contexts first."""
    return cast("Start", partial(servers.start, first=(f"{make_context.__module__}:{make_context.__name__}", ())))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.gpu.group_times", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--groups", type=int, default=4, help="groups that are measured (%(default)s)")
    parser.add_argument("--size", type=int, default=8, help="candidates of a group (%(default)s)")
    parser.add_argument("--emulate", action="store_true", help="the device of tests.support.emulated_gpu")
    parser.add_argument("--costs", help="what the emulated device's operations take: of this device")
    given = parser.parse_args()
    if given.emulate:
        from tests.support import emulated_gpu

        slowed = 1
        if given.costs is not None:
            if given.costs not in emulated_gpu.COSTS:
                parser.error(f"--costs {given.costs}: expected one of {', '.join(emulated_gpu.COSTS)}")
            os.environ["EMULATED_GPU_COSTS"] = given.costs
            slowed = emulated_gpu.SLOWED
        start, ahead = emulated_gpu.start, emulated_gpu.start_ahead
        print(measure(given.groups, size=given.size, start=start, ahead=ahead, slowed=slowed).table())
        return
    with ForkServers() as servers:
        print(measure(given.groups, size=given.size, start=servers.start, ahead=start_ahead(servers)).table())


if __name__ == "__main__":
    main()
