"""What judge, workers and rank checkers import, once: in a container they are forks of a process that imported this.

It must not look at a device: no use of one survives a fork. Threads do not either; those that numpy's BLAS starts when
it is imported are started again by the BLAS itself.

The judge's modules, too: a ranked submission has two judges, one after the other. Nothing that it imports may draw
random numbers meanwhile, as numpy.random does: its forks would have the same.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from pathlib import Path

from tasks.harness.shared.cores import leave_judge_core


def _load_what_counts_cores() -> bool:
    """Load BLAS and OpenMP without torch itself; False: torch does not have them where it usually has."""
    import numpy as np  # noqa: F401 with its BLAS

    spec = importlib.util.find_spec("torch")
    places = spec.submodule_search_locations if spec is not None else None
    # Torch loads this library first, in the same way, for those that it names.
    library = Path(places[0], "lib", "libtorch_global_deps.so") if places else None
    if library is None or not library.is_file():
        return False
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    return True


_cores = os.sched_getaffinity(0)
# BLAS and OpenMP count the cores for their threads when they are loaded. The judge's core does not count.
leave_judge_core()
if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys():
    # Threads of OpenMP look for new work for some 100 µs and then sleep. By default they look for milliseconds: those
    # of the judge's reference would still spin while the submission is timed.
    os.environ["GOMP_SPINCOUNT"] = "10000"

if _load_what_counts_cores():
    # All cores for the rest: containers that start at once would import torch on the same one.
    os.sched_setaffinity(0, _cores)

# First: the judge's modules choose how the threads of their own process wait.
import torch  # noqa: E402, F401

import tasks.harness.judge.main  # noqa: E402, F401

os.sched_setaffinity(0, _cores)
