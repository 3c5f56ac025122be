"""What `runner.submit` and `runner.enqueue` store, everything they refuse, and the options that stay with a profile."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from runner.base.errors import NotFoundError, SubmissionError
from runner.base.model import ProfileOptions, Verdict
from runner.extras.boards.again import Selection
from runner.extras.boards.store import BoardStore
from tests.integration.store.conftest import (
    CODE,
    TASK,
    Bench,
    Db,
    count,
    enqueue,
    notes,
    one,
    refused,
    result,
    rows,
    run_record,
    together,
    value,
)
from tests.support.jobs import of_submission

CATEGORIES = "SELECT mode_category FROM leaderboard.submission ORDER BY id"


def test_a_submission_is_stored_as_kernelbot_stores_it(queue: Bench, db: Db) -> None:
    """User, code, submission, job and job status are there, with KernelBot's words."""
    submission_id = queue.submit(mode="benchmark")
    stored = "SELECT id, file_name, user_id, done, status, mode_category FROM leaderboard.submission"
    assert rows(db, stored) == [(submission_id, "fast.py", "u1", False, "active", "test")]
    code = rows(db, "SELECT code, hash, old_code FROM leaderboard.code_files")
    assert code == [(CODE, hashlib.sha256(CODE).hexdigest(), None)]
    assert rows(db, "SELECT id, user_name FROM leaderboard.user_info") == [("u1", "Ada")]
    status = rows(db, "SELECT submission_id, status, error FROM leaderboard.submission_job_status")
    assert status == [(submission_id, "pending", None)]
    jobs = rows(db, "SELECT gpu_type, mode, secret, state FROM runner.job")
    assert jobs == [("CPU", "benchmark", False, "queued")]


def test_leaderboard_mode_makes_two_jobs_and_private_only_the_secret_one(bench: Bench, db: Db) -> None:
    """A ranked submission has a public and a secret job per GPU type; a private one has the secret one."""
    bench.board("identity", "A100", "H100")
    ranked = bench.submit(mode="leaderboard", gpu_types=["H100", "A100"])
    private = bench.submit(mode="private", gpu_types=["A100"])
    assert rows(db, "SELECT submission_id, gpu_type, secret FROM runner.job ORDER BY id") == [
        (ranked, "H100", False),
        (ranked, "H100", True),
        (ranked, "A100", False),
        (ranked, "A100", True),
        (private, "A100", True),
    ]
    assert rows(db, CATEGORIES) == [("leaderboard",), ("test",)]


def test_a_user_name_is_kept_when_none_is_given(queue: Bench, db: Db) -> None:
    """A frontend that does not know the name, or sends an empty one, does not erase it; a new one changes it."""
    for given, kept in (
        ("", None),
        ("Ada", "Ada"),
        (None, "Ada"),
        ("", "Ada"),
        (" ", "Ada"),
        (" Grace L.", " Grace L."),
    ):
        queue.submit(user_name=given)
        assert rows(db, "SELECT user_name FROM leaderboard.user_info") == [(kept,)]


