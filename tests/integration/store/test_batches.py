"""Batches: items by key, groups as jobs, one result per item, whatever happens to their groups."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from runner.base.errors import StaleAttemptError
from runner.base.model import GroupJob, Job, JobResult, JobState, Verdict
from runner.extras.trainers.inside.judge.group import Settings
from runner.store import Completion, Store
from tests.integration.store.conftest import Bench, Db, count, notes, one, refused, rows, value
from tests.plugins.postgres import daemon_login
from tests.support.waiting import PATIENCE_S

Item = dict[str, Any]

CALL = b"""
SELECT * FROM runner.submit_batch(
    items => %(items)s::jsonb, gpu_type => %(gpu_type)s, batch => %(batch)s, user_id => %(user_id)s,
    settings => %(settings)s::jsonb, priority => %(priority)s, group_size => %(group_size)s, reuse => %(reuse)s,
    start_at => %(start_at)s::timestamptz, expires_at => %(expires_at)s::timestamptz, keep => %(keep)s::interval)
"""


@pytest.fixture(autouse=True)
def _gpu_type(db: Db) -> None:
    """A daemon has published the type that these tests use."""
    db.execute(
        "INSERT INTO runner.gpu_type (name, vendor, aliases) VALUES ('CPU', 'none', '{host}') ON CONFLICT DO NOTHING"
    )


def submit(db: Db, items: Sequence[Item], **changes: object) -> list[dict[str, Any]]:
    """Call `runner.submit_batch`."""
    given: dict[str, Any] = {
        "gpu_type": "CPU", "batch": "b", "user_id": None, "settings": "{}", "priority": 0, "group_size": 8,
        "reuse": False, "start_at": None, "expires_at": None, "keep": None, **changes,
    }  # fmt: skip
    return db.execute(CALL, {**given, "items": json.dumps(list(items))}).fetchall()


def item(number: int, of: int = 0, **changes: object) -> Item:
    """A good item; its key says which."""
    return {
        "key": f"k{number}",
        "reference": f"class Model: pass  # {of}",
        "candidate": f"class ModelNew: pass  # {number}",
        **changes,
    }


def found(job: Job, verdict: str = "accepted", *, but: dict[str, str] | None = None) -> JobResult:
    """What a host finds: this verdict for every candidate but those whose code ends as `but` says."""
    items = []
    for candidate in job.task["candidates"]:
        own = next((word for end, word in (but or {}).items() if candidate["code"].endswith(end)), verdict)
        if own != "missing":
            items.append({"id": candidate["id"], "verdict": own, "message": f"it is {own}", "speedup": 1.5})
    return JobResult(
        verdict=Verdict.ACCEPTED,
        runs=(),
        error=None,
        report={"slot": "cpu0", "items": len(job.task["candidates"])},
        build_ns=0,
        eval_ns=0,
        items=tuple(items),
    )


def results(db: Db, batch: str = "b", after: int = 0, at_most: int = 1000) -> list[dict[str, Any]]:
    """A page of results."""
    return db.execute(
        "SELECT * FROM runner.batch_results(%s, after => %s, at_most => %s)", (batch, after, at_most)
    ).fetchall()


def verdicts(db: Db, batch: str = "b") -> dict[str, str | None]:
    """Verdict by key; every key once."""
    page = results(db, batch)
    assert len({row["key"] for row in page}) == len(page)
    assert [row["seq"] for row in page] == list(range(1, len(page) + 1))
    return {row["key"]: row["verdict"] for row in page}


def progress(db: Db, batch: str = "b") -> tuple[int, int]:
    """How many items there are, and how many are over."""
    row = one(db, "SELECT * FROM runner.batch_progress(%s)", batch)
    return row["items"], row["finished"]


def work(bench: Bench, find: Callable[[Job], JobResult] = found) -> list[Job]:
    """Claim and complete until nothing waits; the claimed groups."""
    jobs: list[Job] = []
    while claimed := bench.store.claim(host="host-a", slots={"CPU": 2}, lease_s=60).jobs:
        for job in claimed:
            bench.store.complete(job, find(job))
        jobs += claimed
        bench.end_pauses()
    return jobs


def age(db: Db) -> None:
    """Let hours have passed since all batches, and a day since their texts were used."""
    db.execute("UPDATE runner.batch SET created_at = now() - interval '3 hours' + id * interval '1 minute'")
    db.execute("UPDATE runner.item_result SET finished_at = now() - interval '2 hours'")
    db.execute("UPDATE runner.source SET used_at = now() - interval '2 days'")


def test_items_of_one_reference_and_settings_are_one_job(bench: Bench, db: Db) -> None:
    """By reference, settings and size of a group, in the order given; texts are stored once."""
    items = [item(n, n // 10) for n in range(20)] + [item(20, 0, settings={"inputs": 3})]
    stored = submit(db, items)
    assert [(row["key"], row["state"]) for row in stored] == [(f"k{n}", "queued") for n in range(21)]
    jobs = work(bench)
    assert [[c["code"].split("# ")[1] for c in job.task["candidates"]] for job in jobs] == [
        [str(n) for n in range(8)], ["8", "9"], [str(n) for n in range(10, 18)], ["18", "19"], ["20"],
    ]  # fmt: skip
    last = jobs[-1]
    assert isinstance(last, GroupJob)
    assert (last.submission_id, last.batch_id, last.mode.ranked) == (None, stored[0]["batch_id"], False)
    assert last.task == {
        "kind": "module",
        "reference": "class Model: pass  # 0",
        "entry_point": "Model",
        "settings": {"inputs": 3},
        "candidates": [{"id": stored[20]["item_id"], "entry_point": "ModelNew", "code": "class ModelNew: pass  # 20"}],
    }
    assert count(db, "runner", "source") == 2 + 21
    assert verdicts(db) == {f"k{n}": "accepted" for n in range(21)}
    assert progress(db) == (21, 21)
    assert count(db, "leaderboard", "submission") == 0


def test_entry_points_and_settings_of_the_call(bench: Bench, db: Db) -> None:
    """The candidate's class is the reference's with New; settings of an item win over those of the call."""
    items = [
        item(1, entry_point="Net"),
        item(2, entry_point="Net", candidate_entry_point="Fast"),
        item(3, settings={"inputs": 2}),
    ]
    submit(db, items, settings='{"inputs": 4, "timed_calls": 0}', gpu_type="HOST")
    jobs = work(bench)
    assert [c["entry_point"] for c in jobs[0].task["candidates"]] == ["NetNew", "Fast"]
    assert jobs[0].task["settings"] == {"inputs": 4, "timed_calls": 0}
    assert jobs[1].task["settings"] == {"inputs": 2, "timed_calls": 0}


def test_a_known_key_runs_once(bench: Bench, db: Db) -> None:
    """Whatever its state, and within one call too; with other content it is refused and nothing is stored."""
    first = submit(db, [item(1), item(1), item(2)])
    assert first[0]["item_id"] == first[1]["item_id"] != first[2]["item_id"]
    assert submit(db, [item(1)], batch="other") == [first[0]]
    assert len(work(bench)) == 1
    (again,) = submit(db, [item(1)])
    assert (again["item_id"], again["state"]) == (first[0]["item_id"], "done")
    assert not work(bench)
    with refused("KR014", "other content"):
        submit(db, [item(3), item(1, of=5)])
    with pytest.raises(psycopg.Error, match="other content"):
        submit(db, [item(4), item(4, of=1)])
    assert progress(db) == (2, 2)


BAD: tuple[tuple[dict[str, object], str], ...] = (
    ({"reference": None}, "the reference is not a text"),
    ({"reference": 7}, "the reference is not a text"),
    ({"candidate": ["x"]}, "the candidate is not a text"),
    ({"candidate": " \n"}, "the candidate is empty"),
    ({"candidate": "x" * 2_000_000}, "the candidate has 2000000 bytes, expected at most 1000000"),
    ({"reference": "x" * 2_000_000}, "the reference has 2000000 bytes, expected at most 1000000"),
    ({"entry_point": "a b"}, "entry_point is not the name of a class"),
    ({"settings": []}, "settings are of type array, expected an object"),
    ({"settings": {"inputs": 21}}, "setting inputs is 21, expected a whole number from 1 to 20"),
    ({"settings": {"inputs": 2.5}}, "setting inputs is 2.5, expected a whole number from 1 to 20"),
    ({"settings": {"timeout_s": "1"}}, "setting timeout_s is not a number"),
    ({"settings": {"precision": "int8"}}, "setting precision is not null, float32, float16 or bfloat16"),
    ({"settings": {"baseline": "best"}}, "setting baseline is not eager, compile, tf32 or graphs"),
    (
        {"settings": {"further_baselines": ["compile", "best"]}},
        "setting further_baselines is not a list of eager, compile, tf32 and graphs",
    ),
    ({"settings": {"perturb": 1}}, "setting perturb is neither true nor false"),
    ({"settings": {"inptus": 1}}, "setting inptus is not known"),
    ({"reference": None, "reference_hash": "00" * 32}, "no reference with this reference_hash is stored"),
    ({"invalid": "the candidate has a NUL character"}, "the candidate has a NUL character"),
)


def test_a_bad_item_is_invalid_and_harms_no_neighbour(bench: Bench, db: Db) -> None:
    """It has its result at once; the others of its group are evaluated."""
    bad = [{**item(number), **changes} for number, (changes, _) in enumerate(BAD)]
    stored = submit(db, [item(100), *bad, item(101)])
    assert [row["state"] for row in stored] == ["queued", *["done"] * len(BAD), "queued"]
    assert [(row["key"], row["verdict"], row["result"]["message"]) for row in results(db)] == [
        (f"k{number}", "invalid", sentence) for number, (_, sentence) in enumerate(BAD)
    ]
    (job,) = work(bench)
    assert len(job.task["candidates"]) == 2
    assert {key for key, word in verdicts(db).items() if word == "accepted"} == {"k100", "k101"}
    assert {row["state"] for row in submit(db, bad)} == {"done"}


BAD_CALLS: tuple[tuple[list[Item], dict[str, object], str], ...] = (
    ([], {}, "KR050"),
    ([item(n) for n in range(1001)], {}, "KR050"),
    ([{**item(1), "key": ""}], {}, "KR014"),
    ([{**item(1), "key": "a\nb"}], {}, "KR014"),
    ([{"reference": "x", "candidate": "y"}], {}, "KR014"),
    ([item(1)], {"gpu_type": "nothing"}, "KR003"),
    ([item(1)], {"group_size": 17}, "KR050"),
    ([item(1)], {"priority": 1001}, "KR022"),
    ([item(1)], {"settings": '{"x": 1}'}, "KR050"),
    ([item(1)], {"settings": '{"further_baselines": [1]}'}, "KR050"),
    ([item(1)], {"batch": ""}, "KR050"),
    ([item(1)], {"keep": "1 minute"}, "KR050"),
    ([item(1)], {"expires_at": "2001-01-01"}, "KR029"),
    ([item(1)], {"user_id": " "}, "KR010"),
)


_VALUES = (
    *("0", "-0", "1", "3", "5.0", "1e1", "1.5", "1e-400", "0.1", "20", "21", "3600", "3600.5", "1e7", "-1", "true"),
    *("null", '"float16"', '"compile"', '"x"', "{}", "[]", '["eager", "eager"]', '[["eager"]]', '"eager"', "[null]"),
)


@pytest.mark.parametrize("name", [*Settings.__dataclass_fields__, "unknown"])
def test_the_harness_takes_every_setting_that_the_database_takes(db: Db, name: str) -> None:
    """Or all items of a call would be invalid that was not refused."""
    for given in _VALUES:
        settings = f'{{"{name}": {given}}}'
        row = one(db, "SELECT runner.settings_fault(%s::jsonb) AS fault, %s::jsonb AS given", settings, settings)
        if row["fault"] is None:
            Settings.from_message(row["given"])


def test_a_bad_call_is_refused_whole(db: Db) -> None:
    """With the SQLSTATE that the manual names."""
    for items, changes, code in BAD_CALLS:
        with refused(code):
            submit(db, items, **changes)
    assert count(db, "runner", "batch") == 0


def test_a_reference_by_its_hash(bench: Bench, db: Db) -> None:
    """A text that is stored need not be sent again."""
    submit(db, [item(1)])
    digest = hashlib.sha256(b"class Model: pass  # 0").hexdigest()
    named = {"key": "k2", "reference_hash": digest, "candidate": "class ModelNew: pass  # 2"}
    assert submit(db, [named])[0]["state"] == "queued"
    assert {job.task["reference"] for job in work(bench)} == {"class Model: pass  # 0"}


def test_equal_work_is_answered_from_the_store_where_asked(bench: Bench, db: Db) -> None:
    """Also under other keys, but not what ended by our fault, and not another owner's."""
    submit(db, [item(1), item(2)])
    work(bench, lambda job: found(job, but={"# 2": "internal_error"}))
    assert verdicts(db) == {"k1": "accepted", "k2": "internal_error"}
    again = [item(1, key="n1"), item(2, key="n2")]
    assert [row["state"] for row in submit(db, again, batch="c", reuse=True)] == ["done", "queued"]
    (copied,) = results(db, "c")
    assert (copied["key"], copied["result"]["speedup"], copied["reused_from"]) == ("n1", 1.5, 1)
    assert [row["state"] for row in submit(db, [item(1, key="n3")], batch="c")] == ["queued"]
    assert [row["state"] for row in submit(db, again, batch="c", reuse=True, user_id="another")] == ["queued", "queued"]


