"""What a spooled result looks like: a header, a document, the artifacts. Pure.

    line 1   JSON: what this is, the format's version, the length of line 2, SHA-256 of everything after line 1
    line 2   JSON: the job's ids, the slot, the result
    rest     the artifacts' bytes, one after the other, in the order and lengths of line 2

Strings are kept exactly, whatever a submission printed: what UTF-8 has no form for, a lone surrogate, is written in the
form it would have. Floats are written in the shortest form that reads back as the same number, NaN and infinities by
name. Code, task and seeds are left out: committing a result does not need them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, BinaryIO, Final

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

FORMAT: Final = "kernel-runner result"
VERSION: Final = 1
#: Key of the report that names the artifacts there was no room for.
DROPPED: Final = "artifacts_dropped"
#: Fields of a job that committing its result does not need.
_LEFT_OUT: Final = frozenset({"task", "code", "extra", "secret_seed", "options", "demand", "avoid_slot"})
_MAX_HEADER_BYTES: Final = 4096
_CHUNK_BYTES: Final = 1 << 20


class UnreadableError(Exception):
    """The content is not what it should be; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Content:
    """A result ready to be written: its parts, in order."""

    parts: tuple[bytes, ...]

    @property
    def size_bytes(self) -> int:
        """Length of the whole."""
        return sum(len(part) for part in self.parts)


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


def without_artifacts(result: JobResult) -> JobResult:
    """The result without its artifacts, whose names its report then tells."""
    names = [artifact.name for artifact in result.artifacts]
    return replace(result, artifacts=(), report={**result.report, DROPPED: names})


def encode(job: Job, result: JobResult, *, slot: str) -> Content:
    """The content of a result's file.

    Raises:
        TypeError, ValueError: the result holds something that JSON has no word for.
    """
    document = {"job": _job(job), "slot": slot, "result": _result(result)}
    line = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass") + b"\n"
    blobs = tuple(artifact.data for artifact in result.artifacts)
    header = {"format": FORMAT, "version": VERSION, "document_bytes": len(line), "sha256": _digest((line, *blobs))}
    return Content(parts=(json.dumps(header).encode() + b"\n", line, *blobs))


def decode(file: BinaryIO, *, with_artifacts: bool = True) -> Decoded:
    """What a file holds, checked to the last byte; without its artifacts they are checked but not kept.

    Raises:
        UnreadableError: it is torn, damaged, foreign, or of another version.
    """
    header = _header(file.readline(_MAX_HEADER_BYTES))
    digest = hashlib.sha256()
    line = _exactly(file, header["document_bytes"], digest)
    try:
        document = json.loads(line.decode("utf-8", "surrogatepass"))
        sizes = [(blob["name"], blob["media_type"], blob["size_bytes"]) for blob in document["result"]["artifacts"]]
        artifacts = []
        for name, media_type, size_bytes in sizes:
            data = _exactly(file, size_bytes, digest, keep=with_artifacts)
            artifacts.append(Artifact(name=name, media_type=media_type, data=data))
        if file.read(1) or digest.hexdigest() != header["sha256"]:
            raise UnreadableError("it is damaged: its content does not have the checksum of its first line")
        return Decoded(
            job=_job_of(document["job"]),
            slot=document["slot"],
            result=_result_of(document["result"], artifacts if with_artifacts else ()),
        )
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise UnreadableError(f"it is damaged: {type(error).__name__}: {error}") from error


def _header(line: bytes) -> dict[str, Any]:
    try:
        header = json.loads(line)
    except ValueError as error:
        raise UnreadableError("it does not begin with a line of JSON") from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise UnreadableError(f"it is no {FORMAT}")
    if header.get("version") != VERSION:
        raise UnreadableError(f"it is of version {header.get('version')!r}, expected {VERSION}")
    if not isinstance(header.get("document_bytes"), int) or not isinstance(header.get("sha256"), str):
        raise UnreadableError("its first line lacks document_bytes or sha256")
    return header


def _exactly(file: BinaryIO, size_bytes: int, digest: Any, *, keep: bool = True) -> bytes:  # noqa: ANN401 - hashlib has no public type
    """The next so many bytes, read piece by piece: a length that lies must not cost memory."""
    pieces = []
    left_bytes = size_bytes
    while left_bytes > 0:
        piece = file.read(min(left_bytes, _CHUNK_BYTES))
        if not piece:
            raise UnreadableError(f"it is torn: {left_bytes} bytes are missing")
        digest.update(piece)
        left_bytes -= len(piece)
        if keep:
            pieces.append(piece)
    return b"".join(pieces)


def _digest(parts: Sequence[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def _job(job: Job) -> object:
    return _plain({name: value for name, value in vars(job).items() if name not in _LEFT_OUT})


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
    artifacts = [
        {"name": artifact.name, "media_type": artifact.media_type, "size_bytes": len(artifact.data)}
        for artifact in result.artifacts
    ]
    receipt = None if result.receipt is None else vars(result.receipt)
    runs = [vars(run) for run in result.runs]
    return _plain({**vars(result), "runs": runs, "artifacts": artifacts, "receipt": receipt})


def _result_of(document: Mapping[str, Any], artifacts: Sequence[Artifact]) -> JobResult:
    return JobResult(
        **{
            **document,
            "verdict": Verdict(document["verdict"]),
            "runs": tuple(RunRecord(**run) for run in document["runs"]),
            "artifacts": tuple(artifacts),
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