REFUSED = [
    ({"leaderboard": "nope"}, "KR001", "leaderboard 'nope' does not exist"),
    ({"leaderboard": None}, "KR001", "no leaderboard named"),
    ({"leaderboard": "closed"}, "KR002", "closed at"),
    ({"gpu_types": ["B200"]}, "KR003", "'B200' is not offered"),
    ({"leaderboard": "bare"}, "KR003", "offers no GPU type"),
    ({"leaderboard": "two"}, "KR004", "Choose from: A100, H100"),
    ({"mode": "race"}, "KR005", "unknown mode 'race'"),
    ({"mode": None}, "KR005", "unknown mode NULL"),
    ({"code": b""}, "KR006", "0 bytes"),
    ({"code": b"#" * 1_000_001}, "KR006", "1000001 bytes"),
    ({"code": None}, "KR006", "0 bytes"),
    ({"code": b"x = 1\x00"}, "KR007", "NUL byte at offset 5"),
    ({"code": b"x = '\xff'"}, "KR007", "not UTF-8"),
    ({"file_name": "kernel.txt"}, "KR008", "bad file name"),
    ({"file_name": "../x.py"}, "KR008", "bad file name"),
    ({"file_name": "a\\x.py"}, "KR008", "bad file name"),
    ({"file_name": "a\x1b[2J.py"}, "KR008", "bad file name"),
    ({"file_name": "x.py\n"}, "KR008", "bad file name"),
    ({"file_name": "x" * 253 + ".py"}, "KR008", "bad file name"),
    ({"file_name": None}, "KR008", "bad file name"),
    ({"code": b"#!POPCORN leaderboard other\n"}, "KR009", "the file says 'other'"),
    ({"code": b"#!POPCORN speed 9\n"}, "KR009", "unknown directive"),
    ({"code": b"#!POPCORN gpu\n"}, "KR009", "names nothing"),
    ({"code": b"#!POPCORN gpu CPU\n#!POPCORN gpus CPU\n"}, "KR009", "two gpu directives"),
    ({"code": b"#!POPCORN leaderboard identity\n//!POPCORN leaderboard identity\n"}, "KR009", "two leaderboard"),
    ({"user_id": "banned"}, "KR010", "is banned"),
    ({"user_id": "u\x1b[2J"}, "KR010", "none of them a control character"),
    *(
        ({"user_name": f"A{odd}"}, "KR010", "none of them a control character")
        for odd in "\u202e\u200b\ufeff\U000e0041\u200d\u3164\u061c\ufe0f\U000e0100"
    ),
    # PostgreSQL's text holds no NUL, its UTF-8 no lone surrogate.
    ({"leaderboard": "iden\x00tity"}, "KR001", "does not exist"),
    ({"file_name": "a\ud800/.py"}, "KR008", "bad file name"),
    ({"idempotency_key": "k\u2066"}, "KR014", "none of them a control character"),
    ({"priority": 1001}, "KR022", "priority 1001 is out of range"),
    ({"user_id": " "}, "KR010", "user id"),
    ({"user_id": None}, "KR010", "user id"),
    ({"user_name": "x" * 256}, "KR010", "user name"),
    ({"idempotency_key": "x" * 256}, "KR014", "255"),
    ({"idempotency_key": ""}, "KR014", "255"),
    ({"gpu_types": ["CPU", "cpu"]}, "KR011", "twice"),
    ({"leaderboard": "invited"}, "KR012", "by invitation"),
    ({"leaderboard": "limited"}, "KR013", "0 of 0 test submissions"),
]


@pytest.fixture(scope="module")
def refusing(create_database: Callable[[str | None], str], migrated_template: str) -> Iterator[tuple[Bench, Db]]:
    """One database for all refusals, since none leaves anything behind: every kind of board, and a banned user."""
    url = create_database(migrated_template)
    store = BoardStore(url, application_name="kernel-runner test")
    bench = Bench(store=store, url=url)
    bench.board()
    bench.board("two", "A100", "H100")
    for name in ("closed", "bare", "invited", "limited"):
        bench.board(name)
    with Db.connect(url, autocommit=True, row_factory=dict_row) as db:
        db.execute("UPDATE leaderboard.leaderboard SET deadline = now() - interval '1 minute' WHERE name = 'closed'")
        db.execute("UPDATE leaderboard.leaderboard SET visibility = 'closed' WHERE name = 'invited'")
        db.execute(
            "DELETE FROM leaderboard.gpu_type g USING leaderboard.leaderboard l"
            " WHERE l.id = g.leaderboard_id AND l.name = 'bare'"
        )
        db.execute(
            "INSERT INTO leaderboard.rate_limit (leaderboard_id, mode_category, max_submissions_per_hour)"
            " SELECT id, 'test', 0 FROM leaderboard.leaderboard WHERE name = 'limited'"
        )
        db.execute("INSERT INTO leaderboard.user_info (id, is_banned) VALUES ('banned', true)")
        yield bench, db
    store.close()


