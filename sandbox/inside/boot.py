"""The boot document: how init reads it, and the environments of judge and worker that follow from it.

Standard library only: this runs inside the container.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from sandbox.inside.process import Account, InitError
from sandbox.protocol import VERSION, read

WORK = "/work"
JUDGE = "/judge"
TMP = "/tmp"  # noqa: S108 the container's own tmpfs, not the host's
PATH = "/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, kw_only=True)
class BootConfig:
    """The boot document, parsed."""

    protocol: int
    kind: Literal["pair", "steps"]
    #: argv of each.
    judge: tuple[str, ...]
    worker: tuple[str, ...]
    rank_checker: tuple[str, ...]
    #: Python code that a template runs before these programs, which are forks of it; empty: there is no template.
    preload: str
    #: Python code that a worker runs before it gets its account, where one is started ahead; empty: none is.
    ahead: str
    #: The cores that the container gets once the preload has run; empty: it has them.
    awaited_cpus: tuple[int, ...]
    judge_uid: int
    worker_uid: int
    groups: tuple[int, ...]
    #: The whole environment of every program. Variables of the image are not passed on.
    environment: Mapping[str, str]
    output_bytes: int
    output_kill_bytes: int
    report_bytes: int

    @property
    def judge_account(self) -> Account:
        """Whom the judge runs as."""
        return Account(uid=self.judge_uid, groups=self.groups, directory=JUDGE, umask=0o077, oom_score_adj=200)

    @property
    def worker_account(self) -> Account:
        """Whom workers and programs run as."""
        return Account(uid=self.worker_uid, groups=self.groups, directory=WORK, umask=0o022, oom_score_adj=1000)

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
        boot = read(BootConfig, json.loads(text), "boot document")
    except ValueError as error:
        raise InitError(f"boot document does not parse: {error}") from error
    if boot.protocol != VERSION:
        raise InitError(f"boot document has protocol {boot.protocol}, this init supports {VERSION}")
    return boot
