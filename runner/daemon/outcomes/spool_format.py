"""What a spooled result looks like: a JSON document with the job's ids, the slot and the result, packed by gzip. Pure.

gzip's checksum tells a torn or damaged file. Strings are kept exactly, whatever a submission printed: what UTF-8 has no
form for, a lone surrogate, is written in the form it would have. Floats are written in the shortest form that reads
back as the same number, NaN and infinities by name. Code, task and seeds are left out: committing a result does not
need them.
"""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from runner.base.dates import read_date
from runner.base.model import (
    Artifact,
    FinalJob,
    GroupJob,
    Job,
    JobResult,
    Mode,
    Receipt,
    RunRecord,
    SubmissionJob,
    ValidationJob,
    Verdict,
)

VERSION: Final = 2
#: Fields of a job that committing its result does not need.
_LEFT_OUT: Final = frozenset({"task", "code", "extra", "secret_seed", "options", "demand", "avoid_slot"})


class UnreadableError(Exception):
    """The content is not what it should be; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Decoded:
    """A result read from a file; its job has only the fields that a commit needs."""

    job: Job
    slot: str
    result: JobResult


def bare(job: Job) -> Job:
    """The job without what strangers or users must not find on disk and no commit needs."""
    without = replace(job, task={})
    if isinstance(without, ValidationJob):
        return replace(without, code=b"", extra=None)
    return replace(without, code=b"", extra=None, secret_seed=0) if isinstance(without, SubmissionJob) else without


def encode(job: Job, result: JobResult, *, slot: str) -> bytes:
    """The content of a result's file.

    Raises:
        TypeError, ValueError: the result holds something that JSON has no word for.
    """
    values = {name: value for name, value in vars(job).items() if name not in _LEFT_OUT}
    document = {"version": VERSION, "job": _plain(values), "slot": slot, "result": _result(result)}
    return gzip.compress(json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogatepass"), compresslevel=1)


def decode(content: bytes) -> Decoded:
    """What a file holds, checked to the last byte.

    Raises:
        UnreadableError: it is torn, damaged, foreign, or of another version.
    """
    try:
        document = json.loads(gzip.decompress(content).decode("utf-8", "surrogatepass"))
        if document["version"] != VERSION:
            raise UnreadableError(f"it is of version {document['version']!r}, expected {VERSION}")
        return Decoded(job=_job_of(document["job"]), slot=document["slot"], result=_result_of(document["result"]))
    except (OSError, EOFError, zlib.error, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise UnreadableError(f"it is damaged: {type(error).__name__}: {error}") from error


def _job_of(document: Mapping[str, Any]) -> Job:
    values = {
        **document,
        "mode": Mode(document["mode"]),
        "created_at": read_date(document["created_at"]),
        "started_at": read_date(document["started_at"]),
    }
    if values["mode"] is Mode.VALIDATION:
        return ValidationJob(**values, task={}, code=b"", extra=None)
    if values["mode"] is Mode.FINAL:
        return FinalJob(**values, task={}, code=b"", extra=None, secret_seed=0)
    if document["submission_id"] is None:
        return GroupJob(**values, task={})
    return SubmissionJob(**values, task={}, code=b"", extra=None, secret_seed=0)


def _result(result: JobResult) -> object:
    artifacts = [{**vars(artifact), "data": base64.b64encode(artifact.data).decode()} for artifact in result.artifacts]
    receipt = None if result.receipt is None else vars(result.receipt)
    runs = [vars(run) for run in result.runs]
    return _plain({**vars(result), "runs": runs, "artifacts": artifacts, "receipt": receipt})


def _result_of(document: Mapping[str, Any]) -> JobResult:
    artifacts = [{**artifact, "data": base64.b64decode(artifact["data"])} for artifact in document["artifacts"]]
    return JobResult(
        **{
            **document,
            "verdict": Verdict(document["verdict"]),
            "runs": tuple(RunRecord(**run) for run in document["runs"]),
            "artifacts": tuple(Artifact(**artifact) for artifact in artifacts),
            "items": tuple(document["items"]),
            "receipt": Receipt(**document["receipt"]) if document.get("receipt") else None,
        }
    )


def _plain(value: object) -> object:
    """The value in JSON's own types, as the store would write them, but with every string as it is."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, datetime):
        return value.isoformat()
    return value