@pytest.mark.parametrize(("change", "sqlstate", "message"), REFUSED)
def test_what_is_refused_leaves_nothing_behind(
    refusing: tuple[Bench, Db], change: dict[str, Any], sqlstate: str, message: str
) -> None:
    """Each refusal has its SQLSTATE, says what is wrong and how to mend it, and stores nothing."""
    bench, db = refusing
    with pytest.raises(SubmissionError, match=re.escape(message)) as caught:
        bench.submit(**{"user_name": None, **change})
    cause = caught.value.__cause__
    assert isinstance(cause, psycopg.Error)
    assert (cause.sqlstate, bool(cause.diag.message_hint)) == (sqlstate, True)
    for schema, table in (("leaderboard", "submission"), ("leaderboard", "code_files"), ("runner", "job")):
        assert count(db, schema, table) == 0
    assert count(db, "leaderboard", "user_info") == 1


DIRECTIVES = [
    ("#!POPCORN leaderboard a\n#!POPCORN gpus X Y\n", ("a", ["X", "Y"])),
    ("//!POPCORN gpu X\n// a comment\n//!POPCORN leaderboard a b c\n", ("a", ["X"])),
    ("#!POPCORN GPU X\r\n#!POPCORN  LeaderBoard\ta\r\nimport torch\r\n", ("a", ["X"])),
    ("# first\n\n#!POPCORN leaderboard a\n", (None, None)),
    ("import torch\n#!POPCORN leaderboard a\n", (None, None)),
    ("# !POPCORN leaderboard a\n#!POPCORNS leaderboard b\n", (None, None)),
    (" #!POPCORN leaderboard a\n", (None, None)),
    ("#!POPCORN leaderboard a", ("a", None)),
    ("#\n" * 63 + "#!POPCORN gpu X\n", (None, ["X"])),
    ("#\n" * 64 + "#!POPCORN gpu X\n", (None, None)),
    ("", (None, None)),
]


def test_directives_are_read_from_the_leading_comment_only(db: Db) -> None:
    """The first blank or code line ends them; the keyword's case does not matter, the marker's spelling does."""
    for source, expected in DIRECTIVES:
        found = one(db, "SELECT * FROM runner.parse_directives(%s)", source)
        assert (found["leaderboard"], found["gpu_types"]) == expected


def test_board_and_gpu_types_are_the_files_but_an_explicit_type_wins(bench: Bench, db: Db) -> None:
    """A job carries the name on the board, whatever alias was given: leaderboard.runs.runner must equal it."""
    bench.board("identity", "B200_Nebius", "H100")
    bench.store.sync_gpu_types([("B200", "nvidia", ["B200_Nebius", "blackwell"], "")])
    code = b"#!POPCORN leaderboard identity\n#!POPCORN gpus H100\n"
    bench.submit(leaderboard=None, code=code)
    bench.submit(code=code, gpu_types=["blackwell"])
    bench.submit(gpu_types=["B200_Nebius", "h100"])
    found = rows(db, "SELECT gpu_type FROM runner.job ORDER BY id")
    assert found == [("H100",), ("B200_Nebius",), ("B200_Nebius",), ("H100",)]


def test_an_invited_user_may_submit_to_a_closed_board(bench: Bench, db: Db) -> None:
    """A claimed invitation whose scope holds the board opens it."""
    board_id = bench.board()
    db.execute("UPDATE leaderboard.leaderboard SET visibility = 'closed'")
    db.execute("INSERT INTO leaderboard.leaderboard_invite (code, user_id, claimed_at) VALUES ('c', 'u1', now())")
    scope = "INSERT INTO leaderboard.leaderboard_invite_scope SELECT id, %s FROM leaderboard.leaderboard_invite"
    db.execute(scope, (board_id,))
    assert bench.submit() > 0
    with pytest.raises(SubmissionError, match="by invitation"):
        bench.submit(user_id="u2")


