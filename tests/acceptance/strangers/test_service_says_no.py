"""Answers that are no completions, from a local server, through the command that rates rows."""

from __future__ import annotations

import copy
import json
import re
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from runner.cli import main
from runner.extras.trainers.kernelbook.completion import Completion, Failure, decide
from tests.fakes.chat import JSON, Reply, completion, endpoint

ANSWERS = Path(__file__).parent / "cases" / "service_says_no" / "answers.jsonl"
_TEXT = "It copies. <difficulty>low</difficulty>"
GOOD = completion(_TEXT)
_MISSING = object()
BROKEN: tuple[Any, ...] = (_MISSING, None, [], {}, "", 0, True, 1e300, [None], [[]], [7], {"a": None})
#: Without these there is no completion.
NEEDED = (("choices",), ("choices", 0), ("choices", 0, "message"), ("choices", 0, "message", "content"))
#: Whatever stands there, the text is the answer.
OTHERS = (
    ("id",),
    ("created",),
    ("usage",),
    ("usage", "prompt_tokens"),
    ("usage", "completion_tokens"),
    ("choices", 0, "index"),
    ("choices", 0, "finish_reason"),
    ("choices", 0, "message", "role"),
    ("choices", 0, "message", "refusal"),
    ("choices", 0, "message", "tool_calls"),
    ("choices", 0, "message", "reasoning_content"),
)


def changed(path: tuple[str | int, ...], value: object) -> Reply:
    """The good reply with another value at one place."""
    reply = copy.deepcopy(GOOD)
    holder: Any = reply
    for key in path[:-1]:
        holder = holder[key]
    if value is _MISSING:
        holder.pop(path[-1], None) if isinstance(holder, dict) else holder.pop()
    else:
        holder[path[-1]] = value
    return Reply(json.dumps(reply).encode())


def no_completions() -> Iterator[Reply]:
    """Generate replies with which the service fails."""
    for line in ANSWERS.read_text(encoding="utf-8").splitlines():
        yield Reply(line.encode())
    for path in NEEDED:
        yield from (changed(path, value) for value in BROKEN)
    for error in ("Rate limit", True, 1, {"code": 429}, {"code": "rate_limited"}, {"message": None}, ["slow down"]):
        yield changed(("error",), error)
        yield Reply(json.dumps({"error": error}).encode())
        yield changed(("choices", 0, "error"), error)
    yield changed(("choices", 0, "finish_reason"), "error")
    yield changed(("choices", 0, "message", "content"), "half a character \ud83d <difficulty>low</difficulty>")
    yield changed(("choices", 0, "message", "content"), [{"type": "text", "text": None}])
    whole = json.dumps(GOOD).encode()
    html = b"<html><body>Sign in</body></html>"
    for body in (
        b"",
        b"null",
        b"[]",
        b"1",
        b'"low"',
        whole[:-20],
        b"\xff\xfe\xfd",
        b"[" * 100_000,
        b"\x1b[2J\x00",
        html,
    ):
        yield Reply(body)
        yield Reply(body, headers=(("content-type", "text/html"),))
    yield Reply(b'{"usage": ' + b"9" * 10_000 + b"}")
    yield Reply(
        b": waiting\n\ndata: " + whole + b"\n\ndata: [DONE]\n\n", headers=(("content-type", "text/event-stream"),)
    )
    yield Reply(whole, missing_bytes=50)
    yield Reply(whole, headers=(*JSON, ("content-encoding", "gzip")))
    yield Reply(b" " * (33 << 20) + whole)
    yield Reply(b"", status=204)
    for status in (302, 400, 404, 405, 410, 413, 429, 500, 503):
        yield Reply(json.dumps({"error": {"message": "not here"}}).encode(), status=status)
        yield Reply(whole, status=status)
        yield Reply(b"<h1>not here</h1>", status=status)
    yield Reply(b"", status=307, headers=(("location", "http://\x00/"),))


