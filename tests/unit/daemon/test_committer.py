"""Results of several slots: committed together, each with its own outcome."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import cast

import pytest

from runner.daemon.committer import MAX_RESULTS, Committer
from runner.errors import DatabaseUnavailableError, StaleAttemptError
from runner.store import Completion, Store
from tests.unit.daemon.fakes import FakeStore
from tests.unit.spool.samples import job, result


class Crowd:
    """Slots that finish while one commit is under way."""

    def __init__(self, clock: Callable[[], float] = lambda: 0.0) -> None:
        self.store = FakeStore()
        self.alone = FakeStore()
        self.committer = Committer(lambda _purpose: cast("Store", self.store), clock=clock)
        self.batches: list[list[int]] = []
        self._pool = ThreadPoolExecutor(64)
        self._under_way = threading.Event()
        self._go_on = threading.Event()
        commit_all = self.store.complete_all

        def noted(given: list) -> object:  # type: ignore[type-arg]  # as the store is given it
            self.batches.append([one.id for one, _ in given])
            return commit_all(given)

        self.store.complete_all = noted  # type: ignore[method-assign, assignment]

    def complete(self, job_id: int) -> Future[Completion]:
        """One slot's call."""
        return self._pool.submit(self.committer.complete, job(job_id), result(), alone=cast("Store", self.alone))

    def during_a_commit(self, *job_ids: int) -> list[Future[Completion]]:
        """Job 0 is being committed; meanwhile these come; then the commit goes on."""

        def hold() -> None:
            self._under_way.set()
            assert self._go_on.wait(30)
            self.store.meanwhile = lambda: None

        self.store.meanwhile = hold
        first = self.complete(0)
        assert self._under_way.wait(30)
        calls = [self.complete(job_id) for job_id in job_ids]
        while len(self.committer._waiting) < len(job_ids):
            threading.Event().wait(0.001)
        self._go_on.set()
        assert first.result(30).submission_done
        return calls


def test_what_comes_during_a_commit_goes_with_the_next_one() -> None:
    """One transaction for all of them, and an answer for each."""
    crowd = Crowd()
    calls = crowd.during_a_commit(1, 2, 3)
    assert all(call.result(30).submission_done for call in calls)
    assert [sorted(batch) for batch in crowd.batches] == [[0], [1, 2, 3]]


def test_a_single_result_is_committed_at_once() -> None:
    """Nothing waits for company."""
    crowd = Crowd()
    assert crowd.complete(1).result(30).submission_done
    assert crowd.batches == [[1]]


def test_a_result_that_is_refused_or_stale_spoils_none_of_the_others() -> None:
    """The refused one gets the reason, the rest are committed one by one."""
    crowd = Crowd()
    crowd.store.refused.add(2)
    crowd.store.stale.add(3)
    good, refused, stale = crowd.during_a_commit(1, 2, 3)
    assert good.result(30).submission_done
    with pytest.raises(ValueError, match="job 2"):
        refused.result(30)
    with pytest.raises(StaleAttemptError, match="job 3"):
        stale.result(30)


def test_everyone_hears_that_the_database_is_away() -> None:
    """Each with an error of its own, and nobody tries again for the others."""
    crowd = Crowd()
    calls = crowd.during_a_commit(1, 2)
    assert all(call.result(30) for call in calls)
    crowd.store.away.set()
    calls = [crowd.complete(3), crowd.complete(4)]
    errors = [call.exception(30) for call in calls]
    assert [type(error) for error in errors] == [DatabaseUnavailableError] * 2
    assert errors[0] is not errors[1]


def test_a_commit_that_does_not_come_back_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next result goes alone, on its slot's connection, and is not committed again afterwards."""
    monkeypatch.setattr("runner.daemon.committer.TURN_S", 0.05)
    crowd = Crowd()
    under_way, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        under_way.set()
        assert go_on.wait(30)

    crowd.store.meanwhile = hold
    hanging = crowd.complete(0)
    assert under_way.wait(30)
    assert crowd.complete(1).result(30).submission_done
    assert [job_id for job_id, _ in crowd.alone.completed] == [1]
    go_on.set()
    assert hanging.result(30).submission_done
    assert crowd.batches == [[0]]


def test_a_transaction_is_bounded() -> None:
    """A host with very many slots commits in several."""
    crowd = Crowd()
    calls = crowd.during_a_commit(*range(1, MAX_RESULTS + 9))
    assert all(call.result(30).submission_done for call in calls)
    assert [len(batch) for batch in crowd.batches] == [1, MAX_RESULTS, 8]


def test_the_connection_is_closed_when_nothing_has_been_committed_for_a_while() -> None:
    """An idle host has no connection for results."""
    now_s = 100.0
    crowd = Crowd(clock=lambda: now_s)
    crowd.complete(1).result(30)
    crowd.committer.rest()
    assert crowd.store.closed == 0
    now_s += 5.0
    crowd.committer.rest()
    assert crowd.store.closed == 1


def test_a_commit_after_the_end_leaves_no_connection_open() -> None:
    """A run that came back after its daemon had halted."""
    crowd = Crowd()
    crowd.committer.close()
    assert crowd.complete(1).result(30).submission_done
    assert crowd.store.closed == 2


def test_a_result_whose_submission_is_held_is_committed_alone_and_holds_up_nobody() -> None:
    """Of a batch the others are committed; the one that has to wait does so on its slot's own connection."""
    crowd = Crowd()
    crowd.store.held = {2}
    calls = crowd.during_a_commit(1, 2, 3)
    assert all(call.result(30).submission_done for call in calls)
    assert sorted(number for number, _ in crowd.store.completed) == [0, 1, 3]
    assert [number for number, _ in crowd.alone.completed] == [2]
