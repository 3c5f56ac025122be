"""Asking a model, many rows at a time, through any endpoint that speaks OpenAI's chat protocol.

`completion.decide` says what an answer is. The journal keeps what a model said, usable or not, and nothing else: the
next run asks again what the service failed.

A request is tried again with full jitter, after Retry-After, when the service failed or the step cannot use the answer;
not so where the service refuses the request itself (400, 413, 422). 401, 402 and 403 end the step, since no later
request would fare better. So do many failures in a row, since then the service is down. Requests in flight are paid
for: a step that ends waits a while for their answers.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final

from runner.base.errors import ConfigError, InfrastructureError
from runner.extras.environment import environment_explained

from .completion import Completion, Failure, decide
from .journal import Answer, Journal, request_of
from .report import Account

if TYPE_CHECKING:
    # It takes a while to load, and a run that finds all answers in the journal does not need it.
    import httpx2

#: https://docs.primeintellect.ai/inference/overview
PRIME_URL: Final = "https://api.pinference.ai/api/v1"
_FIRST_WAIT_S: Final = 0.5
_LONGEST_WAIT_S: Final = 120.0
#: The longest wait that a service may ask for.
_LONGEST_ASKED_FOR_S: Final = 3600.0
#: Requests that fail one after the other before the service counts as down.
_DOWN_AFTER: Final = 50
#: What is read of an answer at most. The longest completions have a hundredth of it.
_MOST_BYTES: Final = 32 << 20
#: How long a step that ends waits for requests in flight.
_IN_FLIGHT_S: Final = 60.0
_random = random.SystemRandom()

Message = Mapping[str, str]
#: The reason why an answer cannot be used; None: it can.
Check = Callable[[str], str | None]


class ServiceStopped(InfrastructureError):
    """The endpoint refuses, or does not work. All answers so far are in the journal."""


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where to ask."""

    urls: Sequence[str]
    api_key: str = field(repr=False)
    team_id: str | None = None
    model: str
    #: Requests at a time, over all addresses.
    concurrency: int = 256
    #: Tries of a request, malformed answers included.
    tries: int = 3
    timeout_s: float = 600.0

    def require_key(self) -> None:
        """Make sure that there is a key.

        Raises:
            ConfigError: there is none.
        """
        if not self.api_key:
            raise ConfigError("no API key: set PRIME_API_KEY in the environment or in .env")

    def clients(self) -> list[Service]:
        """A client for each address; requests are to be shared among them evenly.

        Raises:
            ConfigError: see `require_key`; or the environment's proxy or certificates cannot be used.
        """
        import httpx2

        self.require_key()
        headers = {"Authorization": f"Bearer {self.api_key}", "User-Agent": "kernel-runner"}
        if self.team_id is not None:
            headers["X-Prime-Team-ID"] = self.team_id
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
        with environment_explained():
            return [
                Service(
                    url=url,
                    timeout_s=self.timeout_s,
                    # The whole request has one limit of time.
                    http=httpx2.AsyncClient(headers=headers, limits=limits, timeout=None, follow_redirects=True),
                )
                for url in self.urls
            ]


@dataclass(frozen=True, kw_only=True)
class Service:
    """An address, and connections to it."""

    url: str
    timeout_s: float
    http: httpx2.AsyncClient

    async def post(self, body: Mapping[str, Any]) -> tuple[Completion | Failure, float | None]:
        """Ask once: what came back, and the seconds that the service asks to wait. Never raises for what it says."""
        import httpx2

        # ASCII: a row may hold half a character, which JSON can say and UTF-8 cannot.
        content = json.dumps(body).encode("ascii")
        headers = {"Content-Type": "application/json"}
        try:
            async with (
                asyncio.timeout(self.timeout_s),
                self.http.stream("POST", f"{self.url}/chat/completions", content=content, headers=headers) as response,
            ):
                body_bytes = bytearray()
                async for part in response.aiter_bytes():
                    body_bytes += part
                    if len(body_bytes) > _MOST_BYTES:
                        why = f"HTTP {response.status_code}: the answer is longer than {_MOST_BYTES} bytes"
                        return Failure(why=why), None
        except TimeoutError:
            return Failure(why=f"no answer in {self.timeout_s:g} s"), None
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
            return Failure(why=f"{type(error).__name__}: {error}".rstrip(": ")), None
        return decide(response.status_code, bytes(body_bytes)), _retry_after(response.headers.get("retry-after"))


@dataclass(frozen=True, kw_only=True)
class Request:
    """One question."""

    messages: Sequence[Message]
    #: Such as temperature and max_tokens.
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def name(self, model: str) -> str:
        """What the journal calls it."""
        return request_of(model, self.messages, self.parameters)


