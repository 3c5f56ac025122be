"""The screen of `watch`, without a terminal."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from runner.base.model import Mode, Verdict
from runner.cli.screen import Scene, frame
from runner.store import BatchLine, HostLine, LatestLine, QueueDepth, RunningLine, ThroughputLine
from tests.unit.cli.samples import NOW


def host(name: str, *slots: Mapping[str, Any], silent_s: float = 1.0, draining: bool = False) -> HostLine:
    """A daemon in the list."""
    return HostLine(
        name=name,
        version="1",
        slots=slots,
        draining=draining,
        drain_reason="fan" if draining else None,
        registered_at=NOW,
        last_seen=NOW,
        silent_s=silent_s,
        running=0,
        gpu_types=tuple({str(slot["gpu_type"]) for slot in slots}),
    )


def running(job_id: int, host: str, *, slot: str | None, secret: bool = False) -> RunningLine:
    """A job at work."""
    progress = None if slot is None else {"phase": "test", "done": 3, "total": 10, "slot": slot}
    return RunningLine(
        job_id=job_id,
        submission_id=100 + job_id,
        leaderboard="vectoradd",
        user_id=f"user{job_id}\x1b[2J",
        host=host,
        gpu_type="H100",
        mode=Mode.LEADERBOARD,
        secret=secret,
        progress=progress,
        running_s=7.0,
    )


def latest(number: int, verdict: Verdict = Verdict.ACCEPTED) -> LatestLine:
    """A verdict."""
    return LatestLine(
        job_id=number,
        submission_id=number,
        leaderboard="vectoradd",
        user_id="bob",
        host="node1",
        gpu_type="H100",
        mode=Mode.TEST,
        secret=False,
        verdict=verdict,
        finished_at=NOW,
        ago_s=float(number),
        took_s=1.5,
    )


SLOTS = ({"name": "gpu0", "gpu_type": "H100"}, {"name": "gpu1", "gpu_type": "H100"})
SCENE = Scene(
    hosts=(
        host("node1", *SLOTS),
        host("node2", {"name": "gpu0", "gpu_type": "L4", "quarantined": "fell off"}, draining=True),
        host("node3", {"name": "gpu0", "gpu_type": "L4"}, silent_s=90.0),
    ),
    running=(running(1, "node1", slot="gpu1"), running(2, "node2", slot=None), running(3, "lost", slot="x")),
    queue=(QueueDepth(gpu_type="H100", jobs=4, oldest_s=65.0), QueueDepth(gpu_type="L4", jobs=2, oldest_s=3.0)),
    latest=tuple(latest(number) for number in range(1, 31)),
    throughput=(ThroughputLine(host="node1", minute=2, ten_minutes=30),),
)


def group(job_id: int, host: str, *, slot: str) -> RunningLine:
    """A group at work."""
    progress = {"phase": "candidates", "done": 3, "total": 8, "slot": slot}
    line = running(job_id, host, slot=slot)
    return replace(line, submission_id=None, leaderboard=None, batch="kernels\x1b[2J", progress=progress)


def drawn(scene: Scene, *, width: int = 160, **options: Any) -> str:  # noqa: ANN401 - whatever frame takes
    """What a terminal of so many columns shows."""
    stream = io.StringIO()
    Console(file=stream, width=width, height=60).print(frame(scene, **{"head": "HEAD", **options}))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


def line_with(text: str, *words: str) -> str:
    """The one line that has all of these."""
    (found,) = [line for line in text.splitlines() if all(word in line for word in words)]
    return " ".join(found.split())


def test_every_slot_says_what_runs_there() -> None:
    """A job on its slot, one just claimed beside its host, a slot that is not used with the reason, a host gone."""
    text = drawn(SCENE)
    assert line_with(text, "node1", "gpu1") == (
        "node1 up 30 gpu1 H100 101 vectoradd user1\\x1b[2J leaderboard, test 3/10 7 s"
    )
    assert line_with(text, "node1", "gpu0") == "node1 up 30 gpu0 H100 free"
    assert line_with(text, "node2", "102") == "node2 draining: fan 0 ? H100 102 vectoradd user2\\x1b[2J leaderboard 7 s"
    assert line_with(text, "node2", "fell off") == "node2 draining: fan 0 gpu0 L4 not used fell off"
    assert line_with(text, "node3") == "node3 silent 0 gpu0 L4 free"
    assert line_with(text, "lost") == "lost gone - ? H100 103 vectoradd user3\\x1b[2J leaderboard, test 3/10 7 s"
    assert "\x1b" not in text


def test_the_queue_says_what_no_host_serves() -> None:
    """A type that no host which is up has, that only draining ones have, that is paused."""
    text = drawn(SCENE)
    assert line_with(text, "1 min") == "H100 4 1 min"
    assert line_with(text, "its hosts are draining") == "L4 2 3 s its hosts are draining"
    away = replace(SCENE, hosts=[host for host in SCENE.hosts if host.name != "node2"])
    assert line_with(drawn(away), "no host serves it") == "L4 2 3 s no host serves it"
    paused = replace(SCENE, pauses={"h100": "a contest\x1b[2J"})
    assert line_with(drawn(paused), "H100", "1 min") == "H100 4 1 min paused: a contest\\x1b[2J"


def test_a_secret_run_shows_no_progress() -> None:
    """How many hidden cases there are is not shown."""
    scene = replace(SCENE, running=(running(1, "node1", slot="gpu0", secret=True),))
    assert line_with(drawn(scene), "101") == "node1 up 30 gpu0 H100 101 vectoradd user1\\x1b[2J secret run 7 s"


@pytest.mark.parametrize("width", [60, 80, 160])
@pytest.mark.parametrize("height", [24, 30, 50])
def test_the_screen_fits_the_terminal(height: int, width: int) -> None:
    """No row takes two lines; what does not fit is counted, in each part."""
    text = drawn(SCENE, width=width, height=height)
    lines = text.splitlines()
    assert len(lines) <= height
    assert lines[0] == "HEAD"
    assert "more" in text
    assert "Queue" in text
    assert "Latest verdicts" in text


def test_groups_of_batches_are_shown_as_such() -> None:
    """What runs, what is over, and how far each batch is; without batches there is no such table."""
    batch = BatchLine(batch="kernels\x1b[2J", user_id="trainer", items=2000, finished=120, age_s=65.0)
    over = replace(latest(1), submission_id=None, leaderboard=None, batch="kernels", items=8)
    scene = replace(
        SCENE,
        running=(group(1, "node1", slot="gpu1"),),
        latest=(over, replace(over, batch="other", verdict=Verdict.INTERNAL_ERROR)),
        batches=(batch,),
    )
    text = drawn(scene)
    assert line_with(text, "node1", "gpu1") == (
        "node1 up 30 gpu1 H100 batch kernels\\x1b[2J user1\\x1b[2J group, candidates 3/8 7 s"
    )
    assert line_with(text, "trainer") == "kernels\\x1b[2J trainer 120 2000 1 min"
    assert line_with(text, "evaluated", "ago") == "1 s ago batch kernels bob group of 8 H100 node1 1.50 s evaluated"
    assert line_with(text, "batch other").endswith("internal_error")
    assert "Batches" not in drawn(SCENE)
