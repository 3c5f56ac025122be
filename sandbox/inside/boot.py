"""The boot document: how init reads it, and the environments of judge and worker that follow from it.

Standard library only: this runs inside the container.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from sandbox import protocol
from sandbox.inside.process import Account, InitError

WORK = "/work"
JUDGE = "/judge"
TMP = "/tmp"  # noqa: S108 the container's own tmpfs, not the host's
PATH = "/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, kw_only=True)
class BootConfig:
    """The boot document, parsed."""

    kind: str
    judge_argv: tuple[str, ...]
    worker_argv: tuple[str, ...]
    rank_checker_argv: tuple[str, ...]
    #: Python code that a template runs before these programs, which are forks of it; empty: there is no template.
    preload: str
    judge: Account
    worker: Account
    #: The whole environment of every program. Variables of the image are not passed on.
    environment: Mapping[str, str]
    output_bytes: int
    output_kill_bytes: int
    report_bytes: int

    def worker_environment(self, extra: Mapping[str, str]) -> dict[str, str]:
        """The environment of a worker program: defaults, overridden by the spec, then by `extra`."""
        home = {"HOME": WORK, "TMPDIR": TMP, "USER": "worker", "LOGNAME": "worker", "SHELL": "/bin/sh"}
        return {"PATH": PATH, "LANG": "C.UTF-8", **home, **self.environment, **extra}

    def judge_environment(self, extra: Mapping[str, str]) -> dict[str, str]:
        """The environment of the judge. Its home and temporary directory are out of the worker's reach.

        So are the caches of the compilers that a reference calls: the judge's user cannot write below the worker's
        directory, and files of a submission must not become the judge's code.
        """
        home = {"HOME": JUDGE, "TMPDIR": JUDGE, "USER": "judge", "LOGNAME": "judge", "SHELL": "/bin/sh"}
        own = {
            name: JUDGE + value.removeprefix(WORK) if value.startswith(f"{WORK}/") else value
            for name, value in self.environment.items()
        }
        return {"PATH": PATH, "LANG": "C.UTF-8", **own, **home, **extra}


def parse_boot(text: str) -> BootConfig:
    """Parse the boot document from the command line.

    Raises:
        InitError: not a boot document of this version.
    """
    try:
        boot = json.loads(text)
        if boot["protocol"] != protocol.VERSION:
            raise InitError(f"boot document has protocol {boot['protocol']!r}, this init supports {protocol.VERSION}")
        if boot["kind"] not in ("pair", "steps"):
            raise InitError(f"boot kind is {boot['kind']!r}, expected 'pair' or 'steps'")
        groups = tuple(int(group) for group in boot["groups"])
        return BootConfig(
            kind=boot["kind"],
            judge_argv=tuple(boot["judge"]),
            worker_argv=tuple(boot["worker"]),
            rank_checker_argv=tuple(boot["rank_checker"]),
            preload=str(boot["preload"]),
            judge=Account(uid=boot["judge_uid"], groups=groups, directory=JUDGE, umask=0o077, oom_score_adj=200),
            worker=Account(uid=boot["worker_uid"], groups=groups, directory=WORK, umask=0o022, oom_score_adj=1000),
            environment=dict(boot["environment"]),
            output_bytes=boot["output_bytes"],
            output_kill_bytes=boot["output_kill_bytes"],
            report_bytes=boot["report_bytes"],
        )
    except (ValueError, KeyError, TypeError) as error:
        raise InitError(f"boot document does not parse: {type(error).__name__}: {error}") from error
