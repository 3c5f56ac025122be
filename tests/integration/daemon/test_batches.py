"""From candidates to rewards through a real daemon; only the evaluation itself is a stand-in."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from runner.base.errors import DatabaseUnavailableError, SubmissionError
from runner.base.model import Job, JobResult, Progress
from runner.extras.trainers.client import AsyncClient, Client, EvaluationFaultError, Item
from runner.store import migrate
from tests.chaos.server import Server
from tests.integration.daemon.groups import known, looking
from tests.integration.daemon.process import ROOT
from tests.integration.daemon.proxy import Proxy
from tests.integration.daemon.rig import MakeRig, Rig
from tests.support.waiting import PATIENCE_S, wait_until

#: Items in whose middle everything is killed: 400 by default, or KERNEL_RUNNER_TEST_EXAMPLES.
ITEMS = int(os.environ.get("KERNEL_RUNNER_TEST_EXAMPLES", "400"))


def item(number: int, *, of: int = 0, **found: object) -> Item:
    """An item whose text says what is found of it."""
    says = f"# found: {json.dumps(found)}\n" if found else ""
    return Item(reference=f"class Model: pass  # {of}\n", candidate=f"{says}class ModelNew: pass  # {number}\n")


def _rows(url: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(query.encode()).fetchall()


def test_ten_lines_from_candidates_to_rewards(served: Rig) -> None:
    """In their order, whatever order the results come in; bad ones harm no neighbour."""
    items = [
        *[item(number, of=number // 4) for number in range(20)],
        item(20, verdict="wrong_answer", correct=False, message="off by one"),
        item(21, speedup=1.02, speedup_low=0.97, speedup_high=1.06),
        Item(reference="r", candidate="a\0b"),
        Item(reference="r", candidate=None),  # type: ignore[arg-type]  # as an `extract` may say
        Item(reference="r", candidate="x" * 2_000_000),
        Item(reference="", candidate="x"),
        Item(reference=None, candidate="x"),  # type: ignore[arg-type]  # as a column may say
        Item(reference="r", candidate="x", settings={"inputs": 0}),
    ]
    with Client(served.url, gpu_type="CPU") as client:
        results = client.evaluate(items)
        rewards = client.rewards(items, "kernelbook@1")
        assert client.progress() == (len(items), len(items))
    assert [result.key for result in results] == [item.key for item in items]
    assert rewards == [*[2.0] * 20, 0.0, 1.0, 0.0, 0.0, 0.0, None, None, None]
    assert results[20].message == "off by one"
    assert [result.verdict for result in results[22:]] == ["invalid"] * 6
    assert results[22].message == "the candidate has a NUL character at position 1"
    assert _rows(served.url, "SELECT count(*) FROM runner.item") == [(len(items),)]


@pytest.mark.parametrize("most", [1, 5])
def test_a_quota_below_what_a_client_sends_at_once_lets_all_through(served: Rig, most: int) -> None:
    """In smaller parts: waiting alone would never end."""
    served.sql("SELECT runner.set_open_items(session_user, session_user, %(most)s)", most=most)
    with Client(served.url, gpu_type="CPU") as client:
        assert [result.correct for result in client.evaluate(item(number) for number in range(6))] == [True] * 6


@pytest.mark.parametrize("key", ["a\0b", "\ud800", "a\nb", "k" * 300])
def test_a_key_that_is_none_is_a_sentence(served: Rig, key: str) -> None:
    """Not an error of the driver."""
    with Client(served.url, gpu_type="CPU") as client, pytest.raises(SubmissionError, match="key '"):
        client.evaluate([replace(item(1), key=key)])


@pytest.mark.parametrize("settings", [{"rtol": float("nan")}, {"a\0": 1}, {"inputs": 5.0}, {"inputs": {1}}])
def test_a_setting_that_is_none_is_a_sentence(served: Rig, settings: dict[str, Any]) -> None:
    """Of the call, and before anything is evaluated."""
    with (
        Client(served.url, gpu_type="CPU", settings=settings) as client,
        pytest.raises(SubmissionError, match=r"^setting "),
    ):
        client.evaluate([item(1)])


def test_a_key_for_two_candidates_is_an_error(served: Rig) -> None:
    """Not the first one's result for both; equal items may share a key."""
    one, other = item(1), item(2)
    with Client(served.url, gpu_type="CPU") as client:
        with pytest.raises(SubmissionError, match="'same' is the key of two items"):
            client.evaluate([replace(one, key="same"), replace(other, key="same")])
        twice = client.evaluate([replace(one, key="mine"), replace(one, key="mine")])
    assert [result.verdict for result in twice] == ["accepted"] * 2


