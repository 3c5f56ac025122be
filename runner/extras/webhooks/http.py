"""One message to one target over HTTP: bounded in time, no redirect, no more of an answer than its head.

A target that a leaderboard's owner registered must not lead into the operator's network: its name is resolved here, its
addresses are checked, and the connection goes to a checked one.
"""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

import httpx2

Networks = Sequence[IPv4Network | IPv6Network]

CONNECT_S: Final = 5.0
#: From the name's resolution to the head of the answer.
TOTAL_S: Final = 15.0
_LAST_PORT: Final = 65535
#: Answers that may be about one message: malformed, too large, not to be processed.
_OF_A_MESSAGE: Final = (400, 413, 422)
#: Of a name with more addresses, only so many are tried.
_ADDRESSES: Final = 4
#: What the public Internet's addresses of version 6 are taken from.
_UNICAST: Final = ip_network("2000::/3")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of a message."""

    #: `told`; `failed`; `refused`: the target may want this message alone not; `ended`: it wants no more.
    kind: str
    reason: str | None = None
    #: How long the target asks to be left alone.
    retry_after_s: float | None = None


class _Refused(Exception):
    """The target's name leads nowhere that it may."""


def client() -> httpx2.AsyncClient:
    """For all targets of a process."""
    return httpx2.AsyncClient(
        # Neither a proxy nor a login of the environment's.
        trust_env=False,
        follow_redirects=False,
        timeout=httpx2.Timeout(TOTAL_S, connect=CONNECT_S),
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0),
    )


async def post(
    over: httpx2.AsyncClient, url: str, content: bytes, headers: Mapping[str, str], *, allowed: Networks | None
) -> Outcome:
    """Send a message; never raises for what a target or its address does.

    `allowed`: networks that may be reached beside public addresses; None: any address may.
    """
    try:
        async with asyncio.timeout(TOTAL_S):
            return await _post(over, httpx2.URL(url), content, headers, allowed)
    except (TimeoutError, httpx2.TimeoutException):
        return Outcome(kind="failed", reason=f"no answer within {TOTAL_S:g} s")
    except (httpx2.InvalidURL, UnicodeError):
        # A label of a name may be too long, or empty.
        return Outcome(kind="failed", reason="its address is malformed")
    except _Refused as error:
        return Outcome(kind="failed", reason=str(error))
    except (httpx2.HTTPError, OSError) as error:
        return Outcome(kind="failed", reason=f"{type(error).__name__}: {error}")


async def _post(
    over: httpx2.AsyncClient, url: httpx2.URL, content: bytes, headers: Mapping[str, str], allowed: Networks | None
) -> Outcome:
    if (url.port or 0) > _LAST_PORT:
        raise _Refused(f"its port is {url.port}, expected at most {_LAST_PORT}")
    hosts = [url.host] if allowed is None else await _checked(url, allowed)
    for number, host in enumerate(hosts, 1):
        request = over.build_request(
            "POST",
            url.copy_with(host=host),
            content=content,
            headers={**headers, "Host": url.netloc.decode("ascii")},
            extensions={"sni_hostname": url.raw_host.decode("ascii")},
        )
        try:
            response = await over.send(request, stream=True)
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            if number == len(hosts):
                raise
            continue
        await response.aclose()
        return _outcome(response)
    raise _Refused("its name has no address")


async def _checked(url: httpx2.URL, allowed: Networks) -> Sequence[str]:
    """The addresses of a name that may be reached."""
    port = url.port or (443 if url.scheme == "https" else 80)
    try:
        entries = await asyncio.get_running_loop().getaddrinfo(
            url.raw_host.decode("ascii").strip("[]"), port, type=socket.SOCK_STREAM
        )
    except OSError as error:
        raise _Refused(f"its name has no address: {error.strerror}") from error
    addresses = [str(entry[4][0]) for entry in entries]
    public = [address for address in addresses if may_reach(address, allowed)]
    if not public:
        raise _Refused(
            f"{', '.join(addresses[:_ADDRESSES])} is no public address, expected one, or one of "
            "webhook_private_networks"
        )
    return public[:_ADDRESSES]


def may_reach(text: str, allowed: Networks) -> bool:
    """Whether an address is public, or in one of these networks."""
    try:
        address = ip_address(text)
    except ValueError:
        return False
    if any(address in network for network in allowed):
        return True
    if isinstance(address, IPv6Address):
        # Others, and these two kinds, hold an address of version 4, or are of no use here.
        wraps = address.sixtofour is not None or address.teredo is not None
        return address in _UNICAST and address.is_global and not wraps
    return address.is_global and not address.is_multicast


def _outcome(response: httpx2.Response) -> Outcome:
    status = response.status_code
    if 200 <= status < 300:
        return Outcome(kind="told")
    if status == 410:
        return Outcome(kind="ended", reason="answer 410")
    after = _retry_after_s(response.headers.get("retry-after", "")) if status in (429, 503) else None
    redirect = ", a redirect, which is not followed" if response.has_redirect_location else ""
    kind = "refused" if status in _OF_A_MESSAGE else "failed"
    return Outcome(kind=kind, reason=f"answer {status}{redirect}", retry_after_s=after)


def _retry_after_s(text: str) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(text).astimezone(UTC) - datetime.now(UTC)).total_seconds()
        except (ValueError, OverflowError):
            return None
    return seconds if math.isfinite(seconds) and seconds > 0 else None
