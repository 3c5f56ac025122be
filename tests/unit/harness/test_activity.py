"""Whether processes used a processor between two looks: real processes that sleep, wake up, spin, fork and end."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tasks.harness.judge.activity import _COMPARED_NS, _MOST_THREADS, Activity, Look, _uid_of
from tests.support.waiting import wait_until

#: Sleeps on its standard input, and does what a line says.
_WORKER = """
import os, sys, threading, time
threading.stack_size(1 << 16)
gate, lock = threading.Event(), threading.Event()
waiting = threading.Thread(target=lock.wait, daemon=True)
waiting.start()
print("ready", flush=True)
for line in sys.stdin:
    what = line.strip()
    if what == "spin":
        threading.Thread(target=lambda: [None for _ in iter(int, 1)], daemon=True).start()
    elif what == "fork":
        if os.fork() == 0:
            time.sleep(600)
            os._exit(0)
    elif what == "leave a zombie":
        read, write = os.pipe()
        if os.fork() == 0:
            os._exit(0)
        os.close(write)
        os.read(read, 1)
    elif what == "spin a while":
        until = time.process_time() + 0.02
        while time.process_time() < until:
            pass
    elif what == "other threads":
        gate.set()
        gate = threading.Event()
        for _ in range(int(sys.argv[1])):
            threading.Thread(target=gate.wait, daemon=True).start()
    elif what == "end a thread":
        lock.set()
        waiting.join()
    print("done", flush=True)
    if what == "spin for ever":
        while True:
            pass
"""


class Worker:
    """A process that waits for lines."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _WORKER, str(_MOST_THREADS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def do(self, what: str) -> None:
        """Let it do something, and wait until it has."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        self.process.stdout.readline()


@pytest.fixture
def worker() -> Iterator[Worker]:
    """A worker that sleeps."""
    made = Worker()
    yield made
    with suppress(ProcessLookupError):
        os.killpg(made.process.pid, signal.SIGKILL)
    made.process.communicate()


@pytest.fixture
def activity(worker: Worker) -> Iterator[Activity]:
    """It is watched."""
    made = Activity(worker.process.pid)
    # Between two looks: a thread that waits for the interpreter's lock is asleep too, and has not come to rest.
    wait_until(lambda: made.idle_since(made.look()), "the worker sleeps")
    yield made
    made.close()


def test_a_process_that_sleeps_is_idle(activity: Activity) -> None:
    """Both its threads were seen, and neither ran."""
    before = activity.look()
    assert before is not None
    assert len(before.ran_ns) == 2
    assert activity.idle_since(before)


@pytest.mark.parametrize("what", ["nothing", "spin", "fork"])
def test_a_process_that_ran_is_not(worker: Worker, activity: Activity, what: str) -> None:
    """Also if it sleeps again before the second look; a new thread or process counts as well."""
    before = activity.look()
    worker.do(what)
    assert not activity.idle_since(before)


def test_a_thread_that_never_stops_is_seen_running(worker: Worker, activity: Activity) -> None:
    """At the first look already, so that its uncounted time does not matter."""
    # The only thread that wants the interpreter's lock, so it never sleeps for it.
    worker.do("spin for ever")
    looks = [activity.look() for _ in range(20)]
    assert not any(look is not None and look.asleep for look in looks)


def test_the_end_of_a_process_is_work(worker: Worker, activity: Activity) -> None:
    """It must have run to end."""
    before = activity.look()
    worker.process.kill()
    worker.process.wait()
    assert not activity.idle_since(before)


def test_a_process_that_has_ended_and_is_not_waited_for_does_not_run(worker: Worker, activity: Activity) -> None:
    """A submission that leaves children so keeps its times; their end is work."""
    before = activity.look()
    worker.do("leave a zombie")
    assert not activity.idle_since(before)
    before = _asleep(activity)
    assert len(before.ran_ns) == 3
    wait_until(lambda: activity.busy_ns(_asleep(activity)) == 0, "all of them rest")


def _asleep(activity: Activity) -> Look:
    """A look at a process that has come to rest."""
    looks: list[Look] = []

    def rests() -> bool:
        look = activity.look()
        if look is not None and look.asleep:
            looks.append(look)
        return bool(looks)

    wait_until(rests, "it sleeps")
    return looks[-1]


def test_processor_time_grows_by_what_a_process_has_computed(worker: Worker, activity: Activity) -> None:
    """Once it rests again; not at all while it sleeps."""
    before = _asleep(activity)
    assert activity.busy_ns(before) == 0
    worker.do("spin a while")
    # It has counted 20 ms itself, and the kernel counts what has run when it takes it off its core.
    wait_until(lambda: (activity.busy_ns(before) or 0) >= 20_000_000, "its 20 ms are counted")


def test_processor_time_of_what_runs_now_is_unknown(worker: Worker, activity: Activity) -> None:
    """The kernel counts it later, also that of a thread that was not there before."""
    before = _asleep(activity)
    worker.do("spin")
    assert activity.busy_ns(before) is None


def test_processor_time_is_unknown_where_a_thread_has_ended(worker: Worker, activity: Activity) -> None:
    """Its time is gone with it; the same without a first look, and where nothing is left."""
    before = activity.look()
    worker.do("end a thread")
    wait_until(lambda: (look := activity.look()) is not None and len(look.ran_ns) == 1, "the thread has ended")
    assert activity.busy_ns(before) is None
    assert activity.busy_ns(None) is None
    before = activity.look()
    worker.process.kill()
    worker.process.wait()
    assert activity.busy_ns(before) is None


@pytest.fixture
def others() -> Iterator[list[int]]:
    """Two processes of another user, which sleep."""
    if os.geteuid() != 0:
        pytest.skip("only root may start processes of another user")
    # Nobody else has such processes, and no killed run of these tests has left any.
    user = 100_000 + os.getpid()
    read, write = os.pipe()
    pids = []
    for _ in range(2):
        pid = os.fork()
        if pid == 0:
            os.setresuid(user, user, user)
            os.read(read, 1)
            os._exit(0)
        pids.append(pid)
    wait_until(lambda: {_uid_of(pid) for pid in pids} == {user}, "both have become another user")
    yield pids
    os.write(write, b"xx")
    for pid in pids:
        os.waitpid(pid, 0)
    os.close(read)
    os.close(write)


@pytest.fixture
def watched(others: list[int]) -> Iterator[Activity]:
    """All processes of that user are watched."""
    made = Activity(others[0])
    yield made
    made.close()


def test_processes_of_another_user_are_found_wherever_they_come_from(others: list[int], watched: Activity) -> None:
    """As in a container: one that is not the worker's child counts, too."""
    before = _asleep(watched)
    assert set(before.ran_ns) == set(others)
    # Without a process of any user that begins during the look.
    wait_until(lambda: watched.idle_since(before), "they sleep")