def test_only_items_without_a_result_run_again(bench: Bench, db: Db) -> None:
    """Items that are our fault, or that the host left out, within the attempts of their group."""
    submit(db, [item(n) for n in range(1, 5)])
    job = bench.claim()
    done = bench.store.complete(job, found(job, but={"# 2": "internal_error", "# 3": "missing"}))
    assert done == Completion(submission_done=False)
    assert verdicts(db) == {"k1": "accepted", "k4": "accepted"}
    waits = one(db, "SELECT state, failures, not_before > now() AS waits FROM runner.job")
    assert waits == {"state": "queued", "failures": 1, "waits": True}
    bench.end_pauses()
    second = bench.claim()
    assert [c["code"][-3:] for c in second.task["candidates"]] == ["# 2", "# 3"]
    bench.store.complete(second, found(second, but={"# 3": "internal_error"}))
    bench.end_pauses()
    third = bench.claim()
    bench.store.complete(third, found(third, but={"# 3": "internal_error"}))
    assert verdicts(db) == {"k1": "accepted", "k4": "accepted", "k2": "accepted", "k3": "internal_error"}
    by_key = {row["key"]: row for row in results(db)}
    assert by_key["k3"]["result"]["message"] == "it is internal_error"
    assert [by_key[key]["attempt"] for key in ("k1", "k2", "k3")] == [1, 2, 3]
    assert bench.idle()


