"""The protocol between the daemon and init in the container: frames over stdin and stdout. Pure.

A frame is a 4-byte big-endian length and that many bytes of UTF-8 JSON: one object with a `type`. Keys that end in
`_b64` hold bytes as base64. Both sides check the length before they read the body.

Daemon to container: one `request`. If it announces a build archive, that archive follows in `archive` frames. While a
judge works, the daemon may send any number of `reading` frames with the state of the devices. The daemon keeps stdin
open until it has the `end` frame and has read the cgroup's counters. An earlier end of file means that the daemon is
gone; then init ends the container. After the `end` frame, with `ok`, of a `stay_open` request it may send a further
request within a minute, whose report follows likewise without `ready`.

Container to daemon, in this order: `imported` once, if it has yet to get its own cores; `ready` once, before init reads
the request; any number of `progress`, `step` and `artifact`; any number of `archive`, if the request asks for a build
archive; one `end`.

    {"type": "imported"}              the libraries are imported, on other cores
    {"type": "ready",    ...Ready}
    {"type": "prepared"}              its judge waits for a request, all imported
    {"type": "progress", ...Progress} in cases; total 0: only the program knows it
    {"type": "step",     ...StepResult}
    {"type": "artifact", ...Artifact}
    {"type": "archive",  ...ArchivePiece}
    {"type": "end",      ...End}

A build archive holds the files that a build, or compilers in a run, leave behind (`sandbox.inside.build_archive`). One
container packs it, another unpacks it. A submission made its content, so the daemon counts its bytes and never reads
them.

Containers import this module too, so it uses the standard library only.
"""

from __future__ import annotations

import base64
import binascii
import functools
import json
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, Self, TypeVar, Union, get_args, get_origin, get_type_hints

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
#: Keys that a frame has beside the fields of its record.
_FRAME_KEYS = frozenset({"type", "protocol", "kind"})
_Record = TypeVar("_Record")


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

    def allow(self, more_bytes: int) -> None:
        """Raise the limit of the whole stream."""
        if self._max_total is not None:
            self._max_total += more_bytes

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
    except (ValueError, RecursionError) as error:
        raise FrameError(f"frame is not JSON: {error}") from error
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise FrameError("frame is not an object with a 'type'")
    return message


def to_b64(data: bytes) -> str:
    """Encode bytes for a frame."""
    return base64.b64encode(data).decode("ascii")