def test_a_rate_limit_counts_the_last_hour_per_user_and_category(bench: Bench, db: Db) -> None:
    """An hour later there is room again; of five submissions at once where there is room for one, one is stored."""
    board_id = bench.board()
    db.execute("INSERT INTO leaderboard.rate_limit VALUES (DEFAULT, %s, 'test', 2)", (board_id,))
    for _ in range(2):
        bench.submit()
    with pytest.raises(SubmissionError, match="2 of 2 test submissions an hour"):
        bench.submit(mode="benchmark")
    bench.submit(mode="leaderboard")
    bench.submit(user_id="u2")
    db.execute("UPDATE leaderboard.submission SET submission_time = now() - interval '61 minutes'")
    bench.submit()
    outcomes = together(5, bench, lambda store, _: Bench(store=store, url=bench.url).submit())
    assert sum(isinstance(outcome, int) for outcome in outcomes) == 1
    assert sum(isinstance(outcome, SubmissionError) for outcome in outcomes) == 4


def test_the_same_key_returns_the_same_submission(queue: Bench, db: Db) -> None:
    """Idempotency is per user and key, and holds when the calls come at once and after the deadline."""
    outcomes = together(4, queue, lambda store, _: Bench(store=store, url=queue.url).submit(idempotency_key="k"))
    assert len(set(outcomes)) == 1
    assert isinstance(outcomes[0], int)
    assert count(db, "runner", "job") == 1
    db.execute("UPDATE leaderboard.leaderboard SET deadline = now()")
    assert queue.submit(idempotency_key="k") == outcomes[0]
    with pytest.raises(SubmissionError, match="was used for submission"):
        queue.submit(idempotency_key="k", code=CODE + b"#")
    with pytest.raises(SubmissionError, match="closed"):
        queue.submit(idempotency_key="k", user_id="u2")


def test_enqueue_adds_jobs_to_a_row_kernelbot_made(bench: Bench, db: Db) -> None:
    """KernelBot stores the submission itself; enqueue adds the jobs and nothing else."""
    board_id = bench.board()
    db.execute("INSERT INTO leaderboard.user_info (id) VALUES ('7')")
    db.execute("INSERT INTO leaderboard.code_files (code) VALUES (%s)", (CODE,))
    stored = value(
        db,
        "INSERT INTO leaderboard.submission (leaderboard_id, file_name, user_id, code_id, submission_time)"
        " SELECT %s, 'x.py', '7', id, now() FROM leaderboard.code_files RETURNING id",
        board_id,
    )
    db.execute(
        "INSERT INTO leaderboard.submission_job_status (submission_id, status) VALUES (%s, 'initial')", (stored,)
    )
    assert enqueue(bench.store, stored, mode="leaderboard", gpu_types=["CPU"]) == 2
    assert value(db, "SELECT status FROM leaderboard.submission_job_status") == "pending"
    assert rows(db, CATEGORIES) == [("leaderboard",)]
    for mode, gpu_type, says in (
        ("leaderboard", "CPU", "already waits"),
        ("fast", "CPU", "unknown mode"),
        ("test", "H100", "not offered"),
    ):
        with pytest.raises(SubmissionError, match=says):
            enqueue(bench.store, stored, mode=mode, gpu_types=[gpu_type])
    db.execute("UPDATE leaderboard.submission SET done = true")
    with pytest.raises(SubmissionError, match="is finished"):
        enqueue(bench.store, stored, mode="test")
    with pytest.raises(NotFoundError, match="submission 99 does not exist"):
        enqueue(bench.store, 99, mode="test")


def test_where_all_hosts_are_busy_submitting_wakes_nobody(bench: Bench, db: Db) -> None:
    """Busy: a job that was not tried before has waited for longer than hosts poll apart. Else each wakes once."""
    bench.board("identity", "A100", "H100")
    old = bench.submit(gpu_types=["A100"], mode="leaderboard")
    db.execute("LISTEN runner_queue")

    def woken() -> list[str]:
        bench.submit(gpu_types=["A100"])
        bench.submit(gpu_types=["A100", "H100"])
        db.execute("DELETE FROM runner.job WHERE submission_id <> %s", (old,))
        return [note.payload for note in notes(db)]

    assert woken() == ["A100", "A100,H100"]
    db.execute("UPDATE runner.job SET created_at = now() - interval '11 seconds'")
    assert woken() == ["H100"]
    db.execute("UPDATE runner.job SET attempt = 1")
    assert woken() == ["A100", "A100,H100"]