@pytest.mark.usefixtures("long_pauses")
def test_a_fault_of_ours_is_no_reward(served: Rig) -> None:
    """Retried as often as its group may be; then None, or an exception where the caller wants one."""
    items = [item(1), item(2, verdict="internal_error", correct=None, message="the engine went away")]
    with Client(served.url, gpu_type="CPU") as client:
        stream = client.stream(items)
        assert next(stream).verdict == "accepted"
        for _ in range(2):
            served.wait_for(lambda: served.sql("SELECT FROM runner.job WHERE not_before > now()"), "it waits again")
            served.sql("UPDATE runner.job SET not_before = NULL, avoid_host = NULL WHERE state = 'queued'")
        fault = next(stream)
        assert (fault.verdict, fault.message, fault.attempt) == ("internal_error", "the engine went away", 3)
        assert list(stream) == []
        assert client.rewards(items, "kevin@1") == [0.0, None]
        with pytest.raises(EvaluationFaultError, match="the engine went away"):
            client.rewards(items, "kevin@1", strict=True)


def test_a_caller_that_comes_again_finds_its_results(served: Rig) -> None:
    """Under the keys of the first call: nothing runs twice, whatever the name of the batch."""
    items = [item(number) for number in range(30)]
    with Client(served.url, gpu_type="CPU", batch="first") as client:
        first = client.evaluate(items)
    seen = len(served.evaluator.seen)
    with Client(served.url, gpu_type="CPU", batch="first") as client:
        assert client.evaluate(items) == first
    with Client(served.url, gpu_type="CPU") as client:
        assert client.evaluate(items) == first
        # Some of them known, some new.
        assert [result.verdict for result in client.evaluate([*items[:3], item(99)])] == ["accepted"] * 4
    assert len(served.evaluator.seen) == seen + 1


def test_no_more_is_open_than_the_client_may_have(rig: Rig) -> None:
    """Items wait in the program, and are taken from the iterable as results come."""
    look, asked = looking(0.01), threading.Event()
    taken = 0

    def script(job: Job, cancel: threading.Event, on_progress: Callable[[Progress], None]) -> JobResult:
        # The first group ends when others have come, and those end after the client has asked how far it is.
        if len(rig.evaluator.seen) == 1:
            rig.wait_for(lambda: len(rig.sql("SELECT FROM runner.item")) >= 8, "more groups have come")
        else:
            assert asked.wait(PATIENCE_S)
        return look(job, cancel, on_progress)

    rig.evaluator.script = script

    def endless() -> Iterator[Item]:
        nonlocal taken
        for number in range(60):
            taken += 1
            yield item(number)

    async def run() -> tuple[int, int]:
        most = 0
        async with AsyncClient(rig.url, gpu_type="CPU", outstanding=16, group_size=4) as client:
            done = 0
            async for _ in client.stream(endless()):
                done += 1
                finished, items = await client.progress()
                most = max(most, items - finished)
                if not asked.is_set():
                    # Until then no other group ends. Afterwards results come that this loop has not been given yet.
                    assert taken <= 4 + 2 * 16 + 4
                asked.set()
            return done, most

    rig.start()
    rig.wait_for(lambda: known(rig.url), "the GPU type is published")
    done, most = asyncio.run(run())
    assert done == 60
    assert 1 < most <= 16


def test_an_outage_is_waited_out_or_said(rig: Rig, proxy: Proxy) -> None:
    """The call goes on when the database is back; one that is away for too long is an error, and no reward."""
    rig.evaluator.script = looking(0.01)
    rig.start()
    rig.wait_for(lambda: known(rig.url), "the GPU type is published")
    proxy.open()
    items = [item(number, of=number) for number in range(60)]
    with Client(proxy.url, gpu_type="CPU") as client:
        stream = client.stream(items)
        results = [next(stream)]
        proxy.shut()
        time.sleep(0.5)
        proxy.open()
        results += list(stream)
        assert len({result.key for result in results}) == 60
    with Client(proxy.url, gpu_type="CPU", patience_s=0.5) as client:
        proxy.shut()
        with pytest.raises(DatabaseUnavailableError):
            client.evaluate([item(100)])


def test_a_spooled_group_is_committed_later(make_rig: MakeRig, proxy: Proxy) -> None:
    """The database is away when the group ends: its results wait on disk, and come in once."""
    proxy.open()
    rig = make_rig(daemon_url=proxy.url)
    script = looking()
    ended: list[int] = []

    def shut(*given: Any) -> Any:  # noqa: ANN401 - as a script
        if not ended:
            proxy.shut()
        ended.append(given[0].id)
        return script(*given)

    rig.evaluator.script = shut
    rig.start()
    rig.wait_for(lambda: known(rig.url), "the GPU type is published")
    with Client(rig.url, gpu_type="CPU") as client:
        stream = client.stream([item(number) for number in range(5)])
        wait_until(lambda: rig.spool.count == 1, "it is spooled")
        proxy.open()
        assert {result.verdict for result in stream} == {"accepted"}
    assert len(ended) == 1


