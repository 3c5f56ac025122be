"""The store's records as JSON objects, for `--json` of the commands that list them. Pure.

A submission's own object is made in `runner.cli.view`, where secrets are kept back; checks, images and batches make
theirs in their commands. Scores are seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from runner.base.gpu_types import Registry
from runner.cli.render_hosts import host_state, slots_per_type
from runner.store.records import GpuTypeLine, HostLine

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def record(line: DataclassInstance, **more: object) -> dict[str, Any]:
    """A record, and more: its score under the name that every document gives it, its demand under those of options."""
    values = asdict(line)
    if "score_s" in values:
        values["score"] = values.pop("score_s")
    demand = values.pop("demand", {})
    return {**values, **demand, **more}


def gpu_types(types: Sequence[GpuTypeLine], hosts: Sequence[HostLine], registry: Registry) -> list[dict[str, Any]]:
    """GPU types, one object each, with slots on hosts that are up and the day of the last run on hardware, or null."""
    slots = slots_per_type([line for line in hosts if host_state(line) == "up"])
    days = {entry.name: entry.last_hardware_run for entry in registry.all()}
    return [record(line, slots=slots.get(line.name, 0), last_hardware_run=days.get(line.name)) for line in types]