NAMES = [
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
    "\U0001f469\u200d\U0001f4bb",
    "J\u00f6rg",
    "Ada \u2764\ufe0f",
    "\u845b\U000e0100",
]


def test_joiners_and_selectors_that_a_script_or_a_symbol_needs_pass(queue: Bench) -> None:
    """Persian words, composed symbols and forms of Japanese names have them, after characters that are not ASCII."""
    for name in NAMES:
        assert queue.store.submission(queue.submit(user_id=name, user_name=name)).status.user_name == name


RAW = ["x\x1b[2J", "x\u202e", "y" * 5_000_000]


def test_errors_repeat_nothing_raw_and_nothing_long(queue: Bench) -> None:
    """They are shown to users and stand in the server's log."""
    for name in RAW:
        for changes in ({"leaderboard": name}, {"gpu_types": [name]}, {"file_name": name}, {"mode": name}):
            with pytest.raises(SubmissionError) as caught:
                queue.submit(**changes)
            text = str(caught.value)
            assert len(text) < 2200
            assert not set(text) & {"\x1b", "\u202e"}


def test_a_transaction_that_stays_open_holds_up_the_same_file_for_seconds(queue: Bench, db: Db) -> None:
    """Then another user who sends the same bytes is told to try again; other files pass at once."""
    with db.transaction():
        db.execute("SELECT runner.submit('identity', 'u2', 'x.py', %s, 'test')", (CODE,))
        # A frontend's session that would wait for ever.
        with psycopg.connect(queue.url, autocommit=True) as other:
            other.execute("SET lock_timeout = 0; SET statement_timeout = '60s'")
            with refused("KR031", "same file is being stored"):
                other.execute("SELECT runner.submit('identity', 'u1', 'x.py', %s, 'test')", (CODE,))
        queue.submit(code=CODE + b"#")
    queue.submit()


@pytest.mark.parametrize(
    ("spoil", "state"),
    [
        ("UPDATE leaderboard.user_info SET is_banned = true", "KR010"),
        ("UPDATE leaderboard.leaderboard SET deadline = now() - interval '1 minute'", "KR002"),
        ("UPDATE leaderboard.leaderboard SET visibility = 'closed'", "KR012"),
    ],
)
def test_enqueue_asks_what_submit_asks(queue: Bench, db: Db, spoil: str, state: str) -> None:
    """A ban, a deadline, an invitation: also for a run that is added to an open submission."""
    submission_id = queue.submit()
    db.execute(spoil.encode())
    with refused(state):
        one(db, "SELECT runner.enqueue(%s, 'leaderboard', NULL)", submission_id)


def test_enqueue_keeps_the_cap_on_open_jobs(bench: Bench, db: Db) -> None:
    """Also where two calls for different submissions of one user come at once."""
    bench.board("identity", "A100", "H100")
    first, second = (bench.submit(gpu_types=["A100"]) for _ in range(2))
    db.execute("SELECT runner.set_open_jobs('identity', 4)")
    with pytest.raises(SubmissionError, match="2 of 4 jobs that may be open on leaderboard 'identity' are"):
        enqueue(bench.store, first, mode="leaderboard", gpu_types=["A100", "H100"])

    def add(store: BoardStore, index: int) -> int:
        return enqueue(store, (first, second)[index], mode="leaderboard", gpu_types=["A100"])

    outcomes = together(2, bench, add)
    assert sorted(map(str, map(type, outcomes))) == sorted(map(str, (int, SubmissionError)))
    assert count(db, "runner", "job") == 4


def test_a_ranked_job_that_is_added_to_a_test_submission_counts_as_ranked(bench: Bench, db: Db) -> None:
    """Enqueued or submitted: the hourly limit of ranked submissions is one and the same."""
    board_id = bench.board()
    db.execute("INSERT INTO leaderboard.rate_limit VALUES (DEFAULT, %s, 'leaderboard', 1)", (board_id,))
    first, second = bench.submit(), bench.submit()
    assert enqueue(bench.store, first, mode="benchmark") == 1
    assert enqueue(bench.store, first, mode="leaderboard") == 2
    for further in (partial(enqueue, bench.store, second), bench.submit):
        with pytest.raises(SubmissionError, match="1 of 1 leaderboard submissions an hour"):
            further(mode="leaderboard")
    assert rows(db, CATEGORIES) == [("leaderboard",), ("test",)]


