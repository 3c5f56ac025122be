"""The protocol between the daemon and init in the container: frames over stdin and stdout. Pure.

A frame is a 4-byte big-endian length and that many bytes of UTF-8 JSON: one object with a `type`. Keys that end in
`_b64` hold bytes as base64. Both sides check the length before they read the body.

Daemon to container: one `request`. If it announces a build archive, that archive follows in `archive` frames. While a
judge works, the daemon may send any number of `reading` frames with the state of the devices. The daemon keeps stdin
open until it has the `end` frame and has read the cgroup's counters. An earlier end of file means that the daemon is
gone; then init ends the container.

Container to daemon, in this order: `ready` once, before init reads the request; any number of `progress`, `step` and
`artifact`; any number of `archive`, if the request asks for a build archive; one `end`.

    {"type": "ready",    "protocol": 2, "facts": {...}}              what init observes of its container
    {"type": "prepared"}                                             its judge waits for a request, all imported
    {"type": "progress", "phase": str, "done": int, "total": int}    in cases; total 0: only the program knows it
    {"type": "step",     ...StepResult}                              one finished program or judged mode
    {"type": "artifact", "name": str, "media_type": str, "data_b64": str}
    {"type": "archive",  "data_b64": str, "refused": str | null}     one piece; refused: why no archive is sent
    {"type": "end",      "ok": bool, "message": str | null,          ok false: the harness itself failed
                         "author_exit": {...AuthorExit} | null}      what of the author's ended the judge's process

A build archive holds the files that a build leaves behind (`sandbox.inside.build_archive`). One container packs it,
another unpacks it. A submission made its content, so the daemon counts its bytes and never reads them.

Containers import this module too, so it uses the standard library only.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

VERSION = 2
#: Limit of a single frame. A request carries one submission (1 MB) and the task's files.
MAX_FRAME_BYTES = 32 << 20
#: Limits of a whole build archive, compressed, and of one piece of it.
MAX_ARCHIVE_BYTES = 64 << 20
ARCHIVE_PIECE_BYTES = 1 << 20

#: The environment's name for the page on which a process of the judge says which code of an author runs, and its size.
AUTHOR_PAGE_FD = "KR_AUTHOR_PAGE_FD"
AUTHOR_PAGE_BYTES = 4096

_HEADER = struct.Struct("!I")


class FrameError(ValueError):
    """The bytes are not a frame of this protocol."""


def encode(message: Mapping[str, Any]) -> bytes:
    """Encode one frame.

    Raises:
        FrameError: the message is larger than MAX_FRAME_BYTES.
    """
    body = json.dumps(message, separators=(",", ":"), allow_nan=False).encode()
    if len(body) > MAX_FRAME_BYTES:
        raise FrameError(f"frame of {len(body)} bytes, at most {MAX_FRAME_BYTES} allowed")
    return _HEADER.pack(len(body)) + body


class Decoder:
    """Splits a byte stream into messages."""

    def __init__(self, *, max_total_bytes: int | None = None) -> None:
        self._buffer = bytearray()
        self._total = 0
        self._max_total = max_total_bytes

    @property
    def pending_bytes(self) -> int:
        """Bytes of an unfinished frame."""
        return len(self._buffer)

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Return the messages that `data` completes.

        Raises:
            FrameError: an oversized frame, too many bytes in all, or not a JSON object with a type.
        """
        self._total += len(data)
        if self._max_total is not None and self._total > self._max_total:
            raise FrameError(f"more than {self._max_total} bytes of report")
        self._buffer += data
        while len(self._buffer) >= _HEADER.size:
            (length,) = _HEADER.unpack_from(self._buffer)
            if length > MAX_FRAME_BYTES:
                raise FrameError(f"frame announces {length} bytes, at most {MAX_FRAME_BYTES} allowed")
            end = _HEADER.size + length
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[_HEADER.size : end])
            del self._buffer[:end]
            yield _parse(body)


def _parse(body: bytes) -> dict[str, Any]:
    try:
        message = json.loads(body)
    except ValueError as error:
        raise FrameError(f"frame is not JSON: {error}") from error
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise FrameError("frame is not an object with a 'type'")
    return message


def to_b64(data: bytes) -> str:
    """Encode bytes for a frame."""
    return base64.b64encode(data).decode("ascii")


