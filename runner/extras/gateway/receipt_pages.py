"""The pages of receipts: one with the verdict of its check, a form that checks any, and the keys of all hosts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from runner.base.errors import ReceiptError
from runner.extras import receipts
from runner.extras.gateway.context import AppState, Ascii, Refusal, app_state, path_number
from runner.extras.gateway.html import page, saved, show
from runner.extras.gateway.identity import Session, from_here
from runner.extras.gateway.limits import Route
from runner.extras.gateway.upload import form
from runner.extras.receipts import HostKey
from runner.store.connection import Row


def routes() -> list[Route]:
    """The routes of these pages."""
    return [
        Route("/keys", keys, methods=["GET"]),
        Route("/receipts", page(any_receipt), methods=["GET", "POST"]),
        Route("/receipts/{id}", page(receipt), methods=["GET"]),
        Route("/receipts/{id}/file", page(file), methods=["GET"]),
    ]


async def keys(request: Request) -> Response:
    """GET /keys: the public keys of all hosts, those that were replaced or revoked too."""
    from_here(request)
    return Ascii(receipts.listed(await _keys(app_state(request))))


async def any_receipt(request: Request, session: Session | None) -> Response:
    """GET and POST /receipts: a form for a receipt, from whomever, and the verdict of its check."""
    checked = None
    if request.method == "POST":
        given = (await form(request)).get("receipt", "").strip(" \r\n")
        checked = await _checked(app_state(request), given)
    return show(request, session, "receipt.html", job_id=None, text="", checked=checked)


async def receipt(request: Request, session: Session | None) -> Response:
    """GET /receipts/{id}: the receipt of a job."""
    row = await _admitted(request, session)
    text = _text(row)
    checked = await _checked(app_state(request), text)
    return show(request, session, "receipt.html", job_id=row["job_id"], text=text, checked=checked)


async def file(request: Request, session: Session | None) -> Response:
    """GET /receipts/{id}/file: the receipt itself."""
    row = await _admitted(request, session)
    return saved(_text(row), f"receipt-{row['job_id']}.json", "application/json")


async def _admitted(request: Request, session: Session | None) -> Row:
    """A job's receipt: everybody's where ranked code is public, else its author's.

    Raises:
        Refusal: 404, the same whether there is none or it is another's.
    """
    job_id = path_number(request, "id")
    row = await app_state(request).store.one("signed_result", job_id=job_id)
    user = None if session is None else session.user
    if row is None or not (row["published"] or (user and (user.operator or user.id == row["user_id"]))):
        raise Refusal(
            404, f"You can see no receipt of job {job_id}: log in if it is yours, check your copy if it was deleted"
        )
    return row


async def _checked(current: AppState, text: str) -> Mapping[str, Any]:
    """What the page says of a receipt."""
    listed = await _keys(current)
    try:
        # Beside the event loop: a megabyte may be pasted.
        whole = await asyncio.to_thread(receipts.read, text)
        statement = await asyncio.to_thread(receipts.check, whole, listed)
    except ReceiptError as error:
        return {"refused": str(error)}
    row = await current.store.one("signed_result", job_id=statement["job_id"])
    wrong, standing = receipts.standing(whole, statement, row)
    return {
        "summary": receipts.summary(statement),
        "wrong": wrong,
        "standing": standing,
        "fields": [(name, value if isinstance(value, str) else json.dumps(value)) for name, value in statement.items()],
    }


def _text(row: Row) -> str:
    return receipts.text_of(row["statement"], row["key"], row["signature"])


async def _keys(current: AppState) -> Sequence[HostKey]:
    return [HostKey(**row) for row in await current.store.all("host_keys")]
