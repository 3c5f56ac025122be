"""Random lives of jobs: whatever daemons, frontends and operators do in whatever order, the database does as promised.

Late writes of attempts that are long over are part of it. How long it searches: KERNEL_RUNNER_TEST_EXAMPLES.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from psycopg.rows import dict_row

from runner.base.errors import HostNameTakenError, StaleAttemptError, SubmissionError
from runner.base.model import Job, JobResult, JobState, Mode, Verdict
from runner.store import Completion, HostRecord, Reclaimed, Store
from tests.chaos import script
from tests.chaos.script import VERDICTS, Script, job_key
from tests.integration.store.conftest import TASK, Bench
from tests.integration.store.queue_model import ModelHost, ModelJob, ModelSubmission, Queue

T = TypeVar("T")
Row = dict[str, Any]

EXAMPLES = int(os.environ.get("KERNEL_RUNNER_TEST_EXAMPLES", "25"))
STEPS = 40
GPU_TYPES = ("A100", "H100")
#: Those that a submission may ask for.
MODES = tuple(mode for mode in Mode if mode not in (Mode.VALIDATION, Mode.FINAL))
USERS = ("u1", "u2", "u3")
HOSTS = ("host-a", "host-b")
BOARD = "identity"

EMPTY = """
TRUNCATE leaderboard.submission, leaderboard.user_info, leaderboard.code_files, runner.clock, runner.share, runner.host,
         runner.event, runner.lease RESTART IDENTITY CASCADE;
UPDATE runner.sweep SET swept_at = now();
"""
JOBS = """
SELECT j.id, j.submission_id, j.user_id, j.gpu_type, j.mode, j.secret, j.priority, j.turn, j.replaces, j.state,
       j.verdict, j.attempt, j.failures, j.reclaims, j.lease_owner, j.cancel_requested, j.retired_as,
       j.after_public AND j.state = 'queued' AS after_public,
       j.lease_expires_at IS NOT NULL AS leased, j.finished_at IS NOT NULL AS finished,
       (SELECT count(*) FROM runner.superseded_run w WHERE w.job_id = j.id) AS superseded,
       (SELECT count(*) FROM runner.stale_result w WHERE w.job_id = j.id) AS evidence
