"""What the channels carry, and what a daemon tells of its slots: everything that may happen to a job happens once."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

import psycopg

from runner.base.errors import EvaluationError
from runner.base.model import Job, JobResult, Progress
from tests.integration.daemon.rig import Gate, Rig, fails
from tests.unit.interfaces.fixtures import compare, keys

CHANNELS = ("runner_events", "runner_hosts", "runner_queue")


class Listener:
    """Keeps what it hears."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection
        self.lines: set[str] = set()
        self.events: list[str] = []
        for channel in CHANNELS:
            connection.execute(f"LISTEN {channel}".encode())

    def has_heard(self, event: str) -> bool:
        """Listen for a moment; whether there was such an event since the last one that was waited for."""
        for notification in self._connection.notifies(timeout=0.05):
            channel, payload = notification.channel, notification.payload
            if channel == "runner_events":
                said = json.loads(payload)
                self.events.append(said["event"])
                self.lines |= {f"{channel}: {said['event']}.{key}" for key in keys(said)}
            else:
                self.lines.add(f"{channel}: the payload is {payload!r}")
        found = event in self.events
        if found:
            self.events.clear()
        return found


def test_notifications(rig: Rig) -> None:
    """Each kind of event with its keys; what calls the daemons."""

    def show_progress(_job: Job, cancel: threading.Event, on_progress: Callable[[Progress], None]) -> JobResult:
        on_progress(Progress(phase="test", done=1, total=2))
        return Gate()(_job, cancel, on_progress)

    with psycopg.connect(rig.url, autocommit=True) as connection:
        listener = Listener(connection)

        def wait_for(*events: str) -> None:
            for event in events:
                rig.wait_for(lambda event=event: listener.has_heard(event), event)  # type: ignore[misc]  # mypy: default in lambda

        rig.start()
        done = rig.submit()
        wait_for("claimed")
        rig.wait_done(done)
        rig.evaluator.script = fails(EvaluationError("the container broke"))
        failing = rig.submit()
        wait_for("queued")
        rig.wait_through_retries(failing)
        rig.evaluator.script = show_progress
        running = rig.submit()
        wait_for("progress")
        rig.sql("SELECT runner.cancel(%(id)s)", id=running)
        wait_for("cancelled")
        rig.sql("SELECT runner.drain('test-host', 'a test')")
        rig.sql("SELECT runner.cancel(%(id)s)", id=rig.submit())
        wait_for("cancel")
        rig.sql("SELECT runner.invalidate(%(id)s, reason => 'a test')", id=done)
        wait_for("invalidated")
        slots = rig.sql("SELECT slots FROM runner.host")
    compare("notifications", listener.lines)
    compare("host_slots", (key for host in slots for key in keys(host)))