def test_a_watcher_without_rights_sees_the_threads_of_another_user(others: list[int]) -> None:
    """As the judge in a container: a user of its own, no capabilities."""
    answer, said = os.pipe()
    watcher = os.fork()
    if watcher == 0:
        os.setgroups([])
        os.setresgid(54322, 54322, 54322)
        os.setresuid(54322, 54322, 54322)
        look = Activity(others[0]).look()
        os.write(said, str(look is not None and set(look.ran_ns) == set(others)).encode())
        os._exit(0)
    os.close(said)
    assert os.read(answer, 10) == b"True"
    os.waitpid(watcher, 0)
    os.close(answer)


def test_processor_time_is_unknown_where_a_process_was_started_in_a_container(watched: Activity) -> None:
    """It may have run and ended between two looks; the number of the newest process says that it was there."""
    _asleep(watched)
    # Without a process of any user in between, which on this machine may begin at any time.
    wait_until(lambda: watched.busy_ns(watched.look()) == 0, "nothing begins between two looks")
    before = watched.look()
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    assert watched.busy_ns(before) is None


def test_threads_that_come_and_go_leave_no_open_files(worker: Worker, activity: Activity) -> None:
    """Also where there are too many for a look; else a submission ends the judge, whose files are limited."""
    for _ in range(4):
        worker.do("other threads")
        assert activity.look() is None
    assert len(activity._files) <= _MOST_THREADS


def test_threads_are_listed_again_once_one_has_started_or_ended(
    others: list[int], watched: Activity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel tells the last one that was started: while it is the same, there is no new one to be found."""
    listed: list[int] = []
    newest = 7
    threads = watched._threads

    def list_threads() -> Iterator[tuple[int, int]]:
        listed.append(newest)
        return threads()

    monkeypatch.setattr(watched, "_newest", lambda: newest)
    monkeypatch.setattr(watched, "_threads", list_threads)
    monkeypatch.setattr("tasks.harness.judge.activity._COMPARED_NS", 600e9)
    wait_until(lambda: watched.idle_since(watched.look()), "they sleep")
    assert listed == [7]
    newest = 8
    assert watched.idle_since(watched.look())
    assert listed == [7, 8]
    os.kill(others[1], signal.SIGKILL)
    os.waitpid(others.pop(), 0)
    # The first look finds that it is gone, the second one no longer looks for it.
    looks = [watched.look() for _ in range(3)]
    assert [look is not None and look.asleep for look in looks] == [False, True, True]
    assert listed == [7, 8, 8]


def test_a_thread_that_is_started_during_a_look_is_no_sleep(watched: Activity, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that has started it may sleep already, and it is not listed."""
    monkeypatch.setattr(watched, "_newest", lambda: 7)
    before = _asleep(watched)
    numbers = itertools.chain([7], itertools.repeat(8))
    monkeypatch.setattr(watched, "_newest", lambda: next(numbers))
    looks = [watched.look() for _ in range(2)]
    assert [look is not None and look.asleep for look in looks] == [False, True]
    assert watched.idle_since(before)


def test_a_look_that_may_not_list_threads_says_nothing_where_there_may_be_new_ones(
    watched: Activity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it take the old list for a new one afterwards."""
    newest = 7
    monkeypatch.setattr(watched, "_newest", lambda: newest)
    monkeypatch.setattr("tasks.harness.judge.activity._COMPARED_NS", 600e9)
    _asleep(watched)
    assert watched.look(may_list=False) is not None
    newest = 8
    assert watched.look(may_list=False) is None
    newest = 7
    assert watched.look(may_list=False) is None
    assert watched.look() is not None
    monkeypatch.setattr("tasks.harness.judge.activity._COMPARED_NS", -1)
    assert watched.look(may_list=False) is None


def test_a_kernel_that_counts_no_time_tells_nothing(activity: Activity, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without CONFIG_SCHEDSTATS the files may be there, with zeros."""
    monkeypatch.setattr(activity, "_read", lambda *_: (b"S", 0))
    assert activity.look() is None


def test_a_process_is_found_although_the_numbers_of_processes_came_to_the_same_one_again(
    others: list[int], watched: Activity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that starts and ends 32768 threads between two looks, as in a long call."""
    monkeypatch.setattr(watched, "_newest", lambda: 7)
    threads = watched._threads
    monkeypatch.setattr(watched, "_threads", lambda: [(others[0], others[0])])
    _asleep(watched)
    monkeypatch.setattr(watched, "_threads", threads)
    time.sleep(2 * _COMPARED_NS / 1e9)
    look = watched.look()
    assert look is not None
    assert set(look.ran_ns) == set(others)
