"""What a target of webhooks is sent: a sentence for chats, signed JSON for programs. Pure.

People choose names, also those of leaderboards: in a chat they format nothing, link nothing and notify nobody.
"""

from __future__ import annotations

import base64
import hmac
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote

from runner.base import units
from runner.base.dates import read_date
from runner.base.model import NEVER

#: Characters of a name in a chat, and of a link: chats refuse messages that are too long, and what waits behind them.
_NAME: Final = 100
_LINK: Final = 700
_DISCORD_MARKUP: Final = re.compile(r"([!-/:-@\[-`{-~])")


def body(form: str, event: Mapping[str, Any], *, public_url: str | None) -> bytes:
    """The body for a target of this format; `public_url`: where the gateway is, for links."""
    url = _url(event, public_url)
    link = url if url is not None and len(url) <= _LINK else None
    content: Mapping[str, object]
    match form:
        case "discord":
            text = " ".join(filter(None, (_sentence(event, _for_discord), link)))
            content = {"content": text, "allowed_mentions": {"parse": []}}
        case "slack":
            text = _sentence(event, _for_slack)
            blocks = [{"type": "section", "text": {"type": "plain_text", "text": text, "emoji": False}}]
            if link is not None:
                blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": f"<{link}|Leaderboard>"}})
            content = {"text": text, "blocks": blocks}
        case _:
            content = _document(event, url)
    return json.dumps(content).encode()


def headers(key: str, at_s: int, content: bytes, secret: str | None) -> Mapping[str, str]:
    """The headers of a message by the specification Standard Webhooks; with a secret (`whsec_...`) signed."""
    unsigned = {"Content-Type": "application/json", "webhook-id": key, "webhook-timestamp": str(at_s)}
    if secret is None:
        return unsigned
    signing_key = base64.b64decode(secret.removeprefix("whsec_"))
    signature = hmac.digest(signing_key, f"{key}.{at_s}.".encode() + content, "sha256")
    return {**unsigned, "webhook-signature": f"v1,{base64.b64encode(signature).decode()}"}


def _document(event: Mapping[str, Any], url: str | None) -> Mapping[str, object]:
    data = dict(event["data"])
    if event["kind"] == "record.new":
        (place,) = data.pop("places")
        data |= {key: value for key, value in place.items() if key != "rank"}
    if url is not None:
        data["url"] = url
    return {
        "type": event["kind"],
        "timestamp": event["at"].isoformat(),
        "sequence": event["event_id"],
        "data": data,
    }


def _url(event: Mapping[str, Any], public_url: str | None) -> str | None:
    data = event["data"]
    if public_url is None or "leaderboard" not in data:
        return None
    gpu = f"?gpu={quote(data['gpu_type'], safe='')}" if "gpu_type" in data else ""
    return f"{public_url.rstrip('/')}/board/{quote(data['leaderboard'], safe='')}{gpu}"


def _sentence(event: Mapping[str, Any], name: Callable[[str], str]) -> str:
    data = event["data"]
    board = name(data.get("leaderboard", ""))
    ranking = f"{board} ({name(data.get('gpu_type', ''))})"
    places = data.get("places", ())
    listed = ", ".join(f"{place['rank']}. {name(place['user'])} {units.score(place['score_s'])}" for place in places)
    match event["kind"]:
        case "record.new":
            (place,) = places
            before = place["before_s"]
            gain = "the first score" if before is None else f"{units.percent(1 - place['score_s'] / before)} faster"
            text = f"New record of {ranking}: {units.score(place['score_s'])} by {name(place['user'])}, {gain}."
        case "ranking.top3":
            text = f"First places of {ranking}: {listed}."
        case "board.opened":
            until = _moment(data["deadline"])
            text = f"Leaderboard {board} is open{'' if until is None else f' until {until} UTC'}."
        case "board.closed":
            text = f"Leaderboard {board} has ended."
        case "board.final":
            text = f"Final of {ranking}: {listed}."
        case "host.lost":
            text = f"Host {name(data['host'])} is lost, last seen {_moment(data['last_seen'])} UTC."
        case "host.back":
            text = f"Host {name(data['host'])} is back."
        case _:
            text = "A test of kernel-runner's webhooks."
    return text


def _moment(text: str) -> str | None:
    try:
        moment = read_date(text)
    except ValueError:
        # PostgreSQL's infinity, or a year after 9999.
        return None
    return None if moment >= NEVER else units.moment(moment)


def _plain(text: str) -> str:
    """A name on one line, of characters that are seen."""
    return "".join(letter if letter.isprintable() else " " for letter in text)[:_NAME]


def _for_discord(text: str) -> str:
    return _DISCORD_MARKUP.sub(r"\\\1", _plain(text))


def _for_slack(text: str) -> str:
    return _plain(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
