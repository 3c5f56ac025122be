"""The store's records as JSON objects, for `--json` of the commands that list them. Pure.

A submission's own object is made in `runner.cli.view`, where secrets are kept back; checks, images, users and batches
make theirs in their commands. Scores are seconds, times ISO 8601.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from runner.cli.render_hosts import host_state, slots_per_type
from runner.gpu_types import Registry
from runner.model import Demand
from runner.store.records import (
    BoardLine,
    BoardView,
    FailedLine,
    GpuTypeLine,
    HostLine,
    MatchLine,
    RankingLine,
    StatusLine,
)
from runner.task_format.model import TaskFolder


def queue(lines: Sequence[StatusLine]) -> list[dict[str, Any]]:
    """Submissions, one object each."""
    return [_with_score(asdict(line)) for line in lines]


def boards(lines: Sequence[BoardLine], broken: Mapping[str, str]) -> list[dict[str, Any]]:
    """Leaderboards, one object each; `broken`: why the task of one does not load."""
    return [
        _plain({**_without_demand(asdict(line)), **_demand(line.demand), "task_fault": broken.get(line.name)})
        for line in lines
    ]


def board(view: BoardView) -> dict[str, Any]:
    """A leaderboard with its whole task."""
    return _plain(
        {
            "id": view.id,
            "name": view.name,
            "deadline": view.deadline,
            "description": view.description,
            "gpus": list(view.gpus),
            "visibility": view.visibility,
            "submissions": view.submissions,
            **_demand(view.demand),
            "task": dict(view.task),
            "extra": None if view.extra is None else dict(view.extra),
            "templates": dict(view.templates),
        }
    )


def ranking(lines: Sequence[RankingLine]) -> list[dict[str, Any]]:
    """Places, one object each."""
    return [_with_score(asdict(line)) for line in lines]


def gpu_types(types: Sequence[GpuTypeLine], hosts: Sequence[HostLine], registry: Registry) -> list[dict[str, Any]]:
    """GPU types, one object each, with slots on hosts that are up and the day of the last run on hardware, or null."""
    slots = slots_per_type([line for line in hosts if host_state(line) == "up"])
    known = {entry.name: entry for entry in registry.all()}
    return [
        {
            **asdict(line),
            "slots": slots.get(line.name, 0),
            "last_hardware_run": known[line.name].last_hardware_run if line.name in known else None,
        }
        for line in types
    ]


def hosts(lines: Sequence[HostLine]) -> list[dict[str, Any]]:
    """Daemons, one object each."""
    return [
        _plain({**asdict(line), "state": host_state(line), "slots": [dict(slot) for slot in line.slots]})
        for line in lines
    ]


def failed(lines: Sequence[FailedLine]) -> list[dict[str, Any]]:
    """Attempts that gave no result, one object each."""
    return [_plain(asdict(line)) for line in lines]


def matching(lines: Sequence[MatchLine]) -> list[dict[str, Any]]:
    """What a rerun or an invalidation concerns, one object per board, GPU type, mode and obstacle."""
    return [{**asdict(line), "mode": line.mode.value} for line in lines]


def task(folder: TaskFolder) -> dict[str, Any]:
    """What `task check` found: the counts that its table shows."""
    checked = folder.task
    types = tuple(dict.fromkeys((*folder.gpus, *checked.extra.cases)))
    cases = {gpu: checked.cases_for(gpu) for gpu in types}
    return {
        "name": folder.name,
        "lang": checked.lang.value,
        "harness": checked.harness.value,
        "ranking_by": checked.ranking_by.value,
        "gpus": list(folder.gpus),
        "files": sorted(checked.files),
        "templates": sorted(folder.templates),
        "tests": len(checked.tests),
        "benchmarks": len(checked.benchmarks),
        "cases": {
            gpu: {
                "tests": len(found.tests or ()),
                "benchmarks": len(found.benchmarks or ()),
                "hidden": len(found.hidden or ()),
            }
            for gpu, found in cases.items()
        },
    }


def _demand(demand: Demand) -> dict[str, Any]:
    """What a leaderboard demands of a time, under the names of its options."""
    return {"timing": demand.timing.value, "tolerance": demand.tolerance}


def _without_demand(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key != "demand"}


def _with_score(values: dict[str, Any]) -> dict[str, Any]:
    """The record with its score under the name that every other document gives it."""
    return _plain({("score" if key == "score_s" else key): value for key, value in values.items()})


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value.isoformat() if isinstance(value, datetime) else value for key, value in values.items()}