def test_a_failed_group_ends_all_its_items_once(bench: Bench, db: Db) -> None:
    """After the last attempt what is left has a result: internal_error, with the cause."""
    submit(db, [item(1), item(2)])
    states = []
    for _ in range(3):
        states.append(bench.store.fail(bench.claim(), error="no engine", report=None, slot="cpu0").state)
        bench.end_pauses()
    assert states == [JobState.QUEUED, JobState.QUEUED, JobState.DONE]
    assert verdicts(db) == {"k1": "internal_error", "k2": "internal_error"}
    assert "no engine" in results(db)[0]["result"]["message"]


def test_a_late_result_is_not_accepted(bench: Bench, db: Db) -> None:
    """The attempt was over: the next one's results stand, the late ones are evidence."""
    submit(db, [item(1)])
    late = bench.claim()
    bench.store.release(late, reason="drained")
    job = bench.claim()
    with pytest.raises(StaleAttemptError):
        bench.store.complete(late, found(late, "wrong_answer"))
    assert not results(db)
    bench.store.complete(job, found(job))
    with pytest.raises(StaleAttemptError):
        bench.store.complete(late, found(late, "wrong_answer"))
    # The answer to a commit was lost: the same result again is no error.
    assert bench.store.complete(job, found(job)) == Completion(submission_done=False)
    assert verdicts(db) == {"k1": "accepted"}
    assert count(db, "runner", "stale_result") == 2