CLIENT = """
import json, sys
from runner.extras.trainers.client import Client
from tests.integration.daemon.test_batches import item
with Client(sys.argv[1], gpu_type="CPU", batch="storm", outstanding=128) as client:
    items = [item(n, of=n // 8) for n in range(int(sys.argv[2]))]
    found = {}
    for result in client.stream(items):
        found[result.key] = [result.verdict, result.attempt]
        if len(found) % 50 == 0:
            print(len(found), flush=True)
print(json.dumps(found), flush=True)
"""


class _Killed:
    """A program that is killed and started again."""

    def __init__(self, *command: str) -> None:
        self._command = [sys.executable, *command]
        self._output = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by `close`
        self.start()

    def start(self) -> None:
        """Start it (again)."""
        self._output.seek(0)
        self._output.truncate()
        self.child = subprocess.Popen(
            self._command, cwd=ROOT, stdin=subprocess.PIPE, stdout=self._output, stderr=subprocess.DEVNULL
        )

    def kill(self) -> None:
        """As `kill -9`, and wait until it is gone."""
        self.child.send_signal(signal.SIGKILL)
        self.child.wait()
        assert self.child.stdin is not None
        self.child.stdin.close()

    @property
    def said(self) -> list[str]:
        """The lines of its output."""
        return Path(f"/proc/self/fd/{self._output.fileno()}").read_text(encoding="utf-8").splitlines()

    def close(self) -> None:
        """Kill it for good."""
        self.kill()
        self._output.close()


def test_daemon_database_and_client_are_killed_and_every_key_has_one_result(tmp_path: Path) -> None:
    """In the middle of all items; none has a second result, none runs again once it has one, and none is lost."""
    journal = tmp_path / "journal"
    with Server() as server:
        server.start()
        url = server.url("postgres")
        migrate(url)

        def wait_for(share: float) -> None:
            wait_until(
                lambda: len(_rows(url, "SELECT FROM runner.item_result")) >= share * ITEMS,
                f"{share:.0%} of the items are over",
                patience_s=PATIENCE_S + ITEMS / 20,
            )

        daemon = _Killed("-m", "tests.integration.daemon.groups", url, '{"lease_s": 3.0}', str(journal))
        wait_until(lambda: known(url), "the GPU type is published")
        client = _Killed("-c", CLIENT, url, str(ITEMS))
        try:
            wait_for(0.1)
            daemon.kill()
            daemon.start()
            wait_for(0.25)
            server.crash()
            server.start()
            wait_for(0.45)
            client.kill()
            client.start()
            wait_for(1.0)
            wait_until(lambda: client.child.poll() is not None, "the client ends", patience_s=3 * PATIENCE_S)
            assert client.child.returncode == 0
            found = json.loads(client.said[-1])
            assert len(found) == ITEMS
            assert {verdict for verdict, _ in found.values()} == {"accepted"}
            counts = _rows(
                url,
                "SELECT count(*), count(DISTINCT i.key), count(DISTINCT r.item_id), count(DISTINCT r.seq),"
                " max(r.seq), bool_and(r.attempt <= j.attempt) FROM runner.item i"
                " JOIN runner.item_result r ON r.item_id = i.id JOIN runner.job j ON j.id = i.job_id",
            )
            assert counts == [(ITEMS, ITEMS, ITEMS, ITEMS, ITEMS, True)]
            over = "SELECT item_id, attempt, extract(epoch FROM finished_at)::float8 FROM runner.item_result"
            runs = [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()]
            _check_runs(runs, _rows(url, over))
        finally:
            client.close()
            daemon.close()


def _check_runs(runs: Sequence[dict[str, Any]], over: Sequence[tuple[Any, ...]]) -> None:
    """No claim ran twice; each result is that of a run, and no run of its item began after it."""
    assert len({(run["job"], run["attempt"], run["claimed"]) for run in runs}) == len(runs)
    of_item: dict[int, list[dict[str, Any]]] = {}
    for run in runs:
        for number in run["items"]:
            of_item.setdefault(number, []).append(run)
    for number, attempt, finished_s in over:
        assert attempt in {run["attempt"] for run in of_item[number]}, number
        assert all(run["at"] <= finished_s for run in of_item[number]), (number, of_item[number], finished_s)
