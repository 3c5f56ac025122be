"""The functions and views of schema `runner` as they are now, one file each. Every `migrate` applies all of them.

Also the indexes that are built while others write, after the migration. README.md beside this file says how to change
them. Tables, types and other indexes are the business of `migrations`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from graphlib import TopologicalSorter
from importlib import resources
from typing import Final

_FOLDERS: Final = ("functions", "views")
#: Indexes that those of `indexes/` replace: removed once these are built.
REPLACED_INDEXES: Final = ("job_claim_idx", "job_unranked_idx")
_COMMENT: Final = re.compile(r"--.*")
_NAME: Final = re.compile(r"\brunner\.(\w+)")


def objects() -> Sequence[str]:
    """The text of each file: first what others are made from, then those others."""
    files: dict[str, str] = {}
    for folder in _FOLDERS:
        for path in resources.files(__name__).joinpath(folder).iterdir():
            if path.name.endswith(".sql"):
                files[path.name.removesuffix(".sql")] = path.read_text(encoding="utf-8")
    return tuple(files[name] for name in in_order(files))


def in_order(files: Mapping[str, str]) -> Sequence[str]:
    """The names of the files, each after those that it mentions outside comments; otherwise by name.

    Raises:
        graphlib.CycleError: two files mention each other.
    """
    mentions = {
        name: sorted(set(_NAME.findall(_COMMENT.sub("", files[name]))) & files.keys() - {name})
        for name in sorted(files)
    }
    return tuple(TopologicalSorter(mentions).static_order())


def indexes() -> Mapping[str, str]:
    """The statement that builds each index of `indexes/`, by the index's name."""
    return {
        path.name.removesuffix(".sql"): path.read_text(encoding="utf-8")
        for path in sorted(resources.files(__name__).joinpath("indexes").iterdir(), key=lambda path: path.name)
        if path.name.endswith(".sql")
    }


def rights_sql() -> str:
    """SQL that takes from PUBLIC the right to call our functions; part of every `migrate`."""
    return resources.files(__name__).joinpath("rights.sql").read_text(encoding="utf-8")


def roles_sql() -> str:
    """SQL that makes the roles and gives them their rights.

    They are `runner_daemon`, `_frontend`, `_operator`, `_readonly`, `_gateway` and `_kernelboard`.

    For databases where `migrate` may not create roles: an administrator runs it by hand, after `migrate`.
    """
    return resources.files(__name__).joinpath("roles.sql").read_text(encoding="utf-8")
