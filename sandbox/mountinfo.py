"""Reads mountinfo, the kernel's list of a process's mounts. Source: proc_pid_mountinfo(5). Pure.

Names in it are bytes: the kernel writes space, tab, newline and backslash as octal numbers, and all else as it is.
Containers import this module too, so it uses the standard library only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Mount:
    """One mount."""

    #: The directory of the mounted file system that is seen at the mount point.
    root: str
    point: str
    options: str
    #: Type of the file system, and the options of all its mounts.
    type: str
    super_options: str


def parse(data: bytes) -> Iterator[Mount]:
    """The mounts, in the kernel's order: of several at one point the last is on top."""
    for line in data.split(b"\n"):
        fields = [_name(field) for field in line.split(b" ")]
        # A dash ends the optional fields, of which there may be none.
        if "-" in fields[6:-3]:
            end = fields.index("-", 6)
            yield Mount(
                root=fields[3],
                point=fields[4],
                options=fields[5],
                type=fields[end + 1],
                super_options=fields[end + 3],
            )


def _name(field: bytes) -> str:
    return os.fsdecode(re.sub(rb"\\([0-7]{3})", lambda match: bytes([int(match[1], 8)]), field))