def test_a_host_writes_results_of_its_own_groups_only(bench: Bench, db: Db, database_url: str) -> None:
    """A result for an item of another group is ignored; another login's host cannot end the attempt."""
    submit(db, [item(1, 1), item(2, 2)])
    own, victim = bench.store.claim(host="host-a", slots={"CPU": 2}, lease_s=60).jobs
    stolen = {"id": victim.task["candidates"][0]["id"], "verdict": "accepted"}
    bench.store.complete(own, replace(found(own), items=(*found(own).items, stolen)))
    assert verdicts(db) == {"k1": "accepted"}
    login = daemon_login(database_url)
    with closing(Store(login, application_name="other host")) as other, pytest.raises(StaleAttemptError):
        other.complete(victim, found(victim))
    assert verdicts(db) == {"k1": "accepted"}


def test_a_lost_lease_costs_no_result(bench: Bench, db: Db) -> None:
    """The daemon died: its group waits again, and ends as internal_error after too many deaths."""
    submit(db, [item(1)])
    for deaths in range(5):
        job = bench.claim(lease_s=60)
        assert job.attempt == deaths + 1
        db.execute("UPDATE runner.job SET lease_expires_at = now() - interval '1 second'")
        (reclaimed,) = bench.store.reclaim()
        assert reclaimed.submission_id is None
    assert reclaimed.state is JobState.DONE
    assert verdicts(db) == {"k1": "internal_error"}


