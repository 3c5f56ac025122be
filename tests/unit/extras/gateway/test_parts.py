"""Buckets, addresses, durations and events."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, cast

import pytest
from starlette.requests import Request
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from runner.extras.gateway import context, identity, limits, watcher
from runner.extras.gateway.admin import duration
from runner.extras.gateway.server import trusted


def test_a_bucket_refills(monkeypatch: pytest.MonkeyPatch) -> None:
    """A burst of a minute's worth, then one every 60 / n seconds, for each key alone."""
    now = 1000.0
    monkeypatch.setattr("runner.extras.gateway.limits.time.monotonic", lambda: now)
    bucket = limits.Bucket(6)
    assert [bucket.take("a") for _ in range(6)] == [0.0] * 6
    assert bucket.take("a") == pytest.approx(10.0)
    assert bucket.take("b") == 0.0
    now += 10.0
    assert bucket.take("a") == 0.0
    assert bucket.take("a") == pytest.approx(10.0)


def test_a_bucket_remembers_a_bounded_number_of_keys() -> None:
    """Invented keys fill no memory."""
    bucket = limits.Bucket(6)
    for number in range(30_000):
        bucket.take(str(number))
    assert len(bucket._keys) == 20_000


def test_what_is_fresh_is_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until its time is over; that there is nothing is kept, too."""
    now, made = 1000.0, iter((None, "new"))
    monkeypatch.setattr("runner.extras.gateway.context.time.monotonic", lambda: now)
    cache = context.TimedCache(30.0)

    async def make() -> str | None:
        return next(made)

    assert [asyncio.run(cache.fresh("key", make)) for _ in range(2)] == [None, None]
    now += 30.0
    assert asyncio.run(cache.fresh("key", make)) == "new"


@pytest.mark.parametrize(
    ("host", "key"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("2001:db8:1:2::5", "2001:db8:1:2::"),
        ("2001:db8::5", "2001:db8::"),
        ("2001:DB8:0:0:6:0:0:1", "2001:db8::"),
        ("2001:db8::1:2:3:4", "2001:db8::"),
        ("2001:db8:0:1::", "2001:db8:0:1::"),
        ("::1", "::"),
        ("fe80::1%eth0", "fe80::"),
        ("unix", "unix"),
    ],
)
def test_an_address_counts_by_its_network_however_it_is_spelled(host: str, key: str) -> None:
    """Zeroes may be left out anywhere; a host has a network of 64 bits to choose from."""
    scope = {"type": "http", "headers": [], "client": (host, 0)}
    assert identity.address(Request(scope)) == key


@pytest.mark.parametrize(
    ("proxies", "host", "is_trusted"),
    [
        ("127.0.0.1,::1", "127.0.0.1", True),
        ("127.0.0.1,::1", "::ffff:127.0.0.1", True),
        ("10.0.1.0/24", "::ffff:10.0.1.7", True),
        ("10.0.1.0/24", "::ffff:10.0.2.7", False),
        ("127.0.0.1, ::1", "::1", True),
        ("*", "192.0.2.1", True),
        ("", "127.0.0.1", False),
    ],
)
def test_a_proxy_is_trusted_through_a_socket_of_both_versions(proxies: str, host: str, *, is_trusted: bool) -> None:
    """As systemd makes one of a port alone: it shows addresses of version 4 as mapped ones."""
    assert (host in ProxyHeadersMiddleware(cast("Any", None), trusted(proxies)).trusted_hosts) == is_trusted


@pytest.mark.parametrize("listed", ["{}", "198.51.100.9, {}", "{}, 10.0.0.1:49152"])
@pytest.mark.parametrize(
    ("forwarded", "key"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("192.0.2.7:49152", "192.0.2.7"),
        ("2001:db8:1:2::5", "2001:db8:1:2::"),
        ("[2001:db8:1:2::5]", "2001:db8:1:2::"),
        ("[2001:db8:1:2::5]:49152", "2001:db8:1:2::"),
    ],
)
def test_a_forwarded_address_counts_without_its_port(forwarded: str, key: str, listed: str) -> None:
    """Each connection has another port; some proxies write it beside the address."""
    keys = []

    async def note(scope: Any, _receive: Any, _send: Any) -> None:  # noqa: ANN401 - ASGI's
        keys.append(identity.address(Request(scope)))

    headers = [(b"x-forwarded-for", listed.format(forwarded).encode())]
    scope: Any = {"type": "http", "headers": headers, "client": ("10.0.0.1", 0), "scheme": "http"}
    asyncio.run(ProxyHeadersMiddleware(note, trusted("10.0.0.0/24"))(scope, cast("Any", None), cast("Any", None)))
    assert keys == [key]


def test_streams_are_counted_per_user() -> None:
    """A tenth for one user; closing makes room. Watchers of live pages have as many beside; an address has half."""
    bound = limits.Limits(per_minute=60, streams=20)
    assert [bound.streams.open("a") for _ in range(3)] == [True, True, False]
    bound.streams.close("a")
    assert bound.streams.open("a")
    assert [bound.streams.open(f"u{number}") for number in range(19)] == [True] * 18 + [False]
    assert sum(bound.watchers.open("a hall") for _ in range(20)) == 10


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (timedelta(), "PT0S"),
        (timedelta(seconds=90.5), "PT90.5S"),
        (timedelta(days=2, seconds=10), "P2DT10S"),
        (timedelta(seconds=-1), "-PT1S"),
    ],
)
def test_durations(span: timedelta, text: str) -> None:
    """As ISO 8601 writes them."""
    assert duration(span) == text


@pytest.mark.parametrize(
    "payload", ["", "[" * 7999, '{"submission_id": ' + "9" * 7000 + "}", "1", '{"submissions": 1}']
)
def test_an_event_of_another_program_concerns_nothing(payload: str) -> None:
    """Every login of the database may send any text of fewer than 8000 bytes."""
    assert watcher._concerned(payload) == []