def completions() -> Iterator[Reply]:
    """Generate replies whose text is the answer, odd as they are."""
    for path in OTHERS:
        yield from (changed(path, value) for value in BROKEN)
    for content in (
        [{"type": "text", "text": _TEXT}],
        [{"type": "thinking", "thinking": "hm"}, {"text": _TEXT}],
        [_TEXT],
    ):
        yield changed(("choices", 0, "message", "content"), content)
    yield changed(("error",), None)
    yield changed(("usage", "prompt_tokens"), 2**70)
    yield changed(("choices", 0, "message", "reasoning_content"), "\ud83d")
    yield changed(("choices", 0, "message", "content"), f"\x00\u2028{_TEXT}")
    whole = json.dumps(GOOD).encode()
    for headers in ((), (("content-type", "text/html"),), (("content-type", "text/event-stream"),)):
        yield Reply(whole, headers=headers)
    yield Reply(b"\n   \n" + whole)
    yield Reply(b"\xef\xbb\xbf" + whole)


def without_text() -> Iterator[Reply]:
    """Generate completions that say nothing a step can use."""
    for message, finish in (
        ({"content": None, "refusal": "I cannot help."}, "stop"),
        ({"content": [{"type": "refusal", "refusal": "I cannot help."}]}, "stop"),
        ({"content": None, "tool_calls": [{"id": "1", "type": "function"}]}, "tool_calls"),
        ({"content": ""}, "length"),
        ({"content": None}, "content_filter"),
        ({"content": None, "reasoning": "Hm."}, "stop"),
        ({"content": "low"}, "stop"),
        ({"content": "It copies. <diffi"}, "length"),
    ):
        yield Reply(json.dumps({"choices": [{"index": 0, "finish_reason": finish, "message": message}]}).encode())


def stops() -> Iterator[Reply]:
    """Generate replies after which nothing more may be asked."""
    for code in (401, 402, 403):
        for written in (code, float(code), str(code), f"HTTP {code}"):
            yield Reply(json.dumps({"error": {"code": written, "message": "Insufficient credits"}}).encode())
        for body in (
            {"error": f"Error code: {code} - Insufficient credits"},
            {"error": {"message": "upstream", "metadata": {"status": code, "message": "Insufficient credits"}}},
            {"error": True, "status_code": code, "message": "Insufficient credits"},
            {"code": code, "msg": "Insufficient credits"},
            [{"error": {"code": code, "message": "Insufficient credits"}}],
            {"choices": [{"index": 0, "error": {"code": code, "message": "Insufficient credits"}}]},
        ):
            yield Reply(json.dumps(body).encode())
        yield Reply(b'data: {"error": {"code": %d, "message": "Insufficient credits"}}\n\n' % code)
        yield Reply(b"Insufficient credits", status=code)
        yield Reply(json.dumps({"error": {"code": code, "message": "Insufficient credits"}}).encode(), status=500)


@dataclass
class Service:
    """An endpoint: a question names its row, and each row has a reply."""

    url: str = ""
    #: None: every row gets the good one.
    replies: Mapping[int, Reply] | None = None
    asked: list[int] = field(default_factory=list)

    def answer(self, question: str) -> Reply:
        """The reply of the question's row."""
        row = int(re.findall(r"task (\d+)", question)[0])
        self.asked.append(row)
        return Reply(json.dumps(GOOD).encode()) if self.replies is None else self.replies[row]


