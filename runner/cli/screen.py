"""What `watch` shows, as a renderable: hosts and slots, what runs where, the queue, the newest verdicts. Pure.

Of secret runs the phase is left out, as everywhere. Everything a stranger wrote goes through `runner.cli.safe`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.text import Text

from runner.base.model import JobState, Verdict
from runner.base.units import age, duration
from runner.cli import render, render_hosts
from runner.cli.safe import one_line
from runner.store import BatchLine, HostLine, LatestLine, QueueDepth, RunningLine, ThroughputLine

_Row = list[str | Text]
#: Rows that any part keeps, however small the terminal.
_LEAST_ROWS = 2
#: Lines that a part takes besides its rows: title, columns, rule, blank.
_FRAME_ROWS = 4


@dataclass(frozen=True, kw_only=True)
class Scene:
    """One look at the database."""

    hosts: Sequence[HostLine]
    running: Sequence[RunningLine]
    queue: Sequence[QueueDepth]
    latest: Sequence[LatestLine]
    throughput: Sequence[ThroughputLine]
    batches: Sequence[BatchLine] = ()
    #: Names of paused GPU types, in lower case -> why.
    pauses: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _Part:
    """A table: its title, its columns, its rows, and what it says without rows."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[str | Text]]
    nothing: str


def frame(scene: Scene, *, head: str, height: int | None = None) -> RenderableType:
    """The whole screen.

    Args:
        scene: what there is to show.
        head: the first line.
        height: lines of the terminal; None: as many as it takes.
    """
    parts = _parts(scene)
    height_left = None if height is None else height - 1 - len(parts) * _FRAME_ROWS
    blocks: list[RenderableType] = [Text(head, style="bold", no_wrap=True, overflow="ellipsis")]
    for part, rows in zip(parts, _share(parts, height_left), strict=True):
        blocks += [*_shown(part, rows), Text("")]
    return Group(*blocks[:-1])


def headline(scene: Scene, now: datetime) -> str:
    """The fleet in one line."""
    up = sum(render_hosts.host_state(host) == "up" for host in scene.hosts)
    slots = sum(
        render_hosts.slots_per_type([host for host in scene.hosts if render_hosts.host_state(host) == "up"]).values()
    )
    minute = sum(line.minute for line in scene.throughput)
    ten = sum(line.ten_minutes for line in scene.throughput)
    return (
        f"kernel-runner  {now.astimezone(UTC):%H:%M:%S} UTC   hosts {up} of {len(scene.hosts)} up   slots {slots}   "
        f"running {len(scene.running)}   waiting {sum(line.jobs for line in scene.queue)}   "
        f"done {minute} in a minute, {ten} in ten"
    )


def _parts(scene: Scene) -> Sequence[_Part]:
    """The tables, from top to bottom; batches only where there are any."""
    batches = [_batches(scene)] if scene.batches else []
    return [_slots(scene), _queue(scene), *batches, _latest(scene)]


def _slots(scene: Scene) -> _Part:
    done = {line.host: line.ten_minutes for line in scene.throughput}
    by_host: dict[str, list[RunningLine]] = {}
    for line in scene.running:
        by_host.setdefault(line.host, []).append(line)
    rows: list[_Row] = []
    for host in scene.hosts:
        state = render_hosts.host_state(host)
        left = by_host.pop(host.name, [])
        shown: _Row = [one_line(host.name), _state_text(state, host), str(done.get(host.name, 0))]
        if state == "stopped" and not left:
            rows.append([*shown, "-", "-", "-", "-", "-", "-"])
            continue
        for slot in host.slots:
            name, gpu_type = str(slot.get("name")), str(slot.get("gpu_type"))
            here = [line for line in left if _slot_of(line) == name]
            left = [line for line in left if line not in here]
            condition = slot.get("quarantined") or slot.get("degraded")
            what = [] if here else [_idle(condition, quarantined=bool(slot.get("quarantined")))]
            rows += [[*shown, one_line(name), one_line(gpu_type), *cells] for cells in (*map(_job, here), *what)]
        # Just claimed: which slot it has is said with its first progress.
        rows += [[*shown, "?", one_line(line.gpu_type), *_job(line)] for line in left]
    for name, lines in by_host.items():
        gone: _Row = [one_line(name), Text("gone", style="red"), "-", "?"]
        rows += [[*gone, one_line(line.gpu_type), *_job(line)] for line in lines]
    return _Part(
        title="Hosts and slots",
        columns=("host", "state", "done/10 min", "slot", "gpu", "submission", "user", "what", "for"),
        rows=rows,
        nothing="no hosts have announced themselves; start one with `kernel-runner serve`",
    )


