"""What programs read: feeds, the picture of a ranking, and what the head of a page says."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable
from xml.etree import ElementTree as ET

from PIL import Image

from tests.integration.extras.gateway.conftest import Gate
from tests.integration.extras.gateway.test_pages import Browser, checked

ATOM = "{http://www.w3.org/2005/Atom}"
BASE = "https://kernels.example"
#: Ends an attribute, an element and a line; a control character is none of XML's.
NAME = "\"'><b>\x01&amp;"


def records(text: str) -> list[str]:
    """The titles of a feed that is sound."""
    feed = ET.fromstring(text)  # noqa: S314 - our own
    for each in [feed, *feed.iter(f"{ATOM}entry")]:
        assert all(each.findtext(f"{ATOM}{name}") for name in ("id", "title", "updated"))
        assert each.find(f"{ATOM}link[@rel='alternate']").get("href", "").startswith(BASE)  # type: ignore[union-attr]
    ids = [each.text for each in feed.iter(f"{ATOM}id")]
    assert len(set(ids)) == len(ids)
    return [str(entry.findtext(f"{ATOM}title")) for entry in feed.iter(f"{ATOM}entry")]


def shared(page: str) -> dict[str, str]:
    """What the head of a page says elsewhere."""
    found = re.findall(r'<meta (?:name|property)="([\w:]+)" content="([^"]*)">', page)
    return {key: html.unescape(value) for key, value in found}


def test_records_pictures_and_tags(open_gate: Callable[..., Gate]) -> None:
    """A score that was taken back is no record and hides none; a picture has the version of what it shows."""
    gate = open_gate(gateway_requests_per_minute=100_000, gateway_public_url=f"{BASE}/")
    gate.bench.board("a&b <c>", "CPU")
    gate.user("ada", name=NAME)
    browser, path = Browser(gate), "/board/a%26b%20%3Cc%3E"
    pictures = []
    for number, score_s in enumerate((9e-6, 7e-6, 1e-6, 8e-6, 5e-6), 1):
        gate.rank(score_s=score_s, leaderboard="a&b <c>")
        tags = shared(checked(browser.get(path)))
        assert tags["og:url"] == f"{BASE}{path}?gpu=CPU"
        assert tags["og:description"].startswith(f"1. {NAME} ")
        pictures.append(tags["og:image"])
        if number == 3:
            gate.sql("UPDATE leaderboard.submission SET status = 'hacked' WHERE id = 3")
    # The best of 9; of 9, 7; of 9, 7, 1; of 9, 7, 8; of 9, 7, 8, 5 microseconds.
    assert pictures[1] == pictures[3]
    assert len(set(pictures)) == 4
    for feed in ("/feed", f"{path}/feed"):
        answer = browser.get(feed)
        assert answer.headers["content-type"] == "application/atom+xml; charset=utf-8"
        name = NAME.replace("\x01", "\ufffd")
        assert records(answer.text) == [f"a&b <c> on CPU: {time} µs by {name}" for time in ("5.00", "7.00", "9.00")]
        again = gate.ask("GET", feed, headers={"If-None-Match": answer.headers["etag"]})
        assert (again.status, again.body) == (304, b"")
    picture = browser.get(pictures[-1].removeprefix(BASE))
    assert picture.headers["content-type"] == "image/png"
    assert Image.open(io.BytesIO(picture.body)).size == (1200, 630)
    assert f'"{pictures[-1].partition("v=")[2]}"' == picture.headers["etag"]
    assert browser.get(f"{path}/picture?gpu=none").status == 404


def test_without_an_address_there_is_nothing_to_share(gate: Gate) -> None:
    """A page names no other host's address; its feed says which key is not set."""
    assert shared(checked(Browser(gate).get("/board/identity"))) == {"viewport": "width=device-width, initial-scale=1"}
    for path in ("/feed", "/board/identity/feed"):
        answer = Browser(gate).get(path)
        assert answer.status == 404
        assert "gateway_public_url" in answer.text