FROM runner.job j ORDER BY j.id
"""
#: What job and model have under one name.
SAME = (
    *("state", "verdict", "attempt", "failures", "reclaims", "retired_as"),
    *("cancel_requested", "superseded", "evidence"),
)
RUNS = """
SELECT x.job_id, r.mode, r.passed, r.score::float8 AS score, r.submission_id, r.runner, r.secret, r.result
FROM leaderboard.runs r LEFT JOIN runner.job_run x ON x.run_id = r.id ORDER BY r.id
"""
SUBMISSIONS = """
SELECT s.id, s.done, s.status, t.status AS job_status, t.error
FROM leaderboard.submission s JOIN leaderboard.submission_job_status t ON t.submission_id = s.id ORDER BY s.id
"""
#: Jobs that end after few failures or reclaims, so that random lives get there.
SHORT_LIVES = """
UPDATE runner.job SET failures = id %% 3, reclaims = id %% 5
WHERE submission_id = %(submission)s AND id <> ALL (%(known)s)
"""
#: A pause is never over by itself here, however slow the machine.
LENGTHEN_PAUSES = """
UPDATE runner.job SET not_before = not_before + interval '1 hour', avoid_until = avoid_until + interval '1 hour'
WHERE id = %s
"""
END_PAUSES = "UPDATE runner.job SET not_before = now() WHERE not_before IS NOT NULL"
END_AVOIDANCE = "UPDATE runner.job SET avoid_until = now() WHERE avoid_until IS NOT NULL"


class QueueMachine(RuleBasedStateMachine):
    """The real queue beside its model."""

    store: Store
    db: psycopg.Connection[Row]

    def __init__(self) -> None:
        super().__init__()
        self.model = Queue()
        #: Every attempt that was ever claimed: what its daemon was given, and what it found, if it did.
        self.attempts: dict[tuple[int, int], Job] = {}
        self.found: dict[tuple[int, int], JobResult] = {}
        self.serial = 0

    @initialize(first=st.lists(st.tuples(st.sampled_from(USERS), st.sampled_from(MODES)), min_size=2, max_size=5))
    def begin(self, first: list[tuple[str, Mode]]) -> None:
        """Two hosts and a few submissions."""
        self.db.execute(EMPTY)
        for name in HOSTS:
            self.model.hosts[name] = ModelHost(name=name)
            self._register(name)
        for user, mode in first:
            self._submit(user, mode, GPU_TYPES, 0)

    def _register(self, name: str) -> None:
        self.store.register_host(
            HostRecord(name=name, version="1", slots=[], instance=self.model.hosts[name].instance, gpu_types=GPU_TYPES)
        )

    # --- frontends and operators ---------------------------------------------------------------------------------

    @rule(
        user=st.sampled_from(USERS),
        mode=st.sampled_from(MODES),
        gpu_types=st.sampled_from([GPU_TYPES, GPU_TYPES[:1], GPU_TYPES[1:]]),
        priority=st.sampled_from((0, 0, 0, 1)),
    )
    def submit(self, user: str, mode: Mode, gpu_types: tuple[str, ...], priority: int) -> None:
        """A submission and its jobs; sent again with the same key it is still one."""
        self._submit(user, mode, gpu_types, priority)

    def _submit(self, user: str, mode: Mode, gpu_types: tuple[str, ...], priority: int) -> None:
        self.serial += 1

        def send() -> int:
            return self.store.submit(
                leaderboard=BOARD,
                user_id=user,
                file_name="a.py",
                code=b"pass",
                mode=mode.value,
                gpu_types=gpu_types,
                user_name=None,
                priority=priority,
                idempotency_key=str(self.serial),
            )

        if user in self.model.banned:
            with pytest.raises(SubmissionError, match="is banned"):
                send()
            return
        submission = send()
        assert send() == submission
        self.model.submissions[submission] = ModelSubmission(id=submission, user=user)
        self._note_new_jobs(submission, mode, gpu_types, priority)

    @precondition(lambda self: self.model.submissions)
    @rule(data=st.data(), mode=st.sampled_from(MODES), gpu_types=st.sampled_from([GPU_TYPES, GPU_TYPES[:1]]))
    def enqueue(self, data: st.DataObject, mode: Mode, gpu_types: tuple[str, ...]) -> None:
        """More jobs for a submission that is not over."""
        submission = self._pick(data, self.model.submissions)
        refusal = self.model.enqueue_refusal(submission, gpu_types, mode)
        found = self._sql("SELECT runner.enqueue(%s, %s, %s)", submission, mode.value, list(gpu_types), refusal=refusal)
        if found is not None:
            self._note_new_jobs(submission, mode, gpu_types, 0)

    @precondition(lambda self: len(self.model.waiting()) > 2)
    @rule(data=st.data(), by_author=st.booleans())
    def cancel(self, data: st.DataObject, *, by_author: bool) -> None:
        """What waits is over, what runs is asked to stop; what an operator ordered only by an operator."""
        job = data.draw(st.sampled_from([job for job in self.model.jobs.values() if job.open]))
        submission = job.submission
        user = self.model.submissions[submission].user if by_author else None
        assert self.store.cancel(submission, user) == self.model.cancel(submission, by_author=by_author)
        assert self.store.cancel(submission, user) == 0

    @precondition(lambda self: self.model.over())
    @rule(data=st.data())
    def rerun(self, data: st.DataObject) -> None:
        """What is over is evaluated again; the old results count meanwhile."""
        submission = self._pick(data, self.model.submissions)
        replaced = self.model.again(submission)
        made = self._sql(
            "SELECT runner.rerun(submission_id => %s, reason => 'bad device')",
            submission,
            refusal=None if replaced else "KR020",
        )
        if made is not None:
            assert made == len(replaced)
            self.model.rerun(submission)
            jobs = self._new_jobs(submission)
            assert Counter(job.replaces for job in jobs) == Counter(job.id for job in replaced)
            self.model.add(jobs)

    @precondition(lambda self: any(job.rows for job in self.model.over()))
    @rule(data=st.data())
    def invalidate(self, data: st.DataObject) -> None:
        """What counts is taken out of the ranking."""
        submission = self._pick(data, self.model.submissions)
        taken = self._sql("SELECT runner.invalidate(submission_id => %s, reason => 'bad device')", submission)
        assert taken == self.model.invalidate(submission)

    @precondition(lambda self: self.model.ranking() or self.model.banned)
    @rule(user=st.sampled_from(USERS), banned=st.booleans())
    def ban(self, user: str, *, banned: bool) -> None:
        """A user's results count no more and nothing more is taken; or both again."""
        statement = "UPDATE leaderboard.user_info SET is_banned = %s WHERE id = %s"
        # Who has never submitted is unknown.
        if self.db.execute(statement, (banned, user)).rowcount:
            (self.model.banned.add if banned else self.model.banned.discard)(user)

    @rule(host=st.sampled_from(HOSTS), draining=st.booleans())
    def drain(self, host: str, draining: bool) -> None:
        """A host is drained, or serves again; a restart in between changes nothing."""
        self._drain(host, draining=draining)

    def _drain(self, host: str, *, draining: bool) -> None:
        changed = self._sql(f"SELECT runner.{'drain' if draining else 'undrain'}(%s)", host)
        assert changed == (self.model.hosts[host].draining is not draining)
        self.model.hosts[host].draining = draining
        self._register(host)

    @rule(host=st.sampled_from(HOSTS))
    def take_over(self, host: str) -> None:
        """A host was silent for too long, and another daemon goes by its name: what ran in it is given back."""
        with pytest.raises(HostNameTakenError):
            self.store.register_host(
                HostRecord(name=host, version="1", slots=[], instance="too early", gpu_types=GPU_TYPES)
            )
        self.db.execute("UPDATE runner.host SET last_seen = now() - interval '2 minutes' WHERE name = %s", (host,))
        self.model.hosts[host].takeovers += 1
        self._register(host)
        self._recover(host, (), died=True)

    @precondition(lambda self: any(host.takeovers for host in self.model.hosts.values()))
    @rule(data=st.data())
    def come_to(self, data: st.DataObject) -> None:
        """A daemon whose name was taken does not know it yet: it gets nothing, holds nothing, gives nothing back."""
        host = self._pick(data, [host for host in self.model.hosts.values() if host.takeovers])
        instance = host.was(data.draw(st.integers(0, host.takeovers - 1), label="which"))
        held = data.draw(st.lists(st.sampled_from(sorted(self.attempts)), unique=True)) if self.attempts else []
        claims = self.store.claim(host=host.name, slots=dict.fromkeys(GPU_TYPES, 6), lease_s=3600, instance=instance)
        assert (claims.jobs, claims.registered) == ((), False)
        states = self.store.heartbeat(host=host.name, lease_s=3600, held=held, instance=instance)
        assert sorted((state.job_id, state.attempt, state.ours) for state in states) == [
            (*key, False) for key in sorted(held)
        ]
        assert not self.store.recover(host=host.name, keep=held, instance=instance)
        assert self.store.take_check(host=host.name, gpu_types=GPU_TYPES, instance=instance) is None

    # --- daemons -------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.model.waiting())
    @rule(
        host=st.sampled_from(HOSTS),
        slots=st.fixed_dictionaries({gpu_type: st.sampled_from((1, 2, 3, 0)) for gpu_type in GPU_TYPES}),
    )
    def claim(self, host: str, slots: dict[str, int]) -> None:
        """The best jobs of one type, as many as there are slots, to a host that is not drained."""
        self._claim(host, slots)

    @precondition(lambda self: self.model.waiting())
    @rule(host=st.sampled_from(HOSTS), verdict=st.sampled_from((*[Verdict.ACCEPTED] * 4, *VERDICTS)))
    def work_off(self, host: str, verdict: Verdict) -> None:
        """A host takes what it can get and is quick about it."""
        for _ in GPU_TYPES:
            for job in self._claim(host, dict.fromkeys(GPU_TYPES, 6)):
                self._complete(job, verdict if job.secret else Verdict.ACCEPTED, 1 + job.id % 4)

    @precondition(lambda self: self.model.waiting())
    @rule(
        host=st.sampled_from(HOSTS),
        how=st.sampled_from(
            ("fails", "fails", "fails alone", "is given back", "is reclaimed", "is forgotten", "is asked to stop")
        ),
    )
    def stumble(self, host: str, how: str) -> None:
        """A host takes a job and nothing comes of it."""
        for job in self._claim(host, dict.fromkeys(GPU_TYPES, 1)):
            match how:
                case "fails":
                    self._fail(job, "gpu0")
                    self._wait(longer=False)
                case "fails alone":
                    for other in set(HOSTS) - {host}:
                        self._drain(other, draining=True)
                    self._fail(job, "gpu0")
                    self._wait(longer=False)
                case "is given back":
                    self._release(job)
                case "is reclaimed":
                    self._expire(job)
                    self.reclaim()
                case "is forgotten":
                    self._recover(host, (), died=False)
                case _:
                    assert self.store.cancel(job.submission) == self.model.cancel(job.submission)
                    self._beat(host, [(job.id, job.attempt)])

    @precondition(lambda self: self.model.waiting())
    @rule(host=st.sampled_from(HOSTS), verdict=st.sampled_from((Verdict.ACCEPTED, *VERDICTS)))
    def haunt(self, host: str, verdict: Verdict) -> None:
        """A host loses a job, another claims it, and then the first one writes: nothing of it counts."""
        for job in self._claim(host, dict.fromkeys(GPU_TYPES, 1)):
            self.reclaim()
            self._expire(job)
            self.reclaim()
            for other in HOSTS:
                self._claim(other, dict.fromkeys(GPU_TYPES, 6))
            self._complete(job, verdict, 1)
            self._fail(job, "gpu0")
            self._release(job)
            self._stop(job)
            self._beat(host, [(job.id, job.attempt)])

    @precondition(lambda self: self.model.waiting())
    @rule(
        host=st.sampled_from(HOSTS),
        verdict=st.sampled_from(VERDICTS),
        meanwhile=st.sampled_from(
            ("it waits", "it waits", "it is claimed", "it comes back", "it is cancelled", "dies")
        ),
    )
    def check(self, host: str, verdict: Verdict, meanwhile: str) -> None:
        """A host looks at what waits, and ends it, unless a claim or a cancellation is faster or the host dies."""
        self.db.execute("UPDATE runner.job SET created_at = now() - interval '1 minute'")
        instance = self.model.hosts[host].instance
        expected = self.model.checkable(host)
        job = self.store.take_check(host=host, gpu_types=GPU_TYPES, instance=instance)
        assert (job is None) == (expected is None)
        if job is None or expected is None:
            return
        assert (job.id, job.attempt) == (expected.id, expected.attempt + 1)
        expected.checked = True
        match meanwhile:
            case "it is claimed" | "it comes back":
                for other in HOSTS:
                    for claimed in self._claim(other, dict.fromkeys(GPU_TYPES, 6)):
                        if meanwhile == "it comes back":
                            self._release(claimed)
            case "it is cancelled":
                assert self.store.cancel(job.submission) == self.model.cancel(job.submission)
            case "dies":
                return
        result = self._result(job, verdict, 1)
        last = self.model.complete_waiting(host, job.id, job.attempt, verdict)
        completion = self.store.complete_waiting(job, result, host=host, instance=instance)
        assert last is (None if completion is None else completion.submission_done)
        if completion is not None:
            # The same job's result once more, as if a slot had ended it.
            self.attempts[job.id, job.attempt] = job
            self.found[job.id, job.attempt] = result

    def _claim(self, host: str, slots: dict[str, int]) -> tuple[Job, ...]:
        overdue = any(job.expired for job in self.model.running())
        instance = self.model.hosts[host].instance
        # Only one claim a second looks for what is overdue.
        self.db.execute("UPDATE runner.sweep SET looked_at = '-infinity'")
        claims = self.store.claim(host=host, slots=slots, lease_s=3600, instance=instance)
        expected = [self.model.jobs[job.id] for job in claims.jobs]
        assert expected == self.model.claimable(host, slots)
        self.model.claim(host, expected)
        assert (claims.draining, claims.registered, claims.overdue) == (self.model.hosts[host].draining, True, overdue)
        for job, known in zip(claims.jobs, expected, strict=True):
            assert (job.attempt, job.failures, job.submission_id) == (known.attempt, known.failures, known.submission)
            assert job.avoid_slot == (known.avoid_slot if known.avoid_host == host else None)
            assert (job.id, job.attempt) not in self.attempts
            self.attempts[job.id, job.attempt] = job
        return claims.jobs

    @precondition(lambda self: self.attempts)
    @rule(data=st.data(), host=st.sampled_from(HOSTS))
    def heartbeat(self, data: st.DataObject, host: str) -> None:
        """A daemon renews what it believes to hold, and learns what it does not."""
        held = data.draw(st.lists(st.sampled_from(sorted(self.attempts)), unique_by=lambda key: key[0], max_size=4))
        self._beat(host, held)

    def _beat(self, host: str, held: list[tuple[int, int]]) -> None:
        instance = self.model.hosts[host].instance
        states = self.store.heartbeat(host=host, lease_s=3600, held=held, instance=instance)
        found = sorted((state.job_id, state.ours, state.cancel_requested) for state in states)
        assert found == sorted(self.model.heartbeat(host, held))

    @precondition(lambda self: self.model.running())
    @rule(data=st.data(), verdict=st.sampled_from((*[Verdict.ACCEPTED] * 6, *VERDICTS)), score=st.integers(1, 4))
    def complete(self, data: st.DataObject, verdict: Verdict, score: int) -> None:
        """A result in time."""
        job = self._current(data)
        self._complete(job, verdict, score)

    @precondition(lambda self: self.attempts)
    @rule(data=st.data(), verdict=st.sampled_from((*[Verdict.ACCEPTED] * 3, *VERDICTS)), score=st.integers(1, 4))
    def complete_late(self, data: st.DataObject, verdict: Verdict, score: int) -> None:
        """A result of any attempt that ever was: in time, once more, or too late."""
        job = self.attempts[self._pick(data, self.attempts)]
        self._complete(job, verdict, score)

    @precondition(lambda self: self.attempts)
    @rule(data=st.data(), verdict=st.sampled_from((*[Verdict.ACCEPTED] * 3, *VERDICTS)))
    def complete_together(self, data: st.DataObject, verdict: Verdict) -> None:
        """Results of several attempts in one call, some in time and some too late: each is as it would be alone."""
        current = [(job.id, job.attempt) for job in self.model.running()]
        late = data.draw(st.lists(st.sampled_from(sorted(self.attempts)), max_size=3), label="late, or once more")
        keys = data.draw(st.permutations([*current, *late]), label="order")
        given: list[tuple[Job, JobResult]] = []
        expected: list[object] = []
        for key in keys:
            job = self.attempts[key]
            result = self.found.get(key) or self._result(job, verdict, 1)
            given.append((job, result))
            if self.model.is_current(*key):
                expected.append(self.model.complete(job.id, result.verdict, 1e-6))
                self.found[key] = result
            elif key in self.found:
                expected.append("again")
            else:
                expected.append(StaleAttemptError)
                self.model.jobs[job.id].evidence += 1
        outcomes = self.store.complete_all(given)
        assert len(outcomes) == len(expected)
        for (job, result), outcome, wanted in zip(given, outcomes, expected, strict=True):
            if outcome is None:
                # Twice in one call.
                assert wanted == "again" or wanted is StaleAttemptError
                self._give_again(job, result, stale=wanted is StaleAttemptError)
            elif wanted is StaleAttemptError:
                assert isinstance(outcome, StaleAttemptError)
            else:
                done = self.model.submissions[job.submission].done if wanted == "again" else wanted
                assert isinstance(outcome, Completion)
                assert outcome.submission_done is done, (job.id, wanted)

    def _give_again(self, job: Job, result: JobResult, *, stale: bool) -> None:
        if stale:
            with pytest.raises(StaleAttemptError):
                self.store.complete(job, result)
        else:
            self.store.complete(job, result)

    def _complete(self, job: Job, verdict: Verdict, score: int) -> None:
        key = job.id, job.attempt
        if self.model.is_current(*key):
            result = self._result(job, verdict, score)
            last = self.model.complete(job.id, verdict, score * 1e-6)
            assert self.store.complete(job, result).submission_done is last
            self.found[key] = result
        elif key in self.found:
            # The answer to the first commit was lost.
            again = self.store.complete(job, self.found[key])
            assert again.submission_done is self.model.submissions[job.submission].done
        else:
            with pytest.raises(StaleAttemptError):
                self.store.complete(job, self._result(job, verdict, score))
            self.model.jobs[job.id].evidence += 1

    @precondition(lambda self: self.attempts)
    @rule(data=st.data(), slot=st.sampled_from(("gpu0", "gpu1")))
    def fail(self, data: st.DataObject, slot: str) -> None:
        """An infrastructure failure, reported in time or too late."""
        self._fail(self._any_attempt(data), slot)

    def _fail(self, job: Job, slot: str) -> None:
        current = self.model.is_current(job.id, job.attempt)
        self._end(
            job,
            lambda: self.store.fail(job, error="no device", report=None, slot=slot),
            lambda: self.model.fail(job.id, slot),
        )
        if current:
            self.db.execute(LENGTHEN_PAUSES, (job.id,))

    @precondition(lambda self: self.attempts)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        """A job given back, in time or too late."""
        self._release(self._any_attempt(data))

    def _release(self, job: Job) -> None:
        self._end(job, lambda: self.store.release(job, reason="restart"), lambda: self.model.give_back(job.id))

    @precondition(lambda self: any(job.cancel_requested for job in self.model.running()))
    @rule(data=st.data())
    def stop(self, data: st.DataObject) -> None:
        """A job that was asked to stop has stopped."""
        asked = [job for job in self.model.running() if job.cancel_requested]
        chosen = data.draw(st.sampled_from(asked), label="job")
        self._stop(self.attempts[chosen.id, chosen.attempt])

    def _stop(self, job: Job) -> None:
        self._end(job, lambda: self.store.cancelled(job), lambda: self.model.cancelled(job.id))

    @precondition(lambda self: self.model.running())
    @rule(data=st.data())
    def expire(self, data: st.DataObject) -> None:
        """A daemon is silent for too long."""
        self._expire(self._current(data))

    def _expire(self, job: Job) -> None:
        # As time does it: no lease ends before the time up to which claims have looked.
        self.db.execute("UPDATE runner.job SET lease_expires_at = now() - interval '1 us' WHERE id = %s", (job.id,))
        self.model.jobs[job.id].expired = True

    @rule()
    def move_floors(self) -> None:
        """Claims begin further on, and find what they found before; also what is queued again."""
        self.db.execute("SELECT runner.move_floors()")

    @precondition(lambda self: self.model.running())
    @rule()
    def reclaim(self) -> None:
        """What expired is queued again, or over."""
        self._compare(self.store.reclaim(), self.model.reclaim())

    @precondition(lambda self: self.model.running())
    @rule(data=st.data(), host=st.sampled_from(HOSTS), died=st.booleans())
    def recover(self, data: st.DataObject, host: str, *, died: bool) -> None:
        """A daemon gives back what it does not know: its claim was not answered, or its earlier process died."""
        running = sorted((job.id, job.attempt) for job in self.model.running())
        keep = data.draw(st.lists(st.sampled_from(running), unique=True, max_size=3), label="keep") if running else []
        self._recover(host, keep, died=died)

    def _recover(self, host: str, keep: Sequence[tuple[int, int]], *, died: bool) -> None:
        taken = self.store.recover(host=host, keep=keep, died=died, instance=self.model.hosts[host].instance)
        self._compare(taken, self.model.recover(host, keep, died=died))

    def _compare(self, taken: Sequence[Reclaimed], expected: Mapping[int, tuple[JobState, bool]]) -> None:
        states = {job_id: state for job_id, (state, _) in expected.items()}
        assert {found.job_id: found.state for found in taken} == states
        # Of jobs that end together only the last one knows, and the order is the database's.
        assert sum(found.submission_done for found in taken) == sum(done for _, done in expected.values())

    @precondition(lambda self: any(job.paused or job.avoiding for job in self.model.waiting()))
    @rule(longer=st.booleans())
    def wait(self, longer: bool) -> None:
        """Every pause is over; after longer, failed jobs are welcome where they failed."""
        self._wait(longer=longer)

    def _wait(self, *, longer: bool) -> None:
        self.db.execute(END_PAUSES)
        self.model.end_pauses()
        if longer:
            self.db.execute(END_AVOIDANCE)
            self.model.end_avoidance()

    # --- what must hold ------------------------------------------------------------------------------------------

    @invariant()
    def no_minute_passes(self) -> None:
        """That a host is not seen for a minute is a rule of its own, not what a slow machine makes of the others."""
        self.db.execute("UPDATE runner.host SET last_seen = now()")

    @invariant()
    def every_job_is_as_predicted(self) -> None:
        """State, verdict, counters, lease, evidence: nothing is anywhere that the model does not know of."""
        found = {row["id"]: row for row in self.db.execute(JOBS)}
        assert set(found) == set(self.model.jobs)
        for job in self.model.jobs.values():
            expected = {name: getattr(job, name) for name in SAME} | {
                "after_public": job.after_public and job.state is JobState.QUEUED,
                "lease_owner": job.owner,
                "leased": job.state is JobState.RUNNING,
                "finished": not job.open,
            }
            assert {name: found[job.id][name] for name in expected} == expected, job

    @invariant()
    def every_row_is_of_the_attempt_that_ended_its_job(self) -> None:
        """Rows are those of one result each, and only of results that count."""
        rows: dict[int, list[Row]] = {}
        for row in self.db.execute(RUNS):
            rows.setdefault(row["job_id"], []).append(row)
        assert set(rows) == {job.id for job in self.model.jobs.values() if job.rows}
        for job_id, found in rows.items():
            job = self.model.jobs[job_id]
            assert [
                script.Row(mode=row["mode"], passed=row["passed"], scored=row["score"] is not None) for row in found
            ] == list(job.rows)
            assert {row["score"] for row in found} - {None} == {job.score} - {None}
            whose = (job.submission, job.gpu_type, job.secret, str(job.id), str(job.attempt))
            assert {
                (row["submission_id"], row["runner"], row["secret"], row["result"]["job"], row["result"]["attempt"])
                for row in found
            } == {whose}

    @invariant()
    def every_submission_says_what_its_jobs_say(self) -> None:
        """Done, status and job status; an error exactly where something went wrong."""
        found = self.db.execute(SUBMISSIONS).fetchall()
        for row in found:
            assert (row.pop("error") is not None) == (row["done"] and row["job_status"] != "succeeded"), row
        expected = [(each.id, each.done, each.status, each.job_status) for each in self.model.submissions.values()]
        assert [tuple(row.values()) for row in found] == expected

    @invariant()
    def the_ranking_holds_what_counts(self) -> None:
        """Every user's best score per type, of submissions whose secret runs passed."""
        found = self.db.execute(
            "SELECT gpu_type, rank, user_id, submission_id, score::float8 AS score FROM runner.ranking"
            " ORDER BY gpu_type, rank, submission_id"
        ).fetchall()
        assert [tuple(row.values()) for row in found] == self.model.ranking()

    # --- inside --------------------------------------------------------------------------------------------------

    def _pick(self, data: st.DataObject, among: Iterable[T]) -> T:
        return data.draw(st.sampled_from(list(among)))

    def _current(self, data: st.DataObject) -> Job:
        """A job that runs, as its daemon knows it."""
        job = data.draw(st.sampled_from(self.model.running()), label="running")
        return self.attempts[job.id, job.attempt]

    def _any_attempt(self, data: st.DataObject) -> Job:
        """Mostly one that runs."""
        mostly: int = data.draw(st.integers(0, 3), label="in time if not 0")
        if mostly and self.model.running():
            return self._current(data)
        return self.attempts[self._pick(data, self.attempts)]

    def _result(self, job: Job, verdict: Verdict, score: int) -> JobResult:
        verdicts = {job_key(job.gpu_type, secret=job.secret): verdict}
        result = script.found(
            job, Script(work_ms=0, failing=0, verdicts=verdicts), nonce=f"{job.id}.{job.attempt}", score_s=score * 1e-6
        )
        return replace(result, artifacts=())

    def _end(self, job: Job, write: Callable[[], Any], predict: Callable[[], bool]) -> None:
        """An attempt ends without a result, if it is not over yet."""
        if not self.model.is_current(job.id, job.attempt):
            with pytest.raises(StaleAttemptError):
                write()
            return
        last = predict()
        ended = write()
        assert (ended.state, ended.submission_done) == (self.model.jobs[job.id].state, last)

    def _sql(self, statement: str, *parameters: object, refusal: str | None = None) -> Any:  # noqa: ANN401 - a column
        """Call a function; None: it refused, as it must."""
        if refusal is None:
            row = self.db.execute(statement.encode(), parameters).fetchone()
            assert row is not None
            (value,) = row.values()
            return value
        with pytest.raises(psycopg.Error) as refused:
            self.db.execute(statement.encode(), parameters)
        assert refused.value.sqlstate == refusal
        return None

    def _new_jobs(self, submission: int) -> list[ModelJob]:
        """What was made for a submission; some of it is closer to its end than most."""
        self.db.execute(SHORT_LIVES, {"submission": submission, "known": list(self.model.jobs)})
        same = ("id", "gpu_type", "secret", "priority", "turn", "replaces", "after_public", "failures", "reclaims")
        return [
            ModelJob(
                submission=submission,
                user=row["user_id"],
                mode=Mode(row["mode"]),
                **{name: row[name] for name in same},
            )
            for row in self.db.execute(JOBS)
            if row["id"] not in self.model.jobs and row["submission_id"] == submission
        ]

    def _note_new_jobs(self, submission: int, mode: Mode, gpu_types: tuple[str, ...], priority: int) -> None:
        """Both jobs of a ranked mode, the secret one of a private mode, on every type."""
        jobs = self._new_jobs(submission)
        kinds = {Mode.LEADERBOARD: (False, True), Mode.PRIVATE: (True,)}.get(mode, (False,))
        assert Counter((job.gpu_type, job.secret) for job in jobs) == Counter(
            (gpu_type, secret) for gpu_type in gpu_types for secret in kinds
        )
        assert {(job.mode, job.priority, job.user, job.replaces) for job in jobs} == {
            (mode, priority, self.model.submissions[submission].user, None)
        }
        self.model.add(jobs)


def test_the_queue_does_as_its_model(bench: Bench, database_url: str) -> None:
    """Random sequences of everything that can happen to jobs, each step compared with the model."""
    bench.board(BOARD, *GPU_TYPES, task=TASK)
    with psycopg.Connection[Row].connect(database_url, autocommit=True, row_factory=dict_row) as db:
        machine = type("Machine", (QueueMachine,), {"store": bench.store, "db": db})
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=EXAMPLES,
                stateful_step_count=STEPS,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                print_blob=True,
                database=None,
            ),
        )
