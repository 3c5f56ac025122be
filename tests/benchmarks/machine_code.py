"""What a submission gains that does the worker's part of a call in machine code; CPU, without a container.

`make bench ARGS=machine_code` (some minutes; needs a C compiler; KERNEL_RUNNER_TEST_EXAMPLES=2 for fewer sessions). The
worker takes the inputs and says where its output is in Python, as the control process does. Machine code does that
faster, and may claim as much less as it has saved. It sums up the rows, looks at the clock until the kernel's time is
over, and says how long that took: the least time that was reported, of several claims, stands as a part of that.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median

from tests.acceptance.judging.forked_judges import ForkedJudges
from tests.benchmarks._judging import ROWS_REFERENCE, cases_of, judge, machine, request_of, spin_case

SESSIONS = int(os.environ.get("KERNEL_RUNNER_TEST_EXAMPLES", "5"))
#: Bytes of input and kernel times in ns.
CASES = ((16 << 10, 30_000), (32 << 10, 40_000), (64 << 10, 50_000), (128 << 10, 80_000), (256 << 10, 100_000))
#: How much less is claimed, in ns.
CUTS_NS = (0, 4_000, 8_000, 12_000, 16_000, 20_000, 25_000, 30_000)
_C = r"""
#define _GNU_SOURCE
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
enum { RELEASED = 0, FINISHED = 8, WITHDRAWN = 16, DRY_ASKED = 24, DRY_ENDED = 32, OUTPUT = 40, CLAIM, ADDRESS };
static float out[8];
static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}
static int received(int line) {
  char byte, control[CMSG_SPACE(sizeof(int))];
  struct iovec io = {&byte, 1};
  struct msghdr message = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  int fd;
  recvmsg(line, &message, 0);
  memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
  return fd;
}
static int is_set(volatile uint64_t *words, int place, uint64_t call) {
  while (words[place] != call)
    if (words[WITHDRAWN] == call) return 0;
  return 1;
}
/* x: inputs that are copied, or 0. Returns how long the kernel took, or 0. */
int64_t serve(volatile uint64_t *words, int line, uint64_t call, float *x, size_t size, size_t count, int64_t spin_ns,
              int64_t cut_ns) {
  int mapped = !x;
  if (!is_set(words, DRY_ASKED, call)) return 0;
  if (mapped) close(received(line));
  words[ADDRESS] = (uint64_t)out;
  words[OUTPUT] = 1;
  __sync_synchronize();
  words[DRY_ENDED] = call;
  if (!is_set(words, RELEASED, call)) return 0;
  int64_t seen = now();
  int fd = mapped ? received(line) : -1;
  if (mapped) x = mmap(0, size, PROT_READ, MAP_SHARED, fd, 0);
  int64_t began = now();
  for (int row = 0; row < 8; row++) {
    float sums[16] = {0};
    out[row] = 0;
    for (size_t at = 0; at < count / 8; at++) sums[at % 16] += x[row * (count / 8) + at];
    for (int lane = 0; lane < 16; lane++) out[row] += sums[lane];
  }
  for (int64_t until = now() + spin_ns; now() < until;) {}
  int64_t ended = now();
  words[CLAIM] = ended - seen > cut_ns ? ended - seen - cut_ns : 1;
  words[OUTPUT] = 1;
  __sync_synchronize();
  words[FINISHED] = call;
  if (mapped) munmap(x, size), close(fd);
  return ended - began;
}
"""
_SUBMISSION = """
import ctypes
import statistics
import sys

serve = ctypes.CDLL({library!r}).serve
serve.restype = ctypes.c_int64
pointer, number = ctypes.c_void_p, ctypes.c_int64
serve.argtypes = (pointer, ctypes.c_int, number, pointer, number, number, number, number)
Worker = sys.modules["tasks.harness.worker.main"].Worker
waits, took_ns = Worker._wait_for_release, []


def wait_for_release(self, flags, call):
    if self._kernel is not custom_kernel:
        return waits(self, flags, call)
    x, spin_ns, later = *self._opened().value.values(), self._reserved
    place, size = (x.data_ptr(), 0) if later is None else (None, later.size)
    line = self._descriptor_socket.fileno()
    took_ns.append(serve(flags.address, line, call, place, size, x.numel(), spin_ns, {cut_ns}))
    print(statistics.median(took_ns), flush=True)
    return False


Worker._wait_for_release = wait_for_release


def custom_kernel(data):
    return data["x"].view(8, -1).sum(1)
"""


def main() -> None:
    """Measure and print."""
    print(f"{machine()}; {SESSIONS} sessions each")
    print(f"| inputs | kernel | {' | '.join(f'{cut_ns / 1e3:g} µs less' for cut_ns in CUTS_NS)} |")
    print(f"|{'---|' * (2 + len(CUTS_NS))}")
    with closing(ForkedJudges()) as processes, _library() as library:
        for nbytes, spin_ns in CASES:
            columns = []
            for cut_ns in CUTS_NS:
                parts = [_part(processes, library, nbytes, spin_ns, cut_ns) for _ in range(SESSIONS)]
                columns.append(f"{median(parts):.2f} ({min(parts):.2f})")
            print(f"| {nbytes >> 10} KiB | {spin_ns / 1e3:g} µs | {' | '.join(columns)} |", flush=True)


def _part(processes: ForkedJudges, library: Path, nbytes: int, spin_ns: int, cut_ns: int) -> float:
    """The time that is reported, as a part of what the kernel took."""
    source = _SUBMISSION.format(library=str(library), cut_ns=cut_ns)
    case = spin_case(spin_ns, size=nbytes // 4)
    step = judge(processes, request_of(source, [case], mode="leaderboard", reference=ROWS_REFERENCE))
    (timed,) = cases_of(step)
    return timed.number("median") / float(step.stdout.split()[-1])


@contextmanager
def _library() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="kernel-runner-") as folder:
        library = Path(folder, "serve.so")
        subprocess.run(["cc", "-O3", "-shared", "-fPIC", "-xc", "-", "-o", library], input=_C.encode(), check=True)
        yield library


if __name__ == "__main__":
    main()
