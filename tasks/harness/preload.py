"""What judge, workers and rank checkers import, once: in a container they are forks of a process that imported this.

It must not look at a device: no use of one survives a fork. Threads do not either; those that numpy's BLAS starts when
it is imported are started again by the BLAS itself.

Of the rest it imports what judges need of libraries, as a ranked submission has two of them, one after the other. Not
numpy.random: its forks would draw the same numbers.
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

import hmac  # noqa: E402, F401
import secrets  # noqa: E402, F401
import statistics  # noqa: E402, F401

import numpy.typing as npt  # noqa: E402, F401

import sandbox.protocol  # noqa: E402, F401
import tasks.harness.shared.values  # noqa: E402, F401 it imports torch

os.sched_setaffinity(0, _cores)