class Asker:
    """Asks all requests of a step that the journal does not answer.

    `progress`: called after each request, answered now or before.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        journal: Journal,
        *,
        step: str,
        check: Check,
        progress: Callable[[], None] = lambda: None,
    ) -> None:
        self._endpoint = endpoint
        self._journal = journal
        self._step = step
        self._check = check
        self._progress = progress
        self._failed = 0
        self._stopping = asyncio.Event()
        self.account = Account()
        #: Requests that the service failed, and how it did. They are in no journal, so a rerun asks them again.
        self.unanswered: dict[str, str] = {}

    def ask(self, requests: Iterable[Request]) -> None:
        """Ask, and keep every answer in the journal as it comes. Requests are drawn as they can be sent.

        Raises:
            ServiceStopped: see the class.
            ConfigError: something must be asked, and there is no key.
            DataError: a row that a request is made of cannot be read.
        """
        asyncio.run(self._ask(requests))

    async def _ask(self, requests: Iterable[Request]) -> None:
        services: list[Service] = []
        seen: set[str] = set()
        pending = iter(requests)

        async def work(index: int) -> None:
            for request in pending:
                name = request.name(self._endpoint.model)
                if name in seen:
                    self._progress()
                    continue
                seen.add(name)
                if self._journal.find(self._step, name) is not None:
                    self.account.from_journal += 1
                    self._progress()
                    # A rerun finds most of them: the others must be sent meanwhile.
                    await asyncio.sleep(0)
                    continue
                if not services:
                    services.extend(self._endpoint.clients())
                answer = await self._answer(services[index % len(services)], request)
                if isinstance(answer, Failure):
                    self.unanswered[name] = answer.why
                else:
                    self._journal.keep(self._step, name, answer)
                self._progress()
                if self._stopping.is_set():
                    return

        self._stopping = asyncio.Event()
        workers = [asyncio.create_task(work(index)) for index in range(self._endpoint.concurrency)]
        try:
            await self._wait(workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            await asyncio.gather(*(service.http.aclose() for service in services))

    async def _wait(self, workers: Sequence[asyncio.Task[None]]) -> None:
        """Wait for all workers; after the first that failed the others keep what is in flight, and ask no more."""
        done, in_flight = await asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION)
        if in_flight:
            self._stopping.set()
            await asyncio.wait(in_flight, timeout=_IN_FLIGHT_S)
        for worker in done:
            worker.result()

    async def _answer(self, service: Service, request: Request) -> Answer | Failure:
        tokens_in = tokens_out = 0
        self.account.asked += 1
        body = {"model": self._endpoint.model, "messages": list(request.messages), **request.parameters}
        for tried in range(1, self._endpoint.tries + 1):
            began = time.monotonic()
            reply, asked_for_s = await service.post(body)
            answer: Answer | Failure
            if isinstance(reply, Failure):
                answer, why_not = reply, reply.why
                if reply.stops:
                    raise ServiceStopped(
                        f"{service.url} answers {why_not}; nothing more is asked. What was answered is in the "
                        "journal: mend the key, the team or the balance and run this again"
                    )
                if reply.is_refusal:
                    break
                self._count_failure(service, why_not)
            else:
                self._failed = 0
                tokens_in += reply.tokens_in
                tokens_out += reply.tokens_out
                self.account.tokens_in += reply.tokens_in
                self.account.tokens_out += reply.tokens_out
                why_not = reply.why_empty or self._check(reply.text) or ""
                if why_not and reply.why_empty is None and reply.finish_reason == "length":
                    why_not += " (cut: finish_reason length)"
                answer = Answer(
                    good=not why_not,
                    text=reply.text,
                    why_not=why_not or None,
                    reasoning=reply.reasoning,
                    took_ms=round((time.monotonic() - began) * 1e3, 1),
                    tries=tried,
                    tokens_in=tokens_in,
                    tokens_out=tokens_out,
                )
                if answer.good:
                    return answer
            if tried == self._endpoint.tries or self._stopping.is_set():
                break
            self.account.retries += 1
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), _wait_s(tried, asked_for_s, why_not))
                break
        self.account.refused += 1
        return answer

    def _count_failure(self, service: Service, why_not: str) -> None:
        self._failed += 1
        if self._failed >= max(_DOWN_AFTER, 2 * self._endpoint.concurrency):
            raise ServiceStopped(
                f"{service.url} does not work: {self._failed} requests in a row failed, the last with {why_not}. "
                "All answers so far are in the journal: run this again later"
            )


def _wait_s(tried: int, asked_for_s: float | None, why_not: str = "") -> float:
    """Full jitter below a bound that doubles, after what the service asks for.

    Raises:
        ServiceStopped: it asks for too much.
    """
    if asked_for_s is not None and asked_for_s > _LONGEST_ASKED_FOR_S:
        raise ServiceStopped(
            f"the endpoint asks for a pause of {asked_for_s:.0f} s ({why_not}). All answers so far are in the journal: "
            "run this again after it"
        )
    bound_s = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2**tried)
    return (asked_for_s or 0.0) + _random.uniform(0.0, bound_s)


def _retry_after(header: str | None) -> float | None:
    """Seconds of a Retry-After header, which may be a date."""
    if header is None:
        return None
    try:
        return max(0.0, float(header))
    except ValueError:
        try:
            return max(0.0, (parsedate_to_datetime(header) - datetime.now(UTC)).total_seconds())
        except (TypeError, ValueError):
            return None
