"""Clients of the gateway as they behave on the wire: popcorn-cli of each generation, and kernelboard.

Each does what its original does with an answer, its rigour included: a field of another type, a poll that fails, or an
event that is cut otherwise ends it. They share no code with the gateway.
"""

from __future__ import annotations

import base64
import http.client
import io
import json
import time
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

BOUNDARY: Final = "------------------------the-boundary"
#: popcorn-cli's own time limits, in seconds.
SUBMIT_S: Final = 60.0
USER_S: Final = 30.0
STREAM_S: Final = 3600.0
#: It polls every 5 seconds; here more often, since nothing depends on it.
EVERY_S: Final = 0.5
_STATUS_FAILED: Final = ("failed", "timed_out", "hacked")


class ClientError(Exception):
    """The client ends with exit code 1; the message is what it prints."""


@dataclass(kw_only=True)
class Outcome:
    """What a command of a client has done."""

    exit_code: int
    stdout: str = ""
    stderr: str = ""
    #: Everything that came over the wire.
    raw: bytes = b""
    submission_id: int | None = None
    #: The events of a stream: name and data.
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    #: The last poll.
    detail: dict[str, Any] | None = None
    #: Names of the zip files of a profile, with what is in each.
    profiles: dict[str, dict[str, bytes]] = field(default_factory=dict)
    #: What newer versions are told of each result.
    metadata: list[dict[str, Any]] = field(default_factory=list)