@pytest.fixture(name="service")
def _service() -> Iterator[Service]:
    service = Service()
    with endpoint(service.answer) as service.url:
        yield service


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, service: Service) -> None:
    """A folder of its own, and the variables of the command, with one try for each request."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TEST_MODE", raising=False)
    for name, value in {"BASE_URL": service.url, "API_KEY": "a key", "TEAM_ID": "t"}.items():
        monkeypatch.setenv(f"PRIME_{name}", value)
    monkeypatch.setenv("MAX_RETRIES", "1")


def rate(folder: Path, rows: int) -> int:
    """Rate some rows; the exit code."""
    with (folder / "rows.jsonl").open("w", encoding="utf-8") as lines:
        for number in range(rows):
            row = {"example_id": number, "prompt": f"task {number}", "completion": "x = 1", "reward": 1.0}
            lines.write(json.dumps(row) + "\n")
    return main(["kernelbook", "filter", "--input", "rows.jsonl"])


def failures(folder: Path) -> dict[int, str]:
    """Why rows failed."""
    lines = (folder / "outputs/filtered_dataset.failures.jsonl").read_text(encoding="utf-8").splitlines()
    return {failure["row"]["example_id"]: failure["why"] for failure in map(json.loads, lines)}


def test_no_completion_is_the_services_failure(
    service: Service, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each fails its own row with a sentence, none stays in the journal, and a plain rerun asks each again."""
    replies = list(no_completions())
    service.replies = dict(enumerate(replies))
    assert rate(tmp_path, len(replies)) == 1
    assert "Traceback" not in capsys.readouterr().err
    why = failures(tmp_path)
    assert sorted(why) == list(range(len(replies)))
    assert all(sentence.isprintable() and 8 < len(sentence) < 450 for sentence in why.values()), why
    # The cut one, the one that is no gzip, and the redirect to no address: all others were answered.
    assert sum("Error" in sentence for sentence in why.values()) == 3
    assert why[0] == "HTTP 200, error 429: Rate limit exceeded"
    assert why[1] == """HTTP 200: expected a chat completion, found no choices, in '{"id": "x", "choices": null}'"""
    assert "found no message in the first choice" in why[3]
    assert "<html><body>Sign in</body></html>" in why[5]
    with sqlite3.connect("outputs/journal.sqlite") as journal:
        assert journal.execute("SELECT count(*) FROM answer").fetchone() == (0,)
    service.replies = None
    service.asked.clear()
    assert rate(tmp_path, len(replies)) == 0
    assert sorted(service.asked) == list(range(len(replies)))


def test_what_a_model_said_is_kept(service: Service, tmp_path: Path) -> None:
    """Odd fields beside a text change nothing; a refusal or a cut fails its row; a plain rerun does not ask again."""
    usable, unusable = list(completions()), list(without_text())
    service.replies = dict(enumerate([*usable, *unusable]))
    assert rate(tmp_path, len(service.replies)) == 1
    why = failures(tmp_path)
    assert sorted(why) == list(range(len(usable), len(service.replies))), why
    assert list(why.values()) == [
        "the model refuses: 'I cannot help.'",
        "the model refuses: 'I cannot help.'",
        "the answer is a call of a tool without content",
        "the answer has no content (finish_reason length)",
        "the answer has no content (finish_reason content_filter)",
        "the answer has reasoning, and no content",
        "the answer has no tag <difficulty> with low, medium or high",
        "the answer has no tag <difficulty> with low, medium or high (cut: finish_reason length)",
    ]
    service.asked.clear()
    assert rate(tmp_path, len(service.replies)) == 1
    assert service.asked == []


@pytest.mark.parametrize("reply", list(stops()), ids=lambda reply: f"{reply.status} {reply.body.decode()}"[:60])
def test_a_refused_key_is_seen_wherever_it_stands(reply: Reply) -> None:
    """As a number or as text, in the status or in the body, and with the service's sentence."""
    found = decide(reply.status, reply.body)
    assert isinstance(found, Failure)
    assert found.stops
    assert "Insufficient credits" in found.why or "upstream" in found.why


@pytest.mark.parametrize("text", ["It used 402 tokens", "level 4010", "see page 403"])
def test_a_number_of_a_sentence_is_no_code(text: str) -> None:
    """Nor is one in what a model says."""
    found = decide(200, json.dumps({"error": {"message": text}}).encode())
    assert isinstance(found, Failure)
    assert not found.stops
    assert isinstance(decide(200, changed(("choices", 0, "message", "content"), text).body), Completion)
