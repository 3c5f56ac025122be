"""The judge's request for a group, as a record. Pure, standard library only: the runner imports it, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tasks.harness.judge.request import JudgeRequest, RequestError

from .group import KIND, Group, GroupError

__all__ = ["KIND", "VERSION", "GroupRequest"]

VERSION = 1


@dataclass(frozen=True, kw_only=True)
class GroupRequest:
    """A group, and what the host gives it."""

    group: Group
    #: As in JudgeRequest.
    device: str = "cpu"
    memory_bytes: int = 1 << 30
    tolerance: float = 0.1
    #: As in JudgeRequest.
    streams_wait: bool = False
    #: Candidates that were built ahead, by id: what the compilers said if they refused it, else None.
    builds: Mapping[int, str | None] = field(default_factory=dict)

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> GroupRequest:
        """Parse what the daemon sent.

        Raises:
            RequestError: another version, a key that is missing, or a group that cannot be read.
        """
        if payload.get("version") != VERSION:
            raise RequestError(
                f"group request has version {payload.get('version')!r}, this harness understands {VERSION}"
            )
        try:
            return cls(
                group=Group.from_message(payload["group"]),
                device=str(payload["device"]),
                memory_bytes=int(payload["memory_bytes"]),
                tolerance=float(payload["tolerance"]),
                streams_wait=bool(payload.get("streams_wait")),
                builds={int(number): said for number, said in payload["builds"].items()},
            )
        except (KeyError, TypeError, ValueError) as error:
            text = str(error) if isinstance(error, GroupError) else f"{type(error).__name__}: {error}"
            raise RequestError(f"group request does not parse: {text}") from error

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
            tolerance=self.tolerance,
        )


def payload_of(
    group: Mapping[str, Any],
    *,
    device: str = "cpu",
    memory_bytes: int = 1 << 30,
    tolerance: float = 0.1,
    builds: Mapping[int, str | None] | None = None,
) -> dict[str, Any]:
    """The JSON object that `from_payload` reads, from a group's JSON form."""
    return {
        "version": VERSION,
        "kind": KIND,
        "group": dict(group),
        "device": device,
        "memory_bytes": memory_bytes,
        "tolerance": tolerance,
        # JSON has no keys but texts.
        "builds": {str(number): said for number, said in (builds or {}).items()},
    }