@dataclass(kw_only=True)
class Wire:
    """Raw HTTP to one address; remembers what came."""

    port: int
    heard: bytearray = field(default_factory=bytearray)

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        patience_s: float = USER_S,
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers with lower-case names, and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=patience_s)
        try:
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            told = {key.lower(): value for key, value in answer.getheaders()}
            found = answer.read()
        finally:
            connection.close()
        self.heard += json.dumps(told).encode() + found
        return answer.status, told, found

    def stream(self, path: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, Mapping[str, str], list[bytes]]:
        """Status, headers, and the body in the pieces in which it came."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=STREAM_S)
        pieces: list[bytes] = []
        try:
            connection.request("POST", path, body, dict(headers))
            answer = connection.getresponse()
            told = {key.lower(): value for key, value in answer.getheaders()}
            while piece := answer.read1(65536):
                pieces.append(piece)
        finally:
            connection.close()
        self.heard += b"".join(pieces)
        return answer.status, told, pieces


def form(code: bytes, name: str | None, fields: Mapping[str, str] | None = None) -> tuple[bytes, dict[str, str]]:
    """A multipart body with the part `file`, and before it those of these fields."""
    texts = (
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'
        for key, value in (fields or {}).items()
    )
    named = "" if name is None else f'; filename="{name}"'
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"{named}\r\n\r\n'
    body = "".join(texts).encode() + head.encode() + code + f"\r\n--{BOUNDARY}--\r\n".encode()
    return body, {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}


def parsed(pieces: Sequence[bytes]) -> list[tuple[str, str]]:
    """Events as popcorn-cli cuts them: pieces decoded one by one, cut at two line feeds; each has name and data.

    Raises:
        ClientError: a piece is no text by itself.
    """
    buffer = ""
    found: list[tuple[str, str]] = []
    for piece in pieces:
        try:
            buffer += piece.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ClientError("stream did not contain valid UTF-8") from error
        while "\n\n" in buffer:
            block, _, buffer = buffer.partition("\n\n")
            name = data = None
            for line in block.split("\n"):
                if line.startswith("event:"):
                    name = line.removeprefix("event:").strip()
                elif line.startswith("data:"):
                    data = line.removeprefix("data:").strip()
            if name is not None and data is not None:
                found.append((name, data))
    return found


@dataclass(kw_only=True)
class Popcorn:
    """popcorn-cli of one version.

    `version` decides: before 1.3.16 every mode is a stream, later only profiles are. `strict` is what versions after
    1.3.23 do with a result.
    """

    port: int
    cli_id: str
    version: tuple[int, int, int] = (1, 3, 23)
    strict: bool = False

    def submit(
        self,
        code: bytes,
        *,
        board: str,
        gpu: str,
        mode: str,
        name: str = "submission.py",
        options: Mapping[str, str] | None = None,
    ) -> Outcome:
        """`popcorn submit FILE --leaderboard L --gpu G --mode M --no-tui`; later versions profile by `--profile`."""
        wire = Wire(port=self.port)
        outcome = Outcome(exit_code=0)
        try:
            if self.strict and mode.lower() == "profile":
                self._stream(wire, outcome, code, f"/profile/{board.lower()}/{gpu}", name=name, options=options)
            elif self.version < (1, 3, 16) or mode.lower() == "profile":
                self._stream(wire, outcome, code, f"/{board.lower()}/{gpu}/{mode.lower()}", name=name)
            else:
                self._poll(wire, outcome, code, f"{board.lower()}/{gpu}/{mode.lower()}", name)
                if self.strict:
                    self._judge(outcome, gpu, mode.lower())
        except ClientError as error:
            outcome.exit_code = 1
            outcome.stderr += f"Application error: {error}\n"
        outcome.raw = bytes(wire.heard)
        return outcome

    def _poll(self, wire: Wire, outcome: Outcome, code: bytes, path: str, name: str) -> None:
        body, headers = form(code, name)
        status, _, answer = wire.ask(
            "POST", f"/submission/{path}", body, {**headers, **self._login()}, patience_s=SUBMIT_S
        )
        accepted = _success(status, answer)
        number = accepted["details"]["id"]
        if not isinstance(number, int):
            raise ClientError("details.id is no integer")
        outcome.submission_id = number
        queue = accepted.get("runner_queue") or {}
        told = f"Submission {number} accepted."
        if isinstance(queue.get("queued_jobs"), int):
            told += f" {queue['runner']} {queue['gpu']} queue: {queue['queued_jobs']} queued jobs."
        outcome.stderr += f"{told} Waiting for results...\n"
        while True:
            status, _, answer = wire.ask("GET", f"/user/submissions/{number}", None, self._login())
            found = _success(status, answer)
            outcome.detail = found
            word = found["job"]["status"]
            if word in _STATUS_FAILED:
                raise ClientError(f"Submission {number} {word}: {found['job']['error']}")
            if found["done"] is True:
                break
            time.sleep(EVERY_S)
        for run in found["runs"]:
            if run["mode"] == "leaderboard" and not run["secret"] and run["score"] is not None:
                outcome.stdout += f"Geomean score (public) on {run['runner']}: {float(run['score'])} s\n"
        keys = ("mode", "secret", "runner", "score", "passed", "start_time", "end_time")
        outcome.stdout += json.dumps(
            {
                "submission_id": number,
                "leaderboard": found["leaderboard_name"],
                "file_name": found["file_name"],
                "done": found["done"],
                "runs": [{key: run[key] for key in keys} for run in found["runs"]],
            }
        )

    def _judge(self, outcome: Outcome, gpu: str, mode: str) -> None:
        """What later versions want of a result before they end with 0."""
        runs = (outcome.detail or {})["runs"]
        if any(run["mode"] in ("test", "benchmark") and not run["secret"] and not run["passed"] for run in runs):
            raise ClientError("a run did not pass")
        if mode != "leaderboard":
            return
        mine = [run for run in runs if run["runner"].lower() == gpu.lower() and run["mode"] == "leaderboard"]
        if not any(not run["secret"] and run["passed"] and run["score"] is not None for run in mine):
            raise ClientError(f"no ranked result on {gpu}")
        if not any(run["secret"] and run["passed"] for run in mine):
            raise ClientError(f"no secret result on {gpu}")
        if any(run["secret"] and not run["passed"] for run in runs):
            raise ClientError("a secret run did not pass")

    def _stream(
        self,
        wire: Wire,
        outcome: Outcome,
        code: bytes,
        path: str,
        *,
        name: str,
        options: Mapping[str, str] | None = None,
    ) -> None:
        body, headers = form(code, name, options)
        status, told, pieces = wire.stream(path, body, {**headers, **self._login()})
        if status != 200:
            _success(status, b"".join(pieces))
        if not told["content-type"].startswith("text/event-stream"):
            raise ClientError(f"no stream but {told['content-type']}")
        for kind, data in parsed(pieces):
            outcome.events.append((kind, json.loads(data)))
        for kind, told_by in outcome.events:
            if kind == "status":
                outcome.stderr += f"{told_by['status']} {told_by['elapsed_time']}\n"
            elif kind == "error":
                raise ClientError(f"{told_by['detail']} {told_by.get('raw_error', '')}".rstrip())
            elif kind == "result":
                self._result(outcome, told_by)
                return
        raise ClientError("the stream ended without a result")

    def _result(self, outcome: Outcome, told: dict[str, Any]) -> None:
        # 1.1.29 to 1.1.44 panic without reports.
        for report in told["reports"]:
            if not isinstance(report, str):
                raise ClientError("a report is no text")
            outcome.stdout += f"{report}\n"
        for number, full in enumerate(told["results"]):
            if self.strict:
                outcome.metadata.append(full["profile_metadata"])
            for key, run in full["runs"].items():
                profile = run["profile"]
                if profile is not None and profile["trace"]:
                    with zipfile.ZipFile(io.BytesIO(base64.b64decode(profile["trace"]))) as archive:
                        outcome.profiles[f"profile_{key}_run{number}.zip"] = {
                            file: archive.read(file) for file in archive.namelist()
                        }
            if self.strict and not full["success"]:
                raise ClientError(full["error"])
        for file, content in outcome.profiles.items() if self.strict else ():
            lacks = {"profile.ncu-rep", "ncu-details.txt", "ncu-details.csv"} - set(content)
            if lacks:
                raise ClientError(f"{file} has no {', '.join(lacks)}")

    def boards(self) -> list[tuple[str, str]]:
        """The list of leaderboards in the full-screen mode: one odd board breaks it."""
        found = self._get("/leaderboards")
        lines = []
        for board in found:
            if not (isinstance(board["name"], str) and isinstance(board["description"], str)):
                raise ClientError("invalid leaderboard")
            if not isinstance(board["task"], dict):
                raise ClientError("invalid task")
            lines.append((board["name"], board["description"]))
        return lines

    def gpus(self, board: str) -> list[str]:
        """The GPU types of a leaderboard."""
        found: list[str] = self._get(f"/gpus/{board}")
        return found

    def listed(self, board: str) -> list[dict[str, Any]]:
        """`popcorn submissions list`."""
        found = self._get(f"/user/submissions?leaderboard={board}")
        for line in found:
            if not (isinstance(line["id"], int) and isinstance(line["done"], bool) and isinstance(line["runs"], list)):
                raise ClientError("an odd line")
        return list(found)

    def _login(self) -> dict[str, str]:
        return {"X-Popcorn-Cli-Id": self.cli_id}

    def _get(self, path: str) -> Any:  # noqa: ANN401 - whatever the server says
        status, _, answer = Wire(port=self.port).ask("GET", path, None, self._login())
        return _success(status, answer)


def _success(status: int, answer: bytes) -> Any:  # noqa: ANN401 - whatever the server says
    """The JSON of a success.

    Raises:
        ClientError: any other status, with its `detail`, or with the body as it is if that is no text.
    """
    if 200 <= status < 300:
        try:
            return json.loads(answer)
        except ValueError as error:
            raise ClientError(f"error decoding response body: {error}") from error
    try:
        detail = json.loads(answer)["detail"]
    except (ValueError, KeyError, TypeError):
        detail = None
    said = detail if isinstance(detail, str) else answer.decode("utf-8", "replace")
    raise ClientError(f"Server returned status {status} {http.HTTPStatus(status).phrase}: {said}")


@dataclass(kw_only=True)
class Kernelboard:
    """kernelboard's submit page: one route over HTTP, all else from the database."""

    port: int
    web_auth_id: str

    def submit(self, code: bytes, *, board: str, gpu: str, mode: str, name: str = "submission.py") -> dict[str, Any]:
        """What its own API answers: `code`, `message`, `data`, and the HTTP status as `http`.

        Raises:
            ClientError: the body is no JSON object, which ends its request with 500.
        """
        body, headers = form(code, name)
        status, _, answer = Wire(port=self.port).ask(
            "POST", f"/submission/{board}/{gpu}/{mode}", body, {**headers, "X-Web-Auth-Id": self.web_auth_id}
        )
        found = json.loads(answer)
        if not isinstance(found, dict):
            raise ClientError("the answer is no object")
        message = found.get("message") or found.get("detail") or "Accepted"
        return {"http": status, "code": 10000 + status, "message": message, "data": found}


