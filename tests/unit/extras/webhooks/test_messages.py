"""What targets are sent, and which addresses a leaderboard's own target may have."""

from __future__ import annotations

import json
import re
import uuid
from datetime import UTC, datetime
from ipaddress import ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.extras.webhooks.http import _retry_after_s, may_reach
from runner.extras.webhooks.messages import body, headers

PLACE = {"rank": 1, "submission_id": 7, "score_s": 1.25e-6}
EVENTS: dict[str, dict[str, Any]] = {
    "record.new": {"leaderboard": "", "gpu_type": "", "places": [{**PLACE, "user": "", "before_s": 2.5e-6}]},
    "ranking.top3": {"leaderboard": "", "gpu_type": "", "places": [{**PLACE, "user": ""}] * 3},
    "board.opened": {"leaderboard": "", "deadline": "infinity"},
    "board.closed": {"leaderboard": "", "deadline": "2030-01-02T03:04:05+00:00"},
    "board.final": {"leaderboard": "", "gpu_type": "", "places": [{**PLACE, "user": ""}]},
    "host.lost": {"host": "", "last_seen": "2030-01-02T03:04:05.5+00:00"},
    "host.back": {"host": "", "last_seen": "2030-01-02T03:04:05+00:00"},
    "test": {},
}
NAMES = st.text(max_size=300) | st.sampled_from(
    ["@everyone", "<!channel>", "<@1>", "*x*", "https://evil.example", "\n# x", "*" * 2000, "\U0001f680" * 300]
)


def event(kind: str, name: str) -> dict[str, Any]:
    """An event in which everybody and everything has this name."""

    def named(value: Any) -> Any:  # noqa: ANN401 - JSON
        if isinstance(value, dict):
            return {key: named(item) for key, item in value.items()}
        return [named(item) for item in value] if isinstance(value, list) else name if value == "" else value

    at = datetime(2030, 1, 2, tzinfo=UTC)
    return {"kind": kind, "at": at, "event_id": 5, "key": uuid.uuid4(), "data": named(EVENTS[kind])}


def test_the_signature_is_that_of_standard_webhooks() -> None:
    """The example of its specification's libraries."""
    found = headers(
        "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}', "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    )
    assert found["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@given(st.sampled_from(sorted(EVENTS)), NAMES)
def test_a_name_is_no_markup_in_a_chat(kind: str, name: str) -> None:
    """Every sign of it is escaped, none disturbs a line, and nobody is notified; the message stays short."""
    discord = json.loads(body("discord", event(kind, name), public_url=None))
    assert discord["allowed_mentions"] == {"parse": []}
    with_plain_name = json.loads(body("discord", event(kind, "x"), public_url=None))["content"]
    unescaped = re.sub(r"\\[^0-9A-Za-z\s]", "", discord["content"])
    ours = re.sub(r"[^!-/:-@\[-`{-~]", "", with_plain_name)
    assert re.sub(r"[^!-/:-@\[-`{-~]", "", unescaped) == ours
    linked = json.loads(body("discord", event(kind, name), public_url="https://k.example/"))["content"]
    assert len(linked.encode("utf-16-le")) // 2 < 2000
    slack = json.loads(body("slack", event(kind, name), public_url="https://k.example/"))
    assert not re.search(r"[<>]|&(?!amp;|lt;|gt;)", slack["text"])
    assert slack["blocks"][0]["text"] == {"type": "plain_text", "text": slack["text"], "emoji": False}
    assert all(len(block["text"]["text"].encode("utf-16-le")) // 2 < 3000 for block in slack["blocks"])
    for text in (discord["content"], slack["text"]):
        assert all(letter.isprintable() for letter in text)
    json.loads(body("json", event(kind, name), public_url="https://k.example"))


@pytest.mark.parametrize("deadline", ["infinity", "9999-12-31T00:00:00+00:00", "20000-01-01T00:00:00+00:00"])
def test_a_leaderboard_without_an_end_is_open(deadline: str) -> None:
    """No chat reads of a day that never comes."""
    opened = event("board.opened", "x")
    opened["data"]["deadline"] = deadline
    assert json.loads(body("discord", opened, public_url=None))["content"] == "Leaderboard x is open."


@pytest.mark.parametrize(
    ("address", "may"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1::1", True),
        ("10.1.2.3", True),
        *((address, False) for address in ("10.2.0.1", "127.0.0.1", "0.1.2.3", "169.254.169.254", "192.168.1.1")),
        *((address, False) for address in ("172.16.0.1", "100.64.0.1", "224.0.0.1", "255.255.255.255", "240.0.0.1")),
        *((address, False) for address in ("::1", "::", "::ffff:127.0.0.1", "::ffff:93.184.216.34", "fe80::1%lo")),
        *(
            (address, False)
            for address in ("fc00::1", "ff02::1", "2002:7f00:1::", "2001:0:7f00:1::", "64:ff9b::7f00:1")
        ),
        ("no address", False),
    ],
)
def test_only_public_addresses_may_be_reached(address: str, *, may: bool) -> None:
    """And those of a network that the configuration names; no address that holds another one."""
    assert may_reach(address, [ip_network("10.1.0.0/16")]) == may


@given(
    st.text()
    | st.floats().map(str)
    | st.builds(
        "Fri, 31 Dec {} 23:59:59 {:+05}".format, st.sampled_from([1, 2030, 9999, 10**25]), st.integers(-9999, 9999)
    )
)
def test_any_wish_of_a_target_is_a_time_or_none(text: str) -> None:
    """A Retry-After that means nothing is no reason to stop."""
    after_s = _retry_after_s(text)
    assert after_s is None or 0 < after_s < float("inf")
