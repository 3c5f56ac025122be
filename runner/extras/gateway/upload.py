"""Forms and the one file of a submission, from bodies that anyone may have made: bounded, in memory, parsed by threads.

`runner.extras.gateway.limits` bounds the body; here are the bounds of its parts.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from python_multipart.exceptions import FormParserError
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import Request

from runner.extras.gateway.context import PLAIN_BYTES, Refusal, app_state, bounded, problem

#: The longest file that the queue takes.
SOURCE_BYTES: Final = 1_000_000
_PARTS: Final = 16
#: No text is longer than a file; what the parser is to keep in memory, is kept there.
_PART_BYTES: Final = 1 << 20
#: Values of Content-Transfer-Encoding that leave a file as it is; the parser decodes none.
_PLAIN: Final = frozenset(("7bit", "8bit", "binary"))


@dataclass(frozen=True, kw_only=True)
class Upload:
    """A file as it came."""

    name: str
    code: bytes
    #: The other parts, as text.
    fields: Mapping[str, str]


async def upload(request: Request, user_id: str, *, part: str = "file") -> Upload:
    """The part `file` of a multipart body that a user sends.

    Raises:
        Refusal: 422 without such a part, 400 for a body that is none or a file in a transfer encoding, 413 for a file
            that is too large, 429.
    """
    limits = app_state(request).limits
    if not limits.uploads.open(user_id):
        raise Refusal(429, "Too many files are on their way. Send them one after another.", retry_after_s=5)
    try:
        async with limits.bodies:
            fields, files = await _read(request)
    finally:
        limits.uploads.close(user_id)
    if part not in files:
        raise Refusal(422, [problem("missing", f"body.{part}", "Field required", None)])
    name, code = files[part]
    if len(code) > SOURCE_BYTES:
        raise Refusal(413, f"The file is too large: at most {SOURCE_BYTES} bytes")
    # Old clients send a path.
    bare = name.replace("\\", "/").rpartition("/")[2]
    return Upload(name=bare or "submission.py", code=code, fields=fields)


def is_multipart(request: Request) -> bool:
    """Whether a body says that it is a form that may have files."""
    return request.headers.get("content-type", "").lower().startswith("multipart/")


async def form(request: Request) -> Mapping[str, str]:
    """The text fields of a page's form, which anybody may send: it is small, and waits for no file.

    Raises:
        Refusal: 400 for a body that is none, 413.
    """
    length = request.headers.get("content-length", "")
    if not re.fullmatch("[0-9]{1,9}", length) or int(length) > PLAIN_BYTES:
        raise Refusal(413, f"A form has at most {PLAIN_BYTES} bytes, and says how many (Content-Length)")
    fields, _ = await _read(request)
    return fields


async def _read(request: Request) -> tuple[dict[str, str], dict[str, tuple[str, bytes]]]:
    """The text fields and the files; of several of a name the first."""
    fields: dict[str, str] = {}
    files: dict[str, tuple[str, bytes]] = {}
    # The whole body first: a client that is refused meanwhile would not read why.
    body = await request.body()
    if not is_multipart(request):
        bounded(body)
    try:
        # Parsing takes up to a second of a core, as of a body of separators alone.
        for name, value in await asyncio.to_thread(_parsed, request):
            if isinstance(value, str):
                fields.setdefault(_text(name), _text(value))
            else:
                file_name, data = value
                files.setdefault(_text(name), (_text(file_name), data))
    except (HTTPException, MultiPartException, FormParserError, LookupError, ValueError) as error:
        raise Refusal(400, "The body is not a form that can be read") from error
    return fields, files


def _parsed(request: Request) -> list[tuple[str, str | tuple[str, bytes]]]:
    """The parts of a form whose body has been read: name, and text or file name with bytes. For a thread of its own."""

    async def parse() -> list[tuple[str, str | tuple[str, bytes]]]:
        async with request.form(max_files=_PARTS, max_fields=_PARTS, max_part_size=_PART_BYTES) as parts:
            return [
                (name, (value.filename or "", await _data(value)) if isinstance(value, UploadFile) else value)
                for name, value in parts.multi_items()
            ]

    return asyncio.run(parse())


async def _data(file: UploadFile) -> bytes:
    encoding = file.headers.get("content-transfer-encoding", "binary")
    if encoding.strip().lower() not in _PLAIN:
        raise Refusal(400, f"The file is in Content-Transfer-Encoding {encoding[:100]}: send its bytes as they are")
    return await file.read()


def _text(decoded: str) -> str:
    """A text without surrogates, which a body may bring by the character set that it names."""
    return decoded.encode("utf-8", "replace").decode()