def test_a_row_that_was_stored_before_the_deadline_is_queued_after_it(queue: Bench, db: Db) -> None:
    """The first jobs are as old as the submission."""
    submission_id = queue.submit()
    db.execute("DELETE FROM runner.job")
    db.execute("UPDATE leaderboard.leaderboard SET deadline = now()")
    assert enqueue(queue.store, submission_id, mode="test") == 1


ENDS = [(None, -1), (None, 0), (2, 1)]


def test_an_end_before_the_start_is_refused(queue: Bench) -> None:
    """Nothing could run between the two."""
    now = datetime.now(UTC)
    for start_h, expires_h in ENDS:
        with pytest.raises(SubmissionError, match="not after now and start_at"):
            queue.submit(
                start_at=None if start_h is None else now + timedelta(hours=start_h),
                expires_at=now + timedelta(hours=expires_h),
            )


DIFFERENCES: list[tuple[dict[str, Any], str]] = [
    ({"code": CODE + b"#"}, "another code"),
    ({"file_name": "slow.py"}, "another file name (fast.py)"),
    ({"mode": "leaderboard"}, "another mode (test)"),
    ({"priority": 3}, "another priority (0)"),
    ({"leaderboard": "other"}, "another leaderboard (identity)"),
    ({"gpu_types": ["CPU"]}, "another choice of leaderboard or GPU types"),
    ({"code": CODE + b"#", "priority": 3}, "another code, priority (0)"),
]


def test_what_differs_under_an_idempotency_key_is_named(queue: Bench, db: Db) -> None:
    """With what the first submission had. A type in another case, and priority 0 or none, are the same wish."""
    call = "SELECT runner.submit('identity', 'u', 'x.py', 'x', 'test', %s, NULL, %s, 'l') AS id"
    wishes: list[tuple[list[str] | None, int | None]] = [(["CPU"], 0), (["cpu"], None), (["Cpu"], 0)]
    queue.board("other")
    queue.submit(idempotency_key="k")
    assert queue.submit(idempotency_key="k") == 1
    for changes, says in DIFFERENCES:
        with pytest.raises(SubmissionError, match=re.escape(f"was used for submission 1 with {says}")):
            queue.submit(idempotency_key="k", **changes)
    assert len({value(db, call, gpu_types, priority) for gpu_types, priority in wishes}) == 1
    for gpu_types, priority in ((["CPU"], 1), (None, 0)):
        with refused("KR014"):
            one(db, call, gpu_types, priority)


#: Every option of a profile.
ALL: dict[str, Any] = {"benchmark": 1, "kernel": "regex:a|b", "kernel_base": "demangled", "launches": 3}
#: Two benchmarks, and one on H200.
BOARD: dict[str, Any] = {
    "task": {**TASK, "benchmarks": [{"size": 8, "seed": 2}] * 2},
    "extra": {"cases": {"H200": {"benchmarks": [{"size": 8, "seed": 3}]}}},
}


@pytest.fixture
def board(bench: Bench, db: Db) -> Bench:
    """A leaderboard on three types of two vendors."""
    db.execute(
        "INSERT INTO runner.gpu_type (name, vendor) VALUES ('H100', 'nvidia'), ('H200', 'nvidia'), ('MI300', 'amd')"
    )
    bench.board("identity", "H100", "H200", "MI300", **BOARD)
    bench.board("ranks", "H100", task={**TASK, "multi_gpu": True})
    return bench


