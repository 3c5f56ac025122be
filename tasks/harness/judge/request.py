"""The judge's request, as records. Pure, standard library only: the runner's planner imports it, too.

The request reaches only the judge: it holds seeds, references and hidden cases. Only the submission and the files named
in `worker_files` may ever reach the worker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sandbox.protocol import FrameError, read
from tasks.harness.shared.profilers import Capture

from .stats import time_text
from .stopping import Timing

VERSION = 1


class RequestError(ValueError):
    """The request does not parse, or has another version."""


@dataclass(frozen=True, kw_only=True)
class Floor:
    """A time that no correct kernel can be faster than, in one case."""

    ns: float
    #: The limit behind it: math or memory.
    limit: str
    #: How it was computed, as the end of a sentence.
    why: str

    def refusal(self, mean_ns: float) -> str | None:
        """Why a mean time cannot be true, as a sentence; None if it can."""
        if mean_ns >= self.ns:
            return None
        return (
            f"its mean time of {time_text(mean_ns)} is impossible: the case needs at least {time_text(self.ns)} "
            f"for {self.limit} ({self.why})"
        )


@dataclass(frozen=True, kw_only=True)
class ModeRequest:
    """One mode to run: a row of `leaderboard.runs` when it is done."""

    #: test, benchmark, leaderboard or profile.N
    name: str
    #: One spec line per case, `key: value` joined by `; `.
    cases: tuple[str, ...]
    timeout_s: float
    #: Floors for the mean times; empty, or one entry per case.
    floors: tuple[Floor | None, ...] = ()
    #: How long the task wants its cases timed; None: as the mode does.
    timing: Timing | None = None
    #: Whether its times rank. Else cases are timed only as closely as it takes to find a forged time.
    ranked: bool = True


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """A submission that is compiled to a library."""

    #: The library's file name in the worker's directory. The file is there already if it was built ahead.
    program: str
    #: The compiler's command line, for a worker without the library.
    argv: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class JudgeRequest:
    """A whole evaluation: the modes run in order and stop at the first that does not pass (profiles all run)."""

    modes: tuple[ModeRequest, ...]
    #: Task files (reference.py, task.py, utils.py, ...), name -> text, without the eval program and the submission.
    files: Mapping[str, str]
    #: The names in `files` that the worker gets too.
    worker_files: tuple[str, ...]
    #: File name the submission has in the worker's directory (normally submission.py) and its source text.
    submission_name: str
    submission: str
    #: POPCORN_SEED's value, or None where the contract leaves it unset.
    seed: int | None = None
    #: How many ranks a task of several devices has, a worker each; None for any other task.
    ranks: int | None = None
    #: Devices the worker may use; "cpu", or "cuda" for CUDA and ROCm alike; "auto" is cuda where torch finds a device.
    device: str = "cpu"
    #: Seconds that importing (and so building) the submission may take, before the first mode's own time begins.
    build_timeout_s: float = 120.0
    #: Bytes of tensor data per case that judge and worker together may hold.
    memory_bytes: int = 1 << 30
    #: Bytes to write between two timed calls, so that a device's caches hold no inputs; None: not known.
    flush_bytes: int | None = None
    #: Whether times on a device that the judge's clock contradicts are rejected. Else the judge's measure counts.
    rejects_forged_times: bool = False
    #: A claim counts if the judge's clock bounds it to within this part of it. Else the judge's measure counts.
    tolerance: float = 0.1
    #: Whether an earlier worker has found that streams of this device can wait for a number in the host's memory.
    streams_wait: bool = False
    #: None: the submission is Python.
    compiled: Compiled | None = None
    #: What the vendor's profiler captures in profiles; None: it is not used.
    capture: Capture | None = None

    def to_payload(self) -> dict[str, Any]:
        """The JSON object that `from_payload` reads."""
        return {"version": VERSION, **asdict(self), "files": dict(self.files)}

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> JudgeRequest:
        """Parse what the daemon sent.

        Raises:
            RequestError: another version, or a key that is missing or unknown.
        """
        values = dict(payload)
        version = values.pop("version", None)
        if version != VERSION:
            raise RequestError(f"judge request has version {version!r}, this harness understands {VERSION}")
        try:
            return read(cls, values, "judge request")
        except FrameError as error:
            raise RequestError(str(error)) from error