def from_b64(text: str) -> bytes:
    """Decode the value of a `_b64` key.

    Raises:
        FrameError: not base64.
    """
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise FrameError(f"not base64: {error}") from error


@dataclass(frozen=True, kw_only=True)
class Step:
    """One program that runs as the worker's uid in `/work`, with its result pipe in POPCORN_FD."""

    #: The step's name in its result: "compile", "test", "benchmark", "leaderboard", "profile.0", ...
    name: str
    argv: tuple[str, ...]
    #: Added to the container's environment for this program only.
    env: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 180.0
    #: Files written to /work before the program starts, over older ones: name -> bytes.
    files: Mapping[str, bytes] = field(default_factory=dict)
    #: Names removed from /work after the program ended, such as compiled sources.
    remove_after: tuple[str, ...] = ()
    #: Whether the program gets a result pipe (POPCORN_FD). Compilers and pre-compile steps get none.
    result_pipe: bool = True
    #: "always": the next step runs in any case. "passed": only if the result has check = pass.
    #: "exit_0": only if the program exited with 0.
    continue_if: str = "always"
    #: Files that the program may leave behind; those that are there are sent back as artifacts.
    artifacts: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StepsRequest:
    """Programs to run one after the other (boot kind `steps`)."""

    #: Written to /work first: relative POSIX name -> bytes.
    files: Mapping[str, bytes]
    steps: tuple[Step, ...]
    #: Names below /work that come back as a build archive if no step was killed. Missing names do no harm.
    keep: tuple[str, ...] = ()
    #: Size of the build archive that follows and is unpacked in /work first; 0: none follows.
    archive_bytes: int = 0

    def to_message(self) -> dict[str, Any]:
        """The `request` frame."""
        return {
            "type": "request",
            "protocol": VERSION,
            "kind": "steps",
            "keep": list(self.keep),
            "archive_bytes": self.archive_bytes,
            "files": {name: to_b64(data) for name, data in self.files.items()},
            "steps": [
                {
                    **asdict(step),
                    "env": dict(step.env),
                    "files": {name: to_b64(data) for name, data in step.files.items()},
                }
                for step in self.steps
            ],
        }


@dataclass(frozen=True, kw_only=True)
class PairRequest:
    """A request for the judge (boot kind `pair`). Init forwards `payload` without reading it."""

    payload: Mapping[str, Any]
    #: None: one worker, which runs already. Else so many workers, and as many rank checkers; init starts what lacks.
    ranks: int | None = None
    #: As in StepsRequest.
    archive_bytes: int = 0
    #: Whether the judge may ask for further workers, one after the other, each in the place of the last.
    successive: bool = False
    #: Of a successive request: the parts of the archive in their order, name -> size. Each is an archive of its own,
    #: which init unpacks in /work when the judge asks for it by name. None is unpacked before.
    archives: Mapping[str, int] = field(default_factory=dict)

    def to_message(self) -> dict[str, Any]:
        """The `request` frame."""
        return {
            "type": "request",
            "protocol": VERSION,
            "kind": "pair",
            "ranks": self.ranks,
            "successive": self.successive,
            "archive_bytes": self.archive_bytes,
            "archives": dict(self.archives),
            "payload": dict(self.payload),
        }


