"""The judge's request for a group, as a record. Pure, standard library only: the runner imports it, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from sandbox.protocol import FrameError, read
from tasks.harness.judge.request import JudgeRequest, RequestError

VERSION = 1
#: The module whose function `judge` the judge's process calls with this request.
JUDGE = f"{__package__}.main"


@dataclass(frozen=True, kw_only=True)
class GroupRequest:
    """A group, and what the host gives it."""

    #: In its JSON form (`Group.from_message`).
    group: Mapping[str, Any]
    #: As in JudgeRequest.
    device: str = "cpu"
    memory_bytes: int = 1 << 30
    streams_wait: bool = False
    #: Candidates that were built ahead, by id as text: what the compilers said if they refused it, else None.
    builds: Mapping[str, str | None] = field(default_factory=dict)

    def to_payload(self) -> dict[str, Any]:
        """The JSON object that `from_payload` reads."""
        return {"version": VERSION, "judge": JUDGE, **asdict(self)}

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> GroupRequest:
        """Parse what the daemon sent.

        Raises:
            RequestError: another version, or a key that is missing or unknown.
        """
        values = dict(payload)
        version = values.pop("version", None)
        values.pop("judge", None)
        if version != VERSION:
            raise RequestError(f"group request has version {version!r}, this harness understands {VERSION}")
        try:
            return read(cls, values, "group request")
        except FrameError as error:
            raise RequestError(str(error)) from error

    def as_judge_request(self, device: str) -> JudgeRequest:
        """What the timing of calls asks of a request."""
        return JudgeRequest(
            modes=(),
            files={},
            worker_files=(),
            submission_name="candidate.py",
            submission="",
            device=device,
            memory_bytes=self.memory_bytes,
        )