def test_cancelling_ends_what_waits_and_asks_what_runs(bench: Bench, db: Db) -> None:
    """Nothing can be added afterwards; a group that finishes all the same keeps its results."""
    submit(db, [item(n, n) for n in range(1, 4)])
    job, other = bench.store.claim(host="host-a", slots={"CPU": 2}, lease_s=60).jobs
    assert one(db, "SELECT * FROM runner.cancel_batch('b')") == {"ended": 1, "running": 2, "left_over": 0}
    assert verdicts(db) == {"k3": None}
    bench.store.complete(job, found(job))
    bench.store.cancelled(other)
    assert verdicts(db) == {"k1": "accepted", "k2": None, "k3": None}
    assert progress(db) == (3, 3)
    with refused("KR051"):
        submit(db, [item(9)])
    assert submit(db, [item(3, 3)])[0]["state"] == "cancelled"
    with refused("KR053"):
        db.execute("SELECT runner.cancel_batch('nothing')")


def test_a_cancelled_group_does_not_run_again(bench: Bench, db: Db) -> None:
    """What its last attempt left without a result is cancelled."""
    submit(db, [item(1), item(2)])
    job = bench.claim()
    db.execute("SELECT runner.cancel_batch('b')")
    bench.store.complete(job, found(job, but={"# 2": "internal_error"}))
    assert verdicts(db) == {"k1": "accepted", "k2": None}
    assert bench.idle()


def test_start_and_expiry(bench: Bench, db: Db) -> None:
    """Not begun before; what no host has begun in time is cancelled."""
    submit(db, [item(1)], start_at="2999-01-01", expires_at="2999-01-02")
    assert bench.idle()
    db.execute("UPDATE runner.job SET not_before = now() - interval '1 second'")
    bench.store.reclaim()
    db.execute("UPDATE runner.job SET expires_at = now() - interval '1 second'")
    (over,) = bench.store.reclaim()
    assert over.state is JobState.CANCELLED
    (row,) = results(db)
    assert (row["state"], row["verdict"]) == ("cancelled", None)
    assert "no host began it by" in row["result"]["message"]


