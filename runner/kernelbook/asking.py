"""Asking a model, many rows at a time, through any endpoint that speaks OpenAI's chat protocol.

Retries are ours, so that they are counted and heed Retry-After: with full jitter after 408, 409, 429 and 5xx, cut
connections and time-outs; the same for an answer that the step cannot use. 401, 402 and 403 end the step at once, since
no later request would fare better; so do many failures in a row, since then the service is down.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

import openai

from runner.errors import ConfigError, InfrastructureError

from .journal import Answer, Journal, request_of

#: https://docs.primeintellect.ai/inference/overview
PRIME_URL: Final = "https://api.pinference.ai/api/v1"
_STOP: Final = (401, 402, 403)
_AGAIN: Final = (408, 409, 425, 429)
#: Seconds: the first bound of a wait, and the longest that is waited, asked for or not.
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 120.0
#: Requests that fail one after the other before the service counts as down.
_DOWN_AFTER: Final = 50
_random = random.SystemRandom()

Message = Mapping[str, str]
#: The reason why an answer cannot be used; None: it can.
Check = Callable[[str], str | None]


class ServiceStopped(InfrastructureError):
    """The endpoint refuses, or does not work. What was answered is in the journal."""


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

    def clients(self) -> list[openai.AsyncOpenAI]:
        """A client for each address.

        Raises:
            ConfigError: there is no key.
        """
        if not self.api_key:
            raise ConfigError("no API key: set PRIME_API_KEY in the environment or in .env")
        headers = {} if self.team_id is None else {"X-Prime-Team-ID": self.team_id}
        return [
            openai.AsyncOpenAI(
                base_url=url, api_key=self.api_key, default_headers=headers, max_retries=0, timeout=self.timeout_s
            )
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


@dataclass(kw_only=True)
class Account:
    """What a step asked for, and what it cost."""

    asked: int = 0
    from_journal: int = 0
    refused: int = 0
    retries: int = 0
    tokens_in: int = 0
    tokens_out: int = 0


class Asker:
    """Asks all requests of a step that the journal does not answer.

    Args:
        check: of the step.
        told: called after each answer.
    """

    def __init__(
        self, endpoint: Endpoint, journal: Journal, *, step: str, check: Check, told: Callable[[], None] = lambda: None
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
            ConfigError: no key was given.
        """
        asyncio.run(self._ask(requests))

    async def _ask(self, requests: Iterable[Request]) -> None:
        clients = self._endpoint.clients()
        seen: set[str] = set()
        pending = iter(requests)

        async def work(client: openai.AsyncOpenAI) -> None:
            for request in pending:
                name = request.name(self._endpoint.model)
                if name in seen:
                    continue
                seen.add(name)
                if self._journal.find(self._step, name) is not None:
                    self.account.from_journal += 1
                    self._told()
                    # A rerun finds most of them: the others must be sent meanwhile.
                    await asyncio.sleep(0)
                    continue
                answer = await self._answer(client, request)
                if answer.text is None and not answer.good:
                    self.unanswered[name] = answer.why_not or ""
                else:
                    self._journal.keep(self._step, name, answer)
                self._told()

        try:
            async with asyncio.TaskGroup() as group:
                for index in range(self._endpoint.concurrency):
                    group.create_task(work(clients[index % len(clients)]))
        except* ServiceStopped as stopped:
            raise stopped.exceptions[0] from None
        finally:
            for client in clients:
                await client.close()

    async def _answer(self, client: openai.AsyncOpenAI, request: Request) -> Answer:
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
                await asyncio.sleep(_wait_s(tried, asked_for_s))
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
                "What was answered is in the journal: run this again later"
            )


def _wait_s(tried: int, asked_for_s: float | None) -> float:
    """Full jitter below a bound that doubles; never less than the service asks for."""
    bound_s = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2**tried)
    return min(_LONGEST_WAIT_S, (asked_for_s or 0.0) + _random.uniform(0.0, bound_s))


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
