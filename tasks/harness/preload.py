"""What judge and worker import, once: in a container both are forks of a process that imported this module.

It must not look at a device: no use of one survives a fork. Threads do not either; those that numpy's BLAS starts when
it is imported are started again by the BLAS itself.
"""

from __future__ import annotations

import os

from tasks.harness.shared.cores import leave_judge_core

_cores = os.sched_getaffinity(0)
# Torch and OpenMP count the cores for their threads when they are loaded. The judge's core does not count.
leave_judge_core()
if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys():
    # Threads of OpenMP look for new work for some 100 µs and then sleep. By default they look for milliseconds: those
    # of the judge's reference would still spin while the submission is timed.
    os.environ["GOMP_SPINCOUNT"] = "10000"

import tasks.harness.shared.values  # noqa: E402, F401 it imports torch

os.sched_setaffinity(0, _cores)