Request = StepsRequest | PairRequest


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Progress within a phase."""

    phase: str
    done: int
    total: int

    def to_message(self) -> dict[str, Any]:
        """The `progress` frame."""
        return {"type": "progress", **asdict(self)}

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Progress:
        """Parse a `progress` frame."""
        try:
            return cls(
                phase=_typed(message, "phase", str)[:100],
                done=_typed(message, "done", int),
                total=_typed(message, "total", int),
            )
        except KeyError as error:
            raise FrameError(f"progress frame lacks {error.args[0]!r}") from error


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The state of a slot's device at one moment, as the daemon observes it from outside."""

    #: On the host's monotonic clock; None: the time of arrival.
    at_ns: int | None = None
    #: Reasons for low clocks: `held` makes a time worthless, `noted` does not.
    held: tuple[str, ...] = ()
    noted: tuple[str, ...] = ()
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None

    def to_message(self) -> dict[str, Any]:
        """The `reading` frame."""
        return {"type": "reading", **asdict(self), "held": list(self.held), "noted": list(self.noted)}

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Reading:
        """Parse a `reading` frame."""
        try:
            return cls(
                at_ns=_optional(message, "at_ns", int),
                held=_words(message, "held"),
                noted=_words(message, "noted"),
                sm_clock_mhz=_number(message, "sm_clock_mhz"),
                memory_clock_mhz=_number(message, "memory_clock_mhz"),
                temperature_c=_number(message, "temperature_c"),
                power_w=_number(message, "power_w"),
            )
        except KeyError as error:
            raise FrameError(f"reading frame lacks {error.args[0]!r}") from error


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A file that comes back with the report."""

    name: str
    media_type: str
    data: bytes

    def to_message(self) -> dict[str, Any]:
        """The `artifact` frame."""
        return {"type": "artifact", "name": self.name, "media_type": self.media_type, "data_b64": to_b64(self.data)}

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Artifact:
        """Parse an `artifact` frame.

        Raises:
            FrameError: a missing key, a value of the wrong type, or no base64.
        """
        try:
            return cls(
                name=_typed(message, "name", str)[:255],
                media_type=_typed(message, "media_type", str)[:100],
                data=from_b64(_typed(message, "data_b64", str)),
            )
        except KeyError as error:
            raise FrameError(f"artifact frame lacks {error.args[0]!r}") from error


@dataclass(frozen=True, kw_only=True)
class ArchivePiece:
    """One piece of a build archive, in order."""

    data: bytes = b""
    #: Why there is no archive, even if pieces came before; None: there is one.
    refused: str | None = None

    def to_message(self) -> dict[str, Any]:
        """The `archive` frame."""
        return {"type": "archive", "data_b64": to_b64(self.data), "refused": self.refused}

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> ArchivePiece:
        """Parse an `archive` frame.

        Raises:
            FrameError: a missing key, a value of the wrong type, no base64, or a piece that is too large.
        """
        try:
            data = from_b64(_typed(message, "data_b64", str))
        except KeyError as error:
            raise FrameError(f"archive frame lacks {error.args[0]!r}") from error
        if len(data) > ARCHIVE_PIECE_BYTES:
            raise FrameError(f"archive frame of {len(data)} bytes, at most {ARCHIVE_PIECE_BYTES} allowed")
        refused = _optional(message, "refused", str)
        return cls(data=data, refused=None if refused is None else refused[:1000])


def archive_size(request: Mapping[str, Any]) -> int:
    """Return the size of the build archive that follows a `request` frame.

    Raises:
        FrameError: not a number, or more than MAX_ARCHIVE_BYTES.
    """
    size = request.get("archive_bytes")
    if type(size) is not int or not 0 <= size <= MAX_ARCHIVE_BYTES:
        raise FrameError(f"request has archive_bytes {size!r}, expected 0 to {MAX_ARCHIVE_BYTES}")
    return size


@dataclass(frozen=True, kw_only=True)
class AuthorExit:
    """The end of a process of the judge while code of the task's or the reference's author ran in it."""

    #: What ran, such as "the task's generate_input".
    call: str
    #: For which case; empty: for none.
    place: str
    #: The process's exit code or signal, in words.
    how: str

    def __str__(self) -> str:
        """A sentence."""
        return f"{self.call} ended the judge's process ({self.how}){f' in {self.place}' if self.place else ''}"

    @classmethod
    def read(cls, page: int, how: str) -> AuthorExit | None:
        """What a process that has ended left on its page, a descriptor; None: code of the judge's own ran."""
        text, _, _ = os.pread(page, AUTHOR_PAGE_BYTES, 0).partition(b"\0")
        call, _, place = text.decode("utf-8", "replace").partition("\n")
        return cls(call=call, place=place, how=how) if call else None

    @classmethod
    def from_message(cls, value: object) -> AuthorExit | None:
        """Parse the `author_exit` of an `end` frame."""
        if value is None:
            return None
        if not isinstance(value, dict):
            raise FrameError("end frame: 'author_exit' is not an object")
        try:
            return cls(**{key: _typed(value, key, str) for key in ("call", "place", "how")})
        except KeyError as error:
            raise FrameError(f"end frame: 'author_exit' lacks {error.args[0]!r}") from error


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What the judge adds to a step that it ran itself (boot kind `pair`)."""

    #: One of runner.base.model.Verdict's values. The daemon checks it again.
    verdict: str
    #: A sentence; None when accepted.
    message: str | None
    #: {"correctness": "judge", "timing": "audited" | "audited_host" | "claimed"}
    assurance: Mapping[str, str]
    #: Further facts for the report, such as bounds, margins and calibration.
    details: Mapping[str, Any] = field(default_factory=dict)
    #: How many cases the mode has; None: they could not be read.
    announced: int | None = None
    #: Numbers and texts on each case that was begun (`tasks.harness.judge.report`), unread here.
    cases: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """The result of one finished program, or of one mode that the judge ran."""

    name: str
    command: str
    #: Nanoseconds since init read the request, on the monotonic clock.
    start_ns: int
    duration_ns: int
    #: None if a signal ended the process.
    exit_code: int | None
    signal: int | None = None
    timed_out: bool = False
    #: The process was killed because it wrote more than Limits.output_kill_bytes.
    output_limit: bool = False
    #: Decoded as UTF-8 with replacement, NUL replaced, cut to Limits.output_bytes.
    stdout: str = ""
    stderr: str = ""
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    #: `key: value` lines of a program's result pipe: split at the first colon, both parts stripped; the last of a key
    #: counts. A mode that the judge ran has none.
    result: Mapping[str, str] = field(default_factory=dict)
    judged: Judged | None = None

    def to_message(self) -> dict[str, Any]:
        """The `step` frame."""
        return {"type": "step", **asdict(self)}

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> StepResult:
        """Parse a `step` frame, checking every type."""
        judged = message.get("judged")
        try:
            return cls(
                name=_typed(message, "name", str),
                command=_typed(message, "command", str),
                start_ns=_typed(message, "start_ns", int),
                duration_ns=_typed(message, "duration_ns", int),
                exit_code=_optional(message, "exit_code", int),
                signal=_optional(message, "signal", int),
                timed_out=_typed(message, "timed_out", bool),
                output_limit=_typed(message, "output_limit", bool),
                stdout=_typed(message, "stdout", str),
                stderr=_typed(message, "stderr", str),
                stdout_bytes=_typed(message, "stdout_bytes", int),
                stderr_bytes=_typed(message, "stderr_bytes", int),
                result=_strings(message, "result"),
                judged=None if judged is None else _judged(judged),
            )
        except KeyError as error:
            raise FrameError(f"step frame lacks {error.args[0]!r}") from error


def _judged(value: object) -> Judged:
    if not isinstance(value, dict):
        raise FrameError("step frame: 'judged' is not an object")
    details = value.get("details", {})
    if not isinstance(details, dict):
        raise FrameError("step frame: 'judged.details' is not an object")
    cases = value.get("cases", ())
    if not isinstance(cases, list | tuple) or not all(isinstance(case, dict) for case in cases):
        raise FrameError("step frame: 'judged.cases' is not a list of objects")
    return Judged(
        verdict=_typed(value, "verdict", str),
        message=_optional(value, "message", str),
        assurance=_strings(value, "assurance"),
        details=details,
        announced=_optional(value, "announced", int),
        cases=tuple(cases),
    )


def _typed(message: Mapping[str, Any], key: str, kind: type[Any]) -> Any:  # noqa: ANN401 the checked type is `kind`
    value = message[key]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise FrameError(f"{key!r} is {type(value).__name__}, expected {kind.__name__}")
    return value


def _optional(message: Mapping[str, Any], key: str, kind: type[Any]) -> Any:  # noqa: ANN401 the checked type is `kind`
    return None if message.get(key) is None else _typed(message, key, kind)


def _strings(message: Mapping[str, Any], key: str) -> dict[str, str]:
    value = message[key]
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise FrameError(f"{key!r} is not an object of strings")
    return value


def _words(message: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = message[key]
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise FrameError(f"{key!r} is not a list of strings")
    return tuple(item[:100] for item in value[:32])


def _number(message: Mapping[str, Any], key: str) -> float | None:
    value = message[key]
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise FrameError(f"{key!r} is {type(value).__name__}, expected a number")
    return value
