"""Forms and the one file of a submission, from bodies that anyone may have made. All stays in memory, bounded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

from runner.gateway.context import Refusal, door, problem

#: The longest file that the queue takes.
SOURCE_BYTES: Final = 1_000_000
_PARTS: Final = 16
_HEADER_BYTES: Final = 4096
_BOUNDARY_BYTES: Final = 256


@dataclass(frozen=True, kw_only=True)
class Upload:
    """A file as it came."""

    name: str
    code: bytes
    #: The other parts, as text.
    fields: Mapping[str, str]


@dataclass
class _Part:
    """The part that is being read."""

    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    header_name: bytearray = field(default_factory=bytearray)
    header_value: bytearray = field(default_factory=bytearray)


class _Reader:
    """Collects the parts of a body."""

    def __init__(self) -> None:
        self.parts: list[_Part] = []
        self.ended = False

    def callbacks(self) -> dict[str, object]:
        """What the parser calls."""
        return {
            "on_part_begin": self._begin,
            "on_part_data": lambda data, start, end: self.parts[-1].body.extend(data[start:end]),
            "on_header_field": self._name,
            "on_header_value": self._value,
            "on_header_end": self._header,
            "on_end": self._end,
        }

    def _begin(self) -> None:
        if len(self.parts) >= _PARTS:
            raise FormParserError("too many parts")
        self.parts.append(_Part())

    def _name(self, data: bytes, start: int, end: int) -> None:
        self._append(self.parts[-1].header_name, data[start:end])

    def _value(self, data: bytes, start: int, end: int) -> None:
        self._append(self.parts[-1].header_value, data[start:end])

    def _append(self, target: bytearray, data: bytes) -> None:
        if len(target) + len(data) > _HEADER_BYTES:
            raise FormParserError("a header is too long")
        target.extend(data)

    def _header(self) -> None:
        part = self.parts[-1]
        if len(part.headers) < _PARTS:
            part.headers[bytes(part.header_name).lower()] = bytes(part.header_value)
        part.header_name.clear()
        part.header_value.clear()

    def _end(self) -> None:
        self.ended = True


async def upload(request: Request, *, part: str = "file") -> Upload:
    """The part `file` of a multipart body.

    Raises:
        Refusal: 422 without such a part, 400 for a body that is none, 413 for a file that is too large.
    """
    async with door(request).limits.bodies:
        fields, files = await _read(request)
    if part not in files:
        raise Refusal(422, [problem("missing", f"body.{part}", "Field required", None)])
    name, code = files[part]
    if len(code) > SOURCE_BYTES:
        raise Refusal(413, f"The file is too large: at most {SOURCE_BYTES} bytes")
    return Upload(name=_bare(name), code=code, fields=fields)


async def form(request: Request) -> Mapping[str, str]:
    """The text fields of a page's form.

    Raises:
        Refusal: 400 for a body that is none.
    """
    async with door(request).limits.bodies:
        fields, _ = await _read(request)
    return fields


async def _read(request: Request) -> tuple[dict[str, str], dict[str, tuple[str, bytes]]]:
    """The text fields and the files; of several of a name the first."""
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    body = await request.body()
    if kind == b"application/x-www-form-urlencoded":
        try:
            pairs = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=_PARTS)
        except ValueError:
            raise _unreadable() from None
        return dict(reversed(pairs)), {}
    if kind != b"multipart/form-data":
        return {}, {}
    boundary = options.get(b"boundary", b"")
    if not 0 < len(boundary) <= _BOUNDARY_BYTES:
        raise _unreadable()
    reader = _Reader()
    try:
        parser = MultipartParser(boundary, reader.callbacks())  # type: ignore[arg-type]  # a dictionary of its own kind
        parser.write(body)
        parser.finalize()
    except (FormParserError, ValueError, IndexError, KeyError):
        raise _unreadable() from None
    if not reader.ended:
        raise _unreadable()
    fields: dict[str, str] = {}
    files: dict[str, tuple[str, bytes]] = {}
    for found in reader.parts:
        _, described = parse_options_header(found.headers.get(b"content-disposition", b""))
        name = described.get(b"name", b"").decode("utf-8", "replace")
        if b"filename" in described:
            files.setdefault(name, (_text(described[b"filename"]), bytes(found.body)))
        else:
            fields.setdefault(name, found.body.decode("utf-8", "replace"))
    return fields, files


def _text(name: bytes) -> str:
    try:
        return name.decode("utf-8")
    except UnicodeDecodeError:
        raise Refusal(400, "The file's name is not UTF-8") from None


def _unreadable() -> Refusal:
    return Refusal(400, "The body is not a form that can be read")


def _bare(given: str) -> str:
    """The last part of a path: old clients send one."""
    return given.replace("\\", "/").rpartition("/")[2] or "submission.py"