def written(value: Any) -> Any:  # noqa: ANN401 whatever a record holds
    """A record, or a value of one, in JSON's types: bytes as base64, under a key that ends in `_b64`."""
    if is_dataclass(value):
        return {key: written(getattr(value, item.name)) for key, item in _keys(type(value)).items()}  # type: ignore[arg-type]
    if isinstance(value, Mapping):
        return {key: written(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [written(item) for item in value]
    return to_b64(value) if isinstance(value, bytes) else value


def read(kind: type[_Record], values: object, what: str) -> _Record:
    """A record from a JSON object: each value is checked against its field's type. Fields with a default may lack.

    Raises:
        FrameError: a missing or unknown key, or a value of the wrong type. `what` names the object in the message.
    """
    if not isinstance(values, Mapping):
        raise FrameError(f"{what} is {type(values).__name__}, expected an object")
    keys = _keys(kind)  # type: ignore[arg-type]  # a class can be hashed
    unknown = sorted(map(str, values.keys() - keys.keys() - _FRAME_KEYS))
    if unknown:
        raise FrameError(f"{what} has an unknown key {unknown[0]!r}")
    given = {}
    for key, item in keys.items():
        if key in values:
            given[item.name] = _checked(item.type, values[key], f"{what}: {key!r}")
        elif item.default is MISSING and item.default_factory is MISSING:
            raise FrameError(f"{what} lacks {key!r}")
    return kind(**given)


@dataclass(frozen=True)
class _Field:
    name: str
    type: Any
    default: Any
    default_factory: Any


@functools.cache
def _keys(kind: type[Any]) -> Mapping[str, _Field]:
    """A record's fields by their keys in JSON."""
    hints = get_type_hints(kind)
    items = [_Field(item.name, hints[item.name], item.default, item.default_factory) for item in fields(kind)]
    return {f"{item.name}_b64" if item.type is bytes else item.name: item for item in items}


def _checked(hint: Any, value: Any, what: str) -> Any:  # noqa: ANN401, PLR0911 one branch per kind of type
    arguments, origin = get_args(hint), get_origin(hint)
    if origin in (Union, UnionType):
        (kind,) = (each for each in arguments if each is not NoneType)
        return None if value is None else _checked(kind, value, what)
    if hint is Any or (origin is Literal and value in arguments):
        return value
    if is_dataclass(hint):
        return read(hint, value, what)  # type: ignore[arg-type]  # a class
    if origin is tuple and isinstance(value, list | tuple) and (arguments[-1] is ... or len(value) == len(arguments)):
        kinds = arguments[:1] * len(value) if arguments[-1] is ... else arguments
        return tuple(_checked(each, item, what) for each, item in zip(kinds, value, strict=True))
    if origin is Mapping and isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _checked(arguments[1], item, what) for key, item in value.items()}
    if hint is bytes:
        return from_b64(_checked(str, value, what))
    accepted = (int, float) if hint is float else hint if origin is None else ()
    if not isinstance(value, accepted) or (isinstance(value, bool) and hint is not bool):
        expected = hint.__name__ if origin is None else str(hint).replace("collections.abc.", "")
        raise FrameError(f"{what} is {type(value).__name__}, expected {expected}")
    return value


def from_b64(text: str) -> bytes:
    """Decode base64.

    Raises:
        FrameError: it is none.
    """
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise FrameError(f"not base64: {error}") from error


class Frame:
    """A record that is a frame of its own."""

    TYPE: ClassVar[str]

    def to_message(self) -> dict[str, Any]:
        """The frame."""
        return {"type": self.TYPE, **written(self)}

    @classmethod
    def from_message(cls, message: object) -> Self:
        """Read a frame; FrameError: see `read`."""
        return read(cls, message, f"{cls.TYPE} frame")


class _Request(Frame):
    TYPE = "request"
    KIND: ClassVar[str]

    def to_message(self) -> dict[str, Any]:
        """The `request` frame."""
        return {**super().to_message(), "protocol": VERSION, "kind": self.KIND}


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
    continue_if: Literal["always", "passed", "exit_0"] = "always"
    #: Files that the program may leave behind; those that are there are sent back as artifacts.
    artifacts: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StepsRequest(_Request):
    """Programs to run one after the other (boot kind `steps`)."""

    KIND = "steps"

    #: Written to /work first: relative POSIX name -> bytes.
    files: Mapping[str, bytes]
    steps: tuple[Step, ...]
    #: Names below /work that come back as a build archive if no step was killed, and none ended the request by its
    #: `continue_if`. Missing names do no harm.
    keep: tuple[str, ...] = ()
    #: Size of the build archive that follows and is unpacked in /work first; 0: none follows.
    archive_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class PairRequest(_Request):
    """A request for the judge (boot kind `pair`). Init forwards `payload` without reading it."""

    KIND = "pair"

    payload: Mapping[str, Any]
    #: None: one worker, which runs already. Else so many workers, and as many rank checkers; init starts what lacks.
    ranks: int | None = None
    #: As in StepsRequest.
    archive_bytes: int = 0
    #: Whether the judge may ask for further workers, one after the other, each in the place of the last.
    successive: bool = False
    #: Whether a further request may follow, which gets new processes in a container that was emptied.
    stay_open: bool = False
    #: As in StepsRequest, if the judge accepted every mode; packed after its end.
    keep: tuple[str, ...] = ()
    #: Of a successive request: the parts of the archive in their order, name -> size. Each is an archive of its own,
    #: which init unpacks in /work when the judge asks for it by name. None is unpacked before.
    archives: Mapping[str, int] = field(default_factory=dict)


Request = StepsRequest | PairRequest


@dataclass(frozen=True, kw_only=True)
class Ready(Frame):
    """What init observes of its container, before it reads the request."""

    TYPE = "ready"

    protocol: int = VERSION
    facts: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Progress(Frame):
    """Progress within a phase."""

    TYPE = "progress"

    phase: str
    done: int
    total: int


@dataclass(frozen=True, kw_only=True)
class Reading(Frame):
    """The state of a slot's device at one moment, as the daemon observes it from outside."""

    TYPE = "reading"

    #: On the host's monotonic clock; None: the time of arrival.
    at_ns: int | None = None
    #: Reasons for low clocks: `held` makes a time worthless, `noted` does not.
    held: tuple[str, ...] = ()
    noted: tuple[str, ...] = ()
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None


@dataclass(frozen=True, kw_only=True)
class Artifact(Frame):
    """A file that comes back with the report."""

    TYPE = "artifact"

    name: str
    media_type: str
    data: bytes


@dataclass(frozen=True, kw_only=True)
class ArchivePiece(Frame):
    """One piece of a build archive, in order."""

    TYPE = "archive"

    data: bytes
    #: Why there is no archive, even if pieces came before; None: there is one.
    refused: str | None = None


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


@dataclass(frozen=True, kw_only=True)
class End(Frame):
    """The last frame of a report."""

    TYPE = "end"

    #: False: the harness itself failed, and `message` says how.
    ok: bool
    message: str | None
    #: What of the author's ended the judge's process, if anything did.
    author_exit: AuthorExit | None = None


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
class StepResult(Frame):
    """The result of one finished program, or of one mode that the judge ran."""

    TYPE = "step"

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
