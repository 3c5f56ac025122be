"""An endpoint of OpenAI's chat protocol, for tests: answers by what the question holds, and logs every request.

    python -m tests.integration.extras.trainers.kernelbook.endpoint LOG [SECONDS]

Prints its port. Every answer takes SECONDS (0). LOG gets a line per request: the hash of its messages, and what became
of it. A question that holds `BEHAVE:a,b,c` gets a, then b, then c, and c for ever: `ok`, `429` (with Retry-After),
`500`, `401`, `402`, `400`, `hang`, `cut`, `null`, `malformed`, `upper`. Other questions get `ok`.

Where there is a file LOG with `.most` behind its name, requests beyond so many lines of LOG wait for their answers.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import sys
from collections import Counter
from pathlib import Path

_BEHAVIOUR = re.compile(r"BEHAVE:([\w,]+)")
_STATUS = {
    "401": "401 Unauthorized",
    "429": "429 Too Many Requests",
    "500": "500 Internal Server Error",
    "402": "402 Payment Required",
}


class Endpoint:
    """Answers connections."""

    def __init__(self, log: Path, latency_s: float = 0.0) -> None:
        self._latency_s = latency_s
        self._path = log
        self._most = log.with_name(f"{log.name}.most")
        self._log = log.open("a", encoding="utf-8", buffering=1)
        self._asked: Counter[str] = Counter()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, kept open."""
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = int(re.findall(r"content-length: (\d+)", head)[0])
                body = json.loads(await reader.readexactly(length))
                if not await self._answer(body, writer):
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, body: dict[str, object], writer: asyncio.StreamWriter) -> bool:
        asked = json.dumps(body["messages"])
        name = hashlib.sha256(asked.encode()).hexdigest()[:16]
        found = _BEHAVIOUR.search(asked)
        behaviours = ["ok"] if found is None else found[1].split(",")
        behaviour = behaviours[min(self._asked[name], len(behaviours) - 1)]
        self._asked[name] += 1
        self._log.write(f"{name} {behaviour}\n")
        await self._wait_for_leave()
        await asyncio.sleep(self._latency_s)
        if behaviour == "hang":
            await asyncio.sleep(3600)
        if behaviour == "cut":
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n{")
            await writer.drain()
            return False
        extra = "retry-after: 0\r\n" if behaviour == "429" else ""
        status = _STATUS.get(behaviour, "400 Bad Request" if behaviour == "400" else "200 OK")
        if status == "200 OK":
            said = json.dumps(_completion(asked, name, behaviour))
        else:
            said = json.dumps({"error": {"message": f"told to say {behaviour}"}})
        data = said.encode()
        head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{extra}content-length: {len(data)}\r\n\r\n"
        writer.write(head.encode() + data)
        await writer.drain()
        return True

    async def _wait_for_leave(self) -> None:
        """Until the request whose line is the last one of the log may be answered."""
        if self._most.exists():
            number = len(self._path.read_text(encoding="utf-8").splitlines())
            while number > int(self._most.read_text(encoding="utf-8")):  # noqa: ASYNC110 - a file is no event
                await asyncio.sleep(0.01)


def _completion(asked: str, name: str, behaviour: str) -> dict[str, object]:
    level = ("low", "medium", "high")[int(name, 16) % 3]
    text: str | None = f"Because of {name}. <difficulty>{level}</difficulty>"
    if "specification" in asked:
        text = f"<specification>Compute what {name} says.</specification>"
    if "BEGIN_PYTHON" in asked:
        text = f"BEGIN_PYTHON\nclass NetNew:  # {name}\n    pass\nEND_PYTHON"
    if behaviour == "upper":
        text = "<Difficulty> HIGH </Difficulty>"
    if behaviour == "malformed":
        text = "I would rather not say."
    if behaviour == "null":
        text = None
    return {
        "id": name,
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
    }


async def main() -> None:
    """Serve until killed."""
    endpoint = Endpoint(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0.0)
    server = await asyncio.start_server(endpoint.serve, "127.0.0.1", 0, limit=1 << 24, backlog=1024)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