def test_options_reach_the_daemon_and_a_rerun_has_them(board: Bench) -> None:
    """From submit and from enqueue, and the defaults where nothing was given."""
    board.submit(mode="profile", gpu_types=["H100"], options=ALL)
    job = of_submission(board.claim("H100"))
    assert job.options == ProfileOptions(**ALL)
    board.store.complete(job, result(Verdict.ACCEPTED, run_record("profile.1")))
    board.store.rerun(Selection(submission_id=1))
    assert of_submission(board.claim("H100")).options == ProfileOptions(**ALL)
    board.submit(gpu_types=["H200"])
    enqueue(board.store, 2, mode="profile", gpu_types=["H100"], options={"benchmark": 0})
    assert of_submission(board.claim("H100")).options == ProfileOptions(benchmark=0)
    assert of_submission(board.claim("H200")).options == ProfileOptions()


def test_other_options_are_another_submission(board: Bench) -> None:
    """Under an idempotency key."""
    given: dict[str, Any] = {"mode": "profile", "gpu_types": ["H100"]}
    first = board.submit(**given, options=ALL, idempotency_key="k")
    assert board.submit(**given, options=ALL, idempotency_key="k") == first
    for other in (None, {"benchmark": 0}):
        with pytest.raises(SubmissionError, match="was used for submission 1 with another options"):
            board.submit(**given, options=other, idempotency_key="k")


BAD_OPTIONS: list[tuple[dict[str, Any], object, str]] = [
    ({}, [], "the options are of type array, expected an object"),
    ({}, {"kernels": "a"}, "option kernels is unknown. Choose from: benchmark, kernel, kernel_base, launches."),
    *(
        ({}, {"benchmark": value}, "expected the number of a benchmark, counted from 0")
        for value in (-1, 0.5, "0", None)
    ),
    ({}, {"benchmark": 2}, "there is no benchmark 2 on H100. The task has 2 there, counted from 0."),
    *(
        ({}, {"kernel": value}, "expected a name, or regex: and an expression, of 1 to 1024 characters")
        for value in ("", "regex:", "a\nb", "--export", "a" * 1025, 5)
    ),
    *(({}, {"kernel_base": value}, "expected function, demangled or mangled") for value in ("name", "", None)),
    *(({}, {"launches": value}, "expected a whole number from 1 to 10000") for value in (0, 1.5, 10001, True)),
    ({"mode": "test"}, {"benchmark": 0}, "mode test takes no options"),
    ({"gpu_types": ["H100", "H200"]}, {"benchmark": 1}, "there is no benchmark 1 on H200"),
    ({"gpu_types": ["MI300"]}, {"launches": 1}, "tasks of one NVIDIA device, not this task on MI300"),
    ({"leaderboard": "ranks"}, {"kernel": "a"}, "tasks of one NVIDIA device, not this task on H100"),
]


def test_bad_options_are_refused_before_anything_is_stored(board: Bench, db: Db) -> None:
    """In a sentence with what was found and expected; the only benchmark may be chosen on every type of every task."""
    given: dict[str, Any] = {"mode": "profile", "gpu_types": ["H100"]}
    for changes, options, says in BAD_OPTIONS:
        with pytest.raises(SubmissionError, match=re.escape(says)):
            board.submit(**{**given, **changes}, options=options)
    assert db.execute("SELECT count(*) FROM leaderboard.submission").fetchone() == {"count": 0}
    for changes in ({"gpu_types": ["H100", "H200"]}, {"gpu_types": ["MI300"]}, {"leaderboard": "ranks"}):
        board.submit(**{**given, **changes}, options={"benchmark": 0})


@pytest.mark.parametrize("benchmarks", ["null", "{}", "1"])
def test_a_task_of_another_program_has_the_benchmarks_that_can_be_counted(
    board: Bench, db: Db, benchmarks: str
) -> None:
    """Whatever its row holds, the user reads a sentence; KernelBot stores null where its author wrote nothing."""
    db.execute(
        "UPDATE leaderboard.leaderboard SET task = jsonb_set(task, '{benchmarks}', %s::jsonb) WHERE name = 'ranks'",
        [benchmarks],
    )
    with pytest.raises(SubmissionError, match="there is no benchmark 0 on H100"):
        board.submit(leaderboard="ranks", mode="profile", gpu_types=["H100"], options={"benchmark": 0})
