"""The gateway as a client sees it: its JSON, and each failure as a sentence that says what to do."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

import httpx2
from mcp.server.mcpserver.exceptions import ToolError

from runner.base.errors import ConfigError
from runner.extras.environment import environment_explained

_HEADER: Final = "X-Popcorn-Cli-Id"
_CONNECT_S: Final = 10.0
#: Longer than a gateway waits for its database, and than the pause between two signs of life of a stream.
_READ_S: Final = 60.0
#: Between two attempts to reach a gateway.
_PAUSE_S: Final = 1.0
_LAST_PORT: Final = 65535
_NO_ADDRESS: Final = (
    "No address of a gateway is set: ask the leaderboard's operator for it, set it as POPCORN_API_URL in this server's "
    "settings, and start the server again."
)
_HOW_TO_LOG_IN: Final = (
    "ask an operator for one (`kernel-runner user token NAME`) or run `popcorn register`, set it as POPCORN_CLI_ID in "
    "this server's settings or as cli_id in ~/.popcorn.yaml, and start the server again."
)
_WHAT_THERE_IS: Final = "list_leaderboards and my_submissions list what there is."
#: In an address they lead elsewhere.
_NO_NAMES: Final = ("", ".", "..")


class AwayError(ToolError):
    """The gateway gives no answer now; it may in a moment."""

    def __init__(self, message: str, *, retry_after_s: float = _PAUSE_S, unsent: bool = False) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        #: Nothing of the request can have been done.
        self.unsent = unsent


@dataclass(frozen=True, kw_only=True)
class Gateway:
    """A gateway's address and a user's token; either may be missing, which the first call that needs it says."""

    url: str | None
    token: str | None = field(repr=False)

    async def read(self, *path: object, login: bool = False, **query: object) -> Any:  # noqa: ANN401 - JSON
        """The JSON that a GET gives.

        Raises:
            ToolError: the gateway refuses, or is not there.
        """
        return self._json(await self._ask("GET", path, login=login, query=query))

    async def text(self, *path: object, login: bool = False) -> str:
        """A file.

        Raises:
            ToolError: as `read`.
        """
        return (await self._ask("GET", path, login=login)).text

    async def change(self, *path: object, file: tuple[str, bytes] | None = None) -> Any:  # noqa: ANN401 - JSON
        """A POST as the user, with a file if there is one.

        Raises:
            ToolError: as `read`.
        """
        files = None if file is None else {"file": (*file, "application/octet-stream")}
        return self._json(await self._ask("POST", path, login=True, files=files))

    async def follow(self, submission_id: int, *, wait_s: float, tell: Callable[[str], Awaitable[None]]) -> bool:
        """Wait until a submission is over; False: `wait_s` came first. A gateway that goes away is waited for.

        Raises:
            ToolError: the gateway refuses.
        """
        until = time.monotonic() + wait_s
        while (left_s := until - time.monotonic()) > 0:
            try:
                async with asyncio.timeout(left_s), aclosing(self._progress(submission_id)) as changes:
                    async for text, done in changes:
                        if done:
                            return True
                        await tell(text)
            except TimeoutError:
                return False
            except AwayError as error:
                await tell("no answer from the gateway, trying again")
                await asyncio.sleep(min(error.retry_after_s, max(0.0, until - time.monotonic())))
        return False

    async def _progress(self, submission_id: int) -> AsyncGenerator[tuple[str, bool], None]:
        """What a submission is doing and whether it is over, at each change and every quarter of a minute."""
        async with self._client() as client:
            try:
                async with client.stream("GET", f"/view/{submission_id}/events", headers=self._headers()) as answer:
                    if answer.status_code != httpx2.codes.OK:
                        await answer.aread()
                        raise self._refusal(answer)
                    text, done = "waiting", False
                    async for line in answer.aiter_lines():
                        if line.startswith("data: "):
                            event = json.loads(line.removeprefix("data: "))
                            text, done = event["text"], event["done"]
                        elif not line.startswith(":"):
                            continue
                        yield text, done
            except httpx2.TransportError as error:
                raise self._away(error) from error
        # It ends streams when it ends itself, and after an hour.
        await asyncio.sleep(_PAUSE_S)

    async def _ask(
        self,
        method: str,
        path: tuple[object, ...],
        *,
        login: bool,
        query: Mapping[str, object] | None = None,
        files: Mapping[str, tuple[str, bytes, str]] | None = None,
    ) -> httpx2.Response:
        if login and not self.token:
            raise ToolError(f"No token is set: {_HOW_TO_LOG_IN}")
        if wrong := [part for part in map(str, path) if part in _NO_NAMES]:
            raise ToolError(f"There is nothing of the name {wrong[0]!r}: {_WHAT_THERE_IS}")
        given = {key: str(value) for key, value in (query or {}).items() if value is not None}
        address = "/" + "/".join(quote(str(part), safe="") for part in path)
        async with self._client() as client:
            try:
                answer = await client.request(method, address, params=given, files=files, headers=self._headers())
            except httpx2.TransportError as error:
                raise self._away(error) from error
        if answer.status_code >= httpx2.codes.MULTIPLE_CHOICES:
            raise self._refusal(answer)
        return answer

    def _client(self) -> httpx2.AsyncClient:
        if not self.url:
            raise ToolError(_NO_ADDRESS)
        try:
            url = httpx2.URL(self.url)
            usable = url.scheme in ("http", "https") and url.host and (url.port or 0) <= _LAST_PORT
        except httpx2.InvalidURL:
            usable = False
        if not usable:
            raise ToolError(
                f"The gateway's address {self.url!r} (POPCORN_API_URL) cannot be used, expected https://HOST."
            )
        try:
            with environment_explained():
                return httpx2.AsyncClient(base_url=self.url, timeout=httpx2.Timeout(_READ_S, connect=_CONNECT_S))
        except ConfigError as error:
            raise ToolError(f"{error}. Mend it in this server's settings, and start the server again.") from error

    def _headers(self) -> dict[str, str]:
        if not self.token:
            return {}
        if not (self.token.isascii() and self.token.isprintable()):
            # The sentence does not repeat it: a model reads this.
            raise ToolError(f"The token holds a sign that no token has; copy it again, or {_HOW_TO_LOG_IN}")
        return {_HEADER: self.token}

    def _away(self, error: httpx2.TransportError) -> AwayError:
        return AwayError(
            f"The gateway at {self.url} gives no answer ({str(error) or type(error).__name__}): try again in a minute, "
            "and if that does not help, check the address (POPCORN_API_URL).",
            unsent=isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout),
        )

    def _refusal(self, answer: httpx2.Response) -> ToolError:
        status, detail = answer.status_code, self._detail(answer)
        # 429: what was sent is not done. From 500 on it may also be a proxy, before a gateway that starts.
        if status >= httpx2.codes.INTERNAL_SERVER_ERROR or (
            status == httpx2.codes.TOO_MANY_REQUESTS and answer.request.method == "GET"
        ):
            after = answer.headers.get("Retry-After", "")
            return AwayError(
                detail or f"The gateway at {self.url} does not work now (answer {status}): try again in a minute.",
                retry_after_s=float(after) if after.isdecimal() else _PAUSE_S,
            )
        if answer.has_redirect_location:
            return ToolError(
                f"The address {self.url} leads on to {answer.headers['Location']}: set POPCORN_API_URL to where the "
                "gateway is, and start the server again."
            )
        # Of what has no such route, as KernelBot's API; a gateway says what is not there.
        if detail is None or (status, detail) == (httpx2.codes.NOT_FOUND, "Not Found"):
            return self._stranger()
        if status == httpx2.codes.UNAUTHORIZED:
            if self.token:
                return ToolError(f"The gateway does not know this token ({detail}): {_HOW_TO_LOG_IN}")
            return ToolError(f"{detail.rstrip('.')}, and no token is set: {_HOW_TO_LOG_IN}")
        if status in (httpx2.codes.NOT_FOUND, httpx2.codes.METHOD_NOT_ALLOWED):
            detail = f"{detail.rstrip('.')}: {_WHAT_THERE_IS}"
        return ToolError(detail)

    def _detail(self, answer: httpx2.Response) -> str | None:
        """Why the gateway refuses; None: it is no gateway."""
        try:
            detail = answer.json()["detail"]
            if isinstance(detail, list):
                return "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in detail)
        except (ValueError, LookupError, TypeError):
            return None
        return str(detail)

    def _json(self, answer: httpx2.Response) -> Any:  # noqa: ANN401 - whatever it says
        try:
            return answer.json()
        except ValueError:
            raise self._stranger() from None

    def _stranger(self) -> ToolError:
        return ToolError(
            f"What answers at {self.url} is no gateway of kernel-runner: check the address (POPCORN_API_URL)."
        )