def test_pages_go_on_where_the_last_one_ended(bench: Bench, db: Db) -> None:
    """In the order of the results; by keys also what has none."""
    submit(db, [item(n, n) for n in range(5)])
    for _ in range(4):
        job = bench.claim()
        bench.store.complete(job, found(job))
    first = results(db, at_most=3)
    assert [row["key"] for row in first] == ["k0", "k1", "k2"]
    assert [row["key"] for row in results(db, after=first[-1]["seq"])] == ["k3"]
    assert results(db, after=4) == []
    named = rows(db, "SELECT key, state, verdict FROM runner.batch_results(keys => '{k4,k0,unknown}')")
    assert named == [("k4", "queued", None), ("k0", "done", "accepted")]


def test_a_quota_bounds_what_is_open(bench: Bench, db: Db) -> None:
    """Results make room; other users have their own."""
    db.execute("SELECT runner.set_open_items(session_user, session_user, 3)")
    submit(db, [item(1), item(2, candidate="")])
    with refused("KR052"):
        submit(db, [item(n) for n in range(3, 6)])
    submit(db, [item(n) for n in range(3, 6)], user_id="another")
    submit(db, [item(3), item(4)], batch="c")
    with pytest.raises(psycopg.Error):
        submit(db, [item(5)], batch="d")
    work(bench)
    submit(db, [item(n) for n in range(5, 8)], batch="d")
    assert progress(db, "d") == (3, 0)


