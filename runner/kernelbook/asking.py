"""Asking a model, many rows at a time, through any endpoint that speaks OpenAI's chat protocol.

Retries are ours, so that they are counted and obey Retry-After. A request is retried with full jitter after 408, 409,
429 and 5xx, cut connections and time-outs, and after an answer that the step cannot use. 401, 402 and 403 end the step
at once, since no later request would fare better. So do many failures in a row, since then the service is down.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

from runner.errors import ConfigError, InfrastructureError, KernelRunnerError

from .journal import Answer, request_of
from .report import Account

if TYPE_CHECKING:
    # It takes a second to load, and a run that finds all answers in the journal does not need it.
    import openai

#: https://docs.primeintellect.ai/inference/overview
PRIME_URL: Final = "https://api.pinference.ai/api/v1"
_STOP: Final = (401, 402, 403)
_AGAIN: Final = (408, 409, 425, 429)
#: Seconds: the first bound of a wait, the longest bound, and the longest wait that a service may ask for.
_FIRST_WAIT_S, _LONGEST_WAIT_S, _LONGEST_ASKED_FOR_S = 0.5, 120.0, 3600.0
#: Requests that fail one after the other before the service counts as down.
_DOWN_AFTER: Final = 50
#: Requests at a time of one client.
_POOL: Final = 64
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
    api_key: str
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

    def clients(self) -> list[openai.AsyncOpenAI]:
        """Clients, as many for each address; requests are to be shared among them evenly.

        Raises:
            ConfigError: see `require_key`.
        """
        import openai

        self.require_key()
        headers = {} if self.team_id is None else {"X-Prime-Team-ID": self.team_id}
        # The library keeps 100 connections open, and for each request it looks at all of them: so several pools, each
        # large enough for its share.
        pools = -(-self.concurrency // (_POOL * len(self.urls)))
        limits = type(openai.DEFAULT_CONNECTION_LIMITS)(max_connections=2 * _POOL, max_keepalive_connections=2 * _POOL)
        return [
            openai.AsyncOpenAI(
                base_url=url,
                api_key=self.api_key,
                default_headers=headers,
                max_retries=0,
                timeout=self.timeout_s,
                http_client=openai.DefaultAsyncHttpxClient(limits=limits),
            )
            for _ in range(pools)
            for url in self.urls
        ]


@dataclass(frozen=True, kw_only=True)
class Request:
    """One question."""

    messages: Sequence[Message]
    #: Such as temperature and max_tokens.
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def name(self, model: str) -> str:
        """What the journal calls it."""
        return request_of(model, self.messages, self.parameters)


class Keeper(Protocol):
    """Keeps answers: a journal, or what passes them on to one."""

    def find(self, step: str, request: str) -> Answer | None:
        """The answer to a request, if it is there."""

    def keep(self, step: str, request: str, answer: Answer) -> None:
        """Keep an answer."""


class Asker:
    """Asks all requests of a step that the journal does not answer.

    Args:
        check: of the step.
        told: called after each request, answered now or before.
    """

    def __init__(
        self, endpoint: Endpoint, journal: Keeper, *, step: str, check: Check, told: Callable[[], None] = lambda: None
    ) -> None:
        self._endpoint = endpoint
        self._journal = journal
        self._step = step
        self._check = check
        self._told = told
        self._failed = 0
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
        clients: list[openai.AsyncOpenAI] = []
        seen: set[str] = set()
        pending = iter(requests)

        async def work(index: int) -> None:
            for request in pending:
                name = request.name(self._endpoint.model)
                if name in seen:
                    self._told()
                    continue
                seen.add(name)
                if self._journal.find(self._step, name) is not None:
                    self.account.from_journal += 1
                    self._told()
                    # A rerun finds most of them: the others must be sent meanwhile.
                    await asyncio.sleep(0)
                    continue
                if not clients:
                    clients.extend(self._endpoint.clients())
                answer = await self._answer(clients[index % len(clients)], request)
                if answer.text is None and not answer.good:
                    self.unanswered[name] = answer.why_not or ""
                else:
                    self._journal.keep(self._step, name, answer)
                self._told()

        try:
            async with asyncio.TaskGroup() as group:
                for index in range(self._endpoint.concurrency):
                    group.create_task(work(index))
        except* KernelRunnerError as stopped:
            raise _first(stopped) from None
        finally:
            for client in clients:
                await client.close()

    async def _answer(self, client: openai.AsyncOpenAI, request: Request) -> Answer:
        import openai

        text: str | None = None
        why_not = "no answer"
        tokens_in = tokens_out = 0
        self.account.asked += 1
        for tried in range(1, self._endpoint.tries + 1):
            asked_for_s: float | None = None
            began = time.monotonic()
            try:
                reply = await client.chat.completions.create(
                    model=self._endpoint.model,
                    messages=list(request.messages),  # type: ignore[arg-type]  # plain dictionaries, as the wire has them
                    **request.parameters,
                )
            except openai.APIStatusError as error:
                status = error.status_code
                why_not = f"HTTP {status}: {_said(error)}"
                if status in _STOP:
                    raise ServiceStopped(
                        f"{client.base_url} answers {why_not}; nothing more is asked. What was answered is in the "
                        "journal: mend the key, the team or the balance and run this again"
                    ) from error
                if status not in _AGAIN and status < 500:
                    self.account.refused += 1
                    return Answer(good=False, text="", why_not=why_not, tries=tried)
                text, asked_for_s = None, _retry_after(error)
                self._count_failure(client, why_not)
            except openai.APIError as error:
                text, why_not = None, f"{type(error).__name__}: {error}"
                self._count_failure(client, why_not)
            else:
                self._failed = 0
                if reply.usage is not None:
                    tokens_in += reply.usage.prompt_tokens
                    tokens_out += reply.usage.completion_tokens
                    self.account.tokens_in += reply.usage.prompt_tokens
                    self.account.tokens_out += reply.usage.completion_tokens
                text = (reply.choices[0].message.content if reply.choices else None) or ""
                found = self._check(text) if text.strip() else "the answer has no content"
                if found is None:
                    return Answer(
                        good=True,
                        text=text,
                        reasoning=_reasoning(reply.choices[0].message),
                        took_ms=round((time.monotonic() - began) * 1e3, 1),
                        tries=tried,
                        tokens_in=tokens_in,
                        tokens_out=tokens_out,
                    )
                why_not = found
            if tried < self._endpoint.tries:
                self.account.retries += 1
                await asyncio.sleep(_wait_s(tried, asked_for_s, why_not))
        self.account.refused += 1
        # What no later try can mend has a text, if only an empty one.
        return Answer(
            good=False,
            text=text,
            why_not=why_not,
            tries=self._endpoint.tries,
            tokens_in=tokens_in,
            tokens_out=tokens_out,
        )

    def _count_failure(self, client: openai.AsyncOpenAI, why_not: str) -> None:
        self._failed += 1
        if self._failed >= max(_DOWN_AFTER, 2 * self._endpoint.concurrency):
            raise ServiceStopped(
                f"{client.base_url} does not work: {self._failed} requests in a row failed, the last with {why_not}. "
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


def _first(group: BaseExceptionGroup[KernelRunnerError]) -> KernelRunnerError:
    """The first error that one of the project's is."""
    found = group.exceptions[0]
    return _first(found) if isinstance(found, BaseExceptionGroup) else found


def _retry_after(error: openai.APIStatusError) -> float | None:
    """Seconds of a Retry-After header, which may be a date."""
    told = error.response.headers.get("retry-after")
    if told is None:
        return None
    try:
        return max(0.0, float(told))
    except ValueError:
        try:
            return max(0.0, (parsedate_to_datetime(told) - datetime.now(UTC)).total_seconds())
        except (TypeError, ValueError):
            return None


def _reasoning(message: object) -> str | None:
    """What the model thought: no part of the protocol, but endpoints send it under one of these names."""
    found = (getattr(message, name, None) for name in ("reasoning_content", "reasoning"))
    return next((text for text in found if isinstance(text, str) and text), None)


def _said(error: openai.APIStatusError) -> str:
    body = error.body
    message = body.get("message") if isinstance(body, Mapping) else None
    return str(message or error.message)[:300]
