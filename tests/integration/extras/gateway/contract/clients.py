"""popcorn-cli of each generation as it behaves on the wire, and what kernelboard makes of a run.

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
from enum import Enum
from typing import Any, Final

from tests.integration.extras.gateway.conftest import Answer, ask, multipart

#: How long popcorn-cli waits for a stream.
STREAM_S: Final = 3600.0
#: It polls every 5 seconds; here more often, since nothing depends on it.
EVERY_S: Final = 0.5
_STATUS_FAILED: Final = ("failed", "timed_out", "hacked")


class Generation(Enum):
    """Versions that speak alike."""

    #: To 1.3.15 every mode is a stream.
    STREAMS = "streams"
    #: From 1.3.16 on only profiles are.
    POLLS = "polls"
    #: After 1.3.23 it looks at the result before it ends with 0, and sends a profile's options.
    STRICT = "strict"


class ClientError(Exception):
    """The client ends with exit code 1; the message is what it prints."""


@dataclass(kw_only=True)
class Outcome:
    """What a command of a client has done."""

    exit_code: int = 0
    stderr: str = ""
    #: The events of a stream: name and data.
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    #: Names of the zip files of a profile, with what is in each.
    profiles: dict[str, dict[str, bytes]] = field(default_factory=dict)
    #: What the gateway tells strict versions about each result.
    metadata: list[dict[str, Any]] = field(default_factory=list)


def parsed(pieces: Sequence[bytes]) -> list[tuple[str, dict[str, Any]]]:
    """Events as popcorn-cli cuts them: pieces decoded one by one, cut at two line feeds; each has name and data.

    Raises:
        ClientError: a piece is no text by itself.
    """
    buffer = ""
    found: list[tuple[str, dict[str, Any]]] = []
    for piece in pieces:
        try:
            buffer += piece.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ClientError("stream did not contain valid UTF-8") from error
        while "\n\n" in buffer:
            block, _, buffer = buffer.partition("\n\n")
            lines = dict(line.split(":", 1) for line in block.split("\n") if ":" in line)
            if {"event", "data"} <= lines.keys():
                found.append((lines["event"].strip(), json.loads(lines["data"])))
    return found


@dataclass(kw_only=True)
class Popcorn:
    """popcorn-cli, logged in."""

    port: int
    cli_id: str
    generation: Generation

    def submit(
        self, code: bytes, *, board: str, gpu: str, mode: str, name: str, options: Mapping[str, str] | None = None
    ) -> Outcome:
        """`popcorn submit FILE --leaderboard L --gpu G --mode M --no-tui`; strict versions profile by `--profile`."""
        outcome = Outcome()
        board, mode = board.lower(), mode.lower()
        strict, profiles = self.generation is Generation.STRICT, mode == "profile"
        body, headers = multipart(code, name, fields=options)
        headers |= {"X-Popcorn-Cli-Id": self.cli_id}
        try:
            if strict and profiles:
                self._stream(outcome, f"/profile/{board}/{gpu}", body, headers)
            elif profiles or self.generation is Generation.STREAMS:
                self._stream(outcome, f"/{board}/{gpu}/{mode}", body, headers)
            else:
                detail = self._poll(f"/submission/{board}/{gpu}/{mode}", body, headers)
                if strict:
                    _require_result(detail["runs"], gpu, mode)
        except ClientError as error:
            outcome.exit_code = 1
            outcome.stderr = f"Application error: {error}\n"
        return outcome

    def _poll(self, path: str, body: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
        accepted = _success(ask(self.port, "POST", path, body, headers))
        number = accepted["details"]["id"]
        if not isinstance(number, int):
            raise ClientError("details.id is no integer")
        while True:
            detail = _success(ask(self.port, "GET", f"/user/submissions/{number}", None, headers))
            word = detail["job"]["status"]
            if word in _STATUS_FAILED:
                raise ClientError(f"Submission {number} {word}: {detail['job']['error']}")
            if detail["done"] is True:
                return dict(detail)
            time.sleep(EVERY_S)

    def _stream(self, outcome: Outcome, path: str, body: bytes, headers: Mapping[str, str]) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=STREAM_S)
        pieces: list[bytes] = []
        try:
            connection.request("POST", path, body, dict(headers))
            answer = connection.getresponse()
            while piece := answer.read1(65536):
                pieces.append(piece)
        finally:
            connection.close()
        if answer.status != 200:
            _success(Answer(status=answer.status, headers={}, body=b"".join(pieces)))
        if not answer.headers["content-type"].startswith("text/event-stream"):
            raise ClientError(f"no stream but {answer.headers['content-type']}")
        outcome.events = parsed(pieces)
        for kind, told in outcome.events:
            if kind == "status":
                outcome.stderr += f"{told['status']} {told['elapsed_time']}\n"
            elif kind == "error":
                raise ClientError(told["detail"])
            elif kind == "result":
                self._result(outcome, told)
                return
        raise ClientError("the stream ended without a result")

    def _result(self, outcome: Outcome, told: dict[str, Any]) -> None:
        # 1.1.29 to 1.1.44 panic without reports.
        if not all(isinstance(report, str) for report in told["reports"]):
            raise ClientError("a report is no text")
        strict = self.generation is Generation.STRICT
        for number, full in enumerate(told["results"]):
            if strict:
                outcome.metadata.append(full["profile_metadata"])
            for key, run in full["runs"].items():
                profile = run["profile"]
                if profile is not None and profile["trace"]:
                    with zipfile.ZipFile(io.BytesIO(base64.b64decode(profile["trace"]))) as archive:
                        outcome.profiles[f"profile_{key}_run{number}.zip"] = {
                            file: archive.read(file) for file in archive.namelist()
                        }
            if strict and not full["success"]:
                raise ClientError(full["error"])
        for file, content in outcome.profiles.items() if strict else ():
            lacks = {"profile.ncu-rep", "ncu-details.txt", "ncu-details.csv"} - set(content)
            if lacks:
                raise ClientError(f"{file} has no {', '.join(lacks)}")


def _require_result(runs: Sequence[Mapping[str, Any]], gpu: str, mode: str) -> None:
    """What strict versions want of a result before they end with 0."""
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


def _success(answer: Answer) -> Any:  # noqa: ANN401 - whatever the server says
    """The JSON of a success.

    Raises:
        ClientError: any other status.
    """
    if not 200 <= answer.status < 300:
        raise ClientError(f"Server returned status {answer.status}: {answer.text}")
    return answer.json


def log(run: Mapping[str, Any]) -> str | None:
    """The log that kernelboard's page makes of a run; fails where the original does."""
    if not run["passed"]:
        return None
    compilation = run["compilation"]
    if compilation and not compilation.get("success", False):
        return None
    # A stored JSON null fails here, as in the original.
    compilation.get("success")
    result = run["result"]
    lines = []
    if run["mode"] == "test":
        for index in range(int(result["test-count"])):
            mark = "+" if result[f"test.{index}.status"] == "pass" else "-"
            lines.append(f"{mark} {result.get(f'test.{index}.spec', '?')}")
    elif run["mode"] in ("benchmark", "leaderboard"):
        for index in range(int(result.get("benchmark-count", 0))):
            base = f"benchmark.{index}"
            lines.append(f"{result[f'{base}.spec']} {float(result[f'{base}.mean'])}")
    return "\n".join(lines)
