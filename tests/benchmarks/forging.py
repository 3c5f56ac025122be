"""What a forged time gains, by size of the inputs and time of the kernel; CPU, without a container.

`make bench ARGS=forging` (an hour and a half; KERNEL_RUNNER_TEST_EXAMPLES=2 for a tenth of it). The kernel's time is
known, whatever else the machine does: it looks at the clock until its time is over. Submissions lower their claims, all
of them or some. Each is evaluated several times at every size of the inputs, in turn with each of that size's kernel
times, and the luckiest counts: the least time that was reported, as a part of the truth. Honest ones stand beside them:
how far off their times are, and how many are audited. First with the cores to themselves, then while another process
keeps the worker's core busy.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from statistics import median

from tasks.harness.judge.stopping import Timing
from tests.acceptance.judging.forked_judges import ForkedJudges
from tests.benchmarks._judging import COPY, ROWS_REFERENCE, SUMS, cases_of, machine, request_of, rows_of, spin_case

#: Evaluations of each submission at each size, shared among the size's kernel times.
SESSIONS = int(os.environ.get("KERNEL_RUNNER_TEST_EXAMPLES", "20"))
#: How a submission lowers its claims: the part of the truth that it claims in call number `call`.
FORGERIES = {
    "all x 0.02": "0.02",
    "all x 0.5": "0.5",
    "all x 0.8": "0.8",
    "all x 0.9": "0.9",
    "1 in 10 x 0.02": "0.02 if call % 10 == 3 else 1.0",
    "1 in 4 x 0.33": "0.33 if call % 4 == 1 else 1.0",
    "9 in 10 x 0.7": "0.7 if call % 10 else 1.0",
    "at random": "random.uniform(0.4, 1.0)",
    "slowly less": "max(0.3, 1.0 - 0.005 * call)",
}
#: Bytes of input, what is returned, and kernel times in ns that are not less than reading so much takes.
CASES = (
    (4 << 10, SUMS, (20_000, 50_000, 200_000, 2_000_000)),
    (64 << 10, SUMS, (50_000, 200_000, 2_000_000)),
    (256 << 10, SUMS, (100_000, 200_000, 2_000_000)),
    (1 << 20, COPY, (200_000, 2_000_000)),
    (1536 << 10, SUMS, (300_000, 2_000_000)),
    (3 << 20, SUMS, (500_000, 2_000_000, 20_000_000)),
    (16 << 20, SUMS, (4_000_000, 20_000_000)),
    (64 << 20, SUMS, (20_000_000,)),
)
#: Timed calls of a case: of larger inputs fewer, as what takes the time is making them.
RUNS = {16 << 20: 20, 64 << 20: 10}
#: Evaluations that are made again, as a daemon does, where the machine was too noisy for one.
TRIES = 5
#: Ends with the process that started it.
_BUSY = "import ctypes, os\nctypes.CDLL(None).prctl(1, 9)\nos.sched_setaffinity(0, {core})\nwhile True:\n    pass\n"


def main() -> None:
    """Measure and print."""
    for busy in (False, True):
        print(f"\n{'a core busy' if busy else 'at rest'}: {machine()}; {SESSIONS} sessions each")
        print(f"| inputs | kernel | honest: middle, worst | audited | {' | '.join(FORGERIES)} |")
        print(f"|{'---|' * (4 + len(FORGERIES))}")
        with closing(ForkedJudges()) as processes, _busy_core(busy=busy):
            for nbytes, output, spins_ns in CASES:
                _measure(processes, nbytes, output, spins_ns)


def _measure(processes: ForkedJudges, nbytes: int, output: str, spins_ns: tuple[int, ...]) -> None:
    found: dict[tuple[str | None, int], list[_Reported]] = defaultdict(list)
    for session in range(SESSIONS):
        spin_ns = spins_ns[session % len(spins_ns)]
        for name, part in ((None, None), *FORGERIES.items()):
            found[name, spin_ns].append(_reported(processes, nbytes, output, spin_ns, part))
    for spin_ns in spins_ns:
        honest = found[None, spin_ns]
        if not honest:
            continue
        errors = [reported.of_claim - 1 for reported in honest]
        audited = sum(reported.timing == "audited" for reported in honest)
        least = [_least([reported.mean_ns for reported in found[name, spin_ns]], spin_ns) for name in FORGERIES]
        inputs = f"{nbytes / 1024:g} KiB{', copied' if output == COPY else ''}"
        print(
            f"| {inputs} | {spin_ns / 1e3:g} µs | {median(errors):+.1%}, {max(errors, key=abs):+.1%} "
            f"| {audited} of {len(honest)} | {' | '.join(least)} |",
            flush=True,
        )


def _least(means_ns: list[float | None], spin_ns: int) -> str:
    """The luckiest of several sessions."""
    ranked = [mean / spin_ns for mean in means_ns if mean is not None]
    return f"{min(ranked):.2f}" if ranked else "rejected"


@dataclass(frozen=True, kw_only=True)
class _Reported:
    """What one evaluation came to."""

    #: None: rejected.
    mean_ns: float | None
    timing: str
    #: The median, as a part of what the worker claims.
    of_claim: float


def _reported(processes: ForkedJudges, nbytes: int, output: str, spin_ns: int, part: str | None) -> _Reported:
    timing = Timing(max_runs=RUNS[nbytes]) if nbytes in RUNS else None
    source = rows_of(part, output=output)
    request = request_of(source, [spin_case(spin_ns, size=nbytes // 4)], reference=ROWS_REFERENCE, timing=timing)
    for _ in range(TRIES):
        step = processes.evaluate(request).steps[0]
        if step.judged is None or step.judged.verdict != "internal_error":
            break
    if step.judged is None or step.judged.verdict not in ("accepted", "rejected"):
        raise RuntimeError(f"expected accepted or rejected, found {step.judged}")
    if step.judged.verdict == "rejected":
        if part is None:
            raise RuntimeError(f"an honest submission was rejected: {step.judged.message}")
        return _Reported(mean_ns=None, timing="rejected", of_claim=0.0)
    (case,) = cases_of(step)
    return _Reported(
        mean_ns=case.number("mean"),
        timing=case.details["timing"],
        of_claim=case.number("median") / case.details["claimed_median_ns"],
    )


@contextmanager
def _busy_core(*, busy: bool) -> Iterator[None]:
    """Something else on the first core, which is one of the worker's."""
    if not busy:
        yield
        return
    core = {min(os.sched_getaffinity(0))}
    with subprocess.Popen([sys.executable, "-c", _BUSY.format(core=core)]) as process:
        try:
            yield
        finally:
            process.kill()


if __name__ == "__main__":
    main()