def _job(line: RunningLine) -> _Row:
    mode = line.mode.value if line.batch is None else "group"
    return [
        render.work_of(line),
        one_line(line.user_id),
        "secret run" if line.secret else f"{mode}{_phase(line.progress)}",
        age(line.running_s),
    ]


def _idle(condition: object, *, quarantined: bool) -> _Row:
    if condition is None:
        return [Text("free", style="dim"), "", "", ""]
    word = "not used" if quarantined else "free, nothing ranked"
    return [Text(word, style="red" if quarantined else "yellow"), "", Text(one_line(str(condition))), ""]


def _slot_of(line: RunningLine) -> str | None:
    return None if line.progress is None else str(line.progress.get("slot"))


def _phase(progress: Mapping[str, object] | None) -> str:
    if progress is None or not isinstance(progress.get("phase"), str):
        return ""
    total = progress.get("total")
    of = f" {progress.get('done')}/{total}" if isinstance(total, int) and total > 0 else ""
    return f", {one_line(str(progress['phase']))}{of}"


def _state_text(state: str, host: HostLine) -> Text:
    reason = f": {host.drain_reason}" if state == "draining" and host.drain_reason else ""
    style = {"up": "green", "draining": "yellow"}.get(state, "red")
    return Text(one_line(f"{state}{reason}"), style=style)


def _queue(scene: Scene) -> _Part:
    rows: list[_Row] = [
        [one_line(line.gpu_type), str(line.jobs), age(line.oldest_s), Text(_held_up(line.gpu_type, scene), style="red")]
        for line in scene.queue
    ]
    return _Part(title="Queue", columns=("gpu", "waiting", "oldest", ""), rows=rows, nothing="nothing waits")


def _held_up(gpu_type: str, scene: Scene) -> str:
    """Why nothing of a GPU type begins; empty where hosts serve it."""
    reason = scene.pauses.get(gpu_type.lower())
    if reason is not None:
        return one_line(f"paused: {reason}")
    states = {
        render_hosts.host_state(host)
        for host in scene.hosts
        if gpu_type in host.gpu_types or gpu_type in render_hosts.slots_per_type([host])
    }
    if "up" in states:
        return ""
    return "its hosts are draining" if "draining" in states else "no host serves it"


def _latest(scene: Scene) -> _Part:
    rows: list[_Row] = [
        [
            f"{age(line.ago_s)} ago",
            render.work_of(line),
            one_line(line.user_id),
            _kind(line),
            one_line(line.gpu_type),
            one_line(line.host),
            duration(None if line.took_s is None else line.took_s * 1e9),
            _verdict(line),
        ]
        for line in scene.latest
    ]
    columns = ("when", "submission", "user", "mode", "gpu", "host", "took", "verdict")
    return _Part(title="Latest verdicts", columns=columns, rows=rows, nothing="no verdicts yet")


def _kind(line: LatestLine) -> str:
    if line.batch is not None:
        return "group" if line.items is None else f"group of {line.items}"
    return f"{line.mode.value}{', secret' if line.secret else ''}"


def _verdict(line: LatestLine) -> Text:
    """A group is evaluated or not; its candidates have verdicts of their own."""
    if line.batch is not None and line.verdict is Verdict.ACCEPTED:
        return Text("evaluated", style="green")
    return render.verdict_text(line.verdict, JobState.DONE)


def _batches(scene: Scene) -> _Part:
    rows: list[_Row] = [
        [one_line(line.batch), one_line(line.user_id), str(line.finished), str(line.items), age(line.age_s)]
        for line in scene.batches
    ]
    columns = ("batch", "user", "evaluated", "of", "since")
    return _Part(title="Batches", columns=columns, rows=rows, nothing="no batch waits")


def _share(parts: Sequence[_Part], height_left: int | None) -> Iterable[int | None]:
    """How many rows each part may have: what is short gets all it has, the others what is left in equal shares."""
    if height_left is None:
        return [None] * len(parts)
    given: dict[int, int] = {}
    left = max(height_left, len(parts) * _LEAST_ROWS)
    for number in sorted(range(len(parts)), key=lambda number: len(parts[number].rows)):
        fair = left // (len(parts) - len(given))
        given[number] = max(_LEAST_ROWS, min(max(1, len(parts[number].rows)), fair))
        left -= given[number]
    return [given[number] for number in range(len(parts))]


def _shown(part: _Part, most: int | None) -> list[RenderableType]:
    if not part.rows:
        return [Text(part.title, style="bold"), Text(f"  {part.nothing}", style="dim", no_wrap=True)]
    cut = most is not None and len(part.rows) > most
    rows = part.rows[: max(1, (most or 0) - 1)] if cut else part.rows
    table = render.listing(part.columns, rows)
    more = [Text(f"  … and {len(part.rows) - len(rows)} more", style="dim")] if cut else []
    return [Text(part.title, style="bold"), table, *more]