def test_a_login_sees_its_own_items_only(bench: Bench, db: Db, database_url: str) -> None:
    """Two frontends may use the same keys and names, and neither reads or cancels the other's."""
    with psycopg.connect(database_url, autocommit=True) as admin:
        admin.execute("DROP ROLE IF EXISTS runner_test_frontend")
        admin.execute("CREATE ROLE runner_test_frontend LOGIN PASSWORD 'x' IN ROLE runner_frontend")
    url = psycopg.conninfo.make_conninfo(database_url, user="runner_test_frontend", password="x")
    submit(db, [item(1)])
    with psycopg.Connection[dict[str, Any]].connect(url, autocommit=True, row_factory=dict_row) as frontend:
        for statement in ("SELECT runner.batch_results('b')", "SELECT runner.cancel_batch('b')"):
            with pytest.raises(psycopg.Error, match="does not exist"):
                frontend.execute(statement.encode())
        assert not frontend.execute("SELECT * FROM runner.batch_results(keys => '{k1}')").fetchall()
        for table in ("item", "item_result", "source", "batch", "batch_owner", "job_group"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                frontend.execute(f"SELECT FROM runner.{table}".encode())
        submit(frontend, [item(1)])
        work(bench)
        assert verdicts(frontend) == verdicts(db) == {"k1": "accepted"}
        assert {row["item_id"] for row in results(frontend)}.isdisjoint(row["item_id"] for row in results(db))


def test_a_frontend_that_holds_a_batch_stops_no_host(bench: Bench, db: Db, database_url: str) -> None:
    """Its forgotten transaction makes results of that batch wait, and no others."""
    submit(db, [item(1)])
    submit(db, [item(2, 2)], batch="c")
    first, second = bench.store.claim(host="host-a", slots={"CPU": 2}, lease_s=60).jobs
    with psycopg.connect(database_url) as holder:
        holder.execute("SELECT runner.cancel_batch('b')")
        outcomes = bench.store.complete_all([(first, found(first)), (second, found(second))])
        assert outcomes == [None, Completion(submission_done=False)]
        assert bench.store.reclaim() == []
        holder.rollback()
    assert bench.store.complete_all([(first, found(first))]) == [Completion(submission_done=False)]
    assert (verdicts(db), verdicts(db, "c")) == ({"k1": "accepted"}, {"k2": "accepted"})


def test_a_reader_never_misses_a_result(bench: Bench, db: Db, database_url: str) -> None:
    """Hosts commit at the same time, and a cursor that goes on from the last number sees every result once."""
    submit(db, [item(n, n) for n in range(200)])
    hosts = [Store(database_url, application_name=f"host {n}") for n in range(4)]

    def run(number: int) -> None:
        while jobs := hosts[number].claim(host=f"host-{number}", slots={"CPU": 1}, lease_s=60).jobs:
            hosts[number].complete(jobs[0], found(jobs[0]))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    seen: list[int] = []
    while len(seen) < 200:
        alive = any(thread.is_alive() for thread in threads)
        page = results(db, after=seen[-1] if seen else 0, at_most=7)
        seen += [row["seq"] for row in page]
        if not page and not alive:
            break
    for thread in threads:
        thread.join(PATIENCE_S)
    for host in hosts:
        host.close()
    assert seen == list(range(1, 201))
    assert verdicts(db) == {f"k{n}": "accepted" for n in range(200)}


def test_old_batches_and_unused_texts_are_removed(bench: Bench, db: Db) -> None:
    """Results, items, groups and the batch; texts that another item uses stay."""
    submit(db, [item(1), item(2)], keep="1 hour")
    submit(db, [item(3)], batch="young")
    work(bench)
    reap = b"SELECT runner.reap('30 days', 1000)"
    db.execute(reap)
    assert progress(db) == (2, 2)
    age(db)
    db.execute(reap)
    with refused("KR053"):
        progress(db)
    assert progress(db, "young") == (1, 1)
    assert count(db, "runner", "job") == 1
    texts = rows(db, "SELECT text FROM runner.source ORDER BY 1")
    assert texts == [("class Model: pass  # 0",), ("class ModelNew: pass  # 3",)]
    # The key is free again.
    assert submit(db, [item(1)])[0]["state"] == "queued"


def test_old_batches_go_in_parts_and_those_that_wait_are_in_nobodys_way(bench: Bench, db: Db) -> None:
    """A caller that goes on while something was removed removes all, though the oldest never end."""
    for batch in ("never", "nor this"):
        submit(db, [item(1, key=batch)], batch=batch, gpu_type="host", keep="1 hour")
    db.execute("UPDATE runner.job SET ready = false")
    submit(db, [item(number, number) for number in range(5)], keep="1 hour", group_size=1)
    work(bench)
    age(db)
    while bench.store.reap(keep_s=30 * 86400.0, limit=2).batches:
        pass
    assert rows(db, "SELECT name FROM runner.batch ORDER BY id") == [("never",), ("nor this",)]
    assert count(db, "runner", "job") == 2


def test_a_batch_with_an_open_item_is_kept(bench: Bench, db: Db) -> None:
    """However old it is."""
    submit(db, [item(1), item(2, candidate="")], keep="1 hour")
    age(db)
    db.execute("SELECT runner.reap('30 days', 1000)")
    assert progress(db) == (2, 1)
    work(bench)
    assert verdicts(db) == {"k2": "invalid", "k1": "accepted"}


def test_one_notification_per_call(db: Db) -> None:
    """However many groups there are."""
    db.execute("LISTEN runner_queue")
    submit(db, [item(n, n) for n in range(50)])
    assert [note.payload for note in notes(db)] == ["CPU"]
    submit(db, [item(n, n) for n in range(50)])
    assert notes(db) == []


#: The batches that wait for results, as an operator sees them.
OPEN = "SELECT batch, user_id, items, finished FROM runner.open_batch ORDER BY id"


def test_operators_see_batches_and_their_groups(bench: Bench, db: Db) -> None:
    """Which attempts failed and how far each batch is; also where the batch has no name."""
    bench.register("host-a")
    submit(db, [item(n) for n in range(8)], batch="named", user_id="trainer")
    (nameless, *_) = submit(db, [item(8, of=1)], batch=None)
    owner = value(db, "SELECT session_user")
    assert rows(db, OPEN) == [("named", "trainer", 8, 0), (str(nameless["batch_id"]), owner, 1, 0)]
    bench.store.fail(bench.claim(), error="no engine", report=None, slot="cpu0")
    bench.end_pauses()
    (failed,) = bench.store.failed(limit=9)
    assert (failed.batch, failed.submission_id, failed.leaderboard, failed.error) == ("named", None, None, "no engine")
    work(bench)
    assert rows(db, OPEN) == []