def chip(status: str | None) -> str:
    """The word that its page shows for a job status."""
    if status is None:
        return "via CLI/Discord bot"
    words = ((("run",), "running"), (("ok", "succ"), "finished"), (("fail", "err", "hack", "timed"), "error"))
    for parts, word in words:
        if any(part in status for part in parts):
            return word
    return "unknown"


def log(run: Mapping[str, Any]) -> str | None:
    """The log that its page makes of a run; fails where the original does."""
    if not run["passed"]:
        return None
    compilation = run["compilation"]
    if compilation and not compilation.get("success", False):
        return None
    # A stored JSON null fails here, as in the original.
    compilation.get("success")
    result = run["result"]
    if run["mode"] == "test":
        lines = []
        for index in range(len(result)):
            status = result.get(f"test.{index}.status")
            if status is None:
                break
            lines.append(("+ " if status == "pass" else "- ") + result.get(f"test.{index}.spec", "?"))
        return "\n".join(lines)
    if run["mode"] in ("benchmark", "leaderboard"):
        lines = []
        for index in range(int(result.get("benchmark-count", 0))):
            base = f"benchmark.{index}"
            if result.get(f"{base}.status") == "fail":
                lines.append(result[f"{base}.error"])
            else:
                lines.append(f"{result[f'{base}.spec']} {float(result[f'{base}.mean'])}")
        return "\n".join(lines)
    return ""
