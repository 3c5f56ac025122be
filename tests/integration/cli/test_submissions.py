"""`submit`, `status`, `cancel` against a real database; a thread plays the daemon where a verdict is needed."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from runner.base.model import Job, JobResult, Mode, ProfileOptions, Progress, TimingAssurance, Verdict
from runner.store import Store
from runner.store.migrate import migrate
from tests.integration.cli.conftest import Call
from tests.integration.store.conftest import result, run_record
from tests.support.jobs import of_submission
from tests.support.waiting import PATIENCE_S

SECRET_MARK = "hidden-c0ffee"


def _result(job: Job, verdict: Verdict) -> JobResult:
    """A result as an evaluation leaves it; a secret one is full of text that users may not see."""
    passed = verdict is Verdict.ACCEPTED
    ranked = job.mode is Mode.LEADERBOARD
    text = SECRET_MARK if job.secret else "n: 16; seed: 3"
    demanded = TimingAssurance.CLAIMED if job.secret else of_submission(job).demand.timing
    withheld = {"unranked": {"score_s": 2.5e-6, "detail": "the judge's clock cannot vouch for it"}}
    unranked = {} if TimingAssurance.CLAIMED.satisfies(demanded) else withheld
    timed = {"benchmark-count": "1", "benchmark.0.spec": text, "benchmark.0.mean": "2500.0"}
    run = run_record(
        "leaderboard" if ranked else str(job.mode),
        passed=passed,
        score_s=2.5e-6 if ranked and passed and not unranked else None,
        meta={"stdout": text, "stderr": text, "exit_code": 0 if passed else 112},
        result={**timed, "check": "pass" if passed else "fail"},
        system_info={"runner": {"host": "h", "assurance": {"correctness": "judge", "timing": "claimed"}, **unranked}},
    )
    return result(verdict, run, error=None if passed else f"case 0 is wrong {text}")


Serve = Callable[[Callable[[Job], Verdict | None]], None]


@pytest.fixture
def serve(database_url: str) -> Iterator[Serve]:
    """Plays a daemon in a thread: claims every job and ends it as the test says (None: an infrastructure failure)."""
    stop, threads = threading.Event(), list[threading.Thread]()

    def work(decide: Callable[[Job], Verdict | None]) -> None:
        store = Store(database_url, application_name="test daemon")
        while not stop.is_set():
            claims = store.claim(host="h", slots={"CPU": 1}, lease_s=60.0)
            if not claims.jobs:
                stop.wait(0.02)
                continue
            (job,) = claims.jobs
            store.progress(job, Progress(phase="test", done=1, total=2))
            verdict = decide(job)
            if verdict is None:
                store.fail(job, error="the engine went away", report=None, slot="cpu0")
            else:
                store.complete(job, _result(job, verdict))
        store.close()

    def start(decide: Callable[[Job], Verdict | None]) -> None:
        threads.append(threading.Thread(target=work, args=(decide,)))
        threads[-1].start()

    yield start
    stop.set()
    for thread in threads:
        thread.join(PATIENCE_S)


@pytest.fixture
def frontend_url(database_url: str) -> str:
    """The address of a login that has the role of a frontend."""
    migrate(database_url, roles=True)
    with psycopg.connect(database_url, autocommit=True) as owner:
        # Roles belong to the server, which other tests use as well.
        login = f"frontend_of_{owner.info.dbname}"
        owner.execute(f"CREATE ROLE {login} LOGIN PASSWORD '{login}' IN ROLE runner_frontend")
    return make_conninfo(database_url, user=login, password=login)


@pytest.mark.parametrize("secret", [Verdict.ACCEPTED, Verdict.WRONG_ANSWER])
def test_a_frontends_login_sees_what_an_operator_sees(
    cli: Call,
    board: str,
    submission_file: Path,
    serve: Serve,
    *,
    database_url: str,
    frontend_url: str,
    secret: Verdict,
) -> None:
    """Of a submission that waits, runs, is over, and was taken out; of leaderboards. --admin is refused to it."""
    running, go = threading.Event(), threading.Event()

    def decide(job: Job) -> Verdict:
        running.set()
        assert go.wait(PATIENCE_S)
        return secret if job.secret else Verdict.ACCEPTED

    def same(*arguments: object) -> Any:  # noqa: ANN401 any JSON
        of_frontend = cli(*arguments, "--json", database=frontend_url)
        assert of_frontend.code == 0, of_frontend.err
        assert of_frontend.document == cli(*arguments, "--json", database=database_url).document
        return of_frontend.document

    submit = ("submit", submission_file, "--leaderboard", board, "--user", "alice")
    assert cli(*submit, database=frontend_url).code == 0
    assert same("status", 1)["state"] == "queued"
    serve(decide)
    assert running.wait(PATIENCE_S)
    assert same("status", 1)["phase"] == "testing case 2 of 2"
    go.set()
    answer = cli(*submit, "--wait", "--timeout", PATIENCE_S, "--json", database=frontend_url)
    assert answer.document["verdict"] == str(secret)
    assert SECRET_MARK not in answer.out
    assert len(same("status", 1)["jobs"]) == 2
    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute("SELECT runner.invalidate(submission_id => 1, reason => 'a fan failed')")
    assert same("status", 1)["jobs"][0]["retired_as"] == "invalidated"
    same("leaderboard", "list")
    same("leaderboard", "show", board)
    refused = cli("status", 1, "--admin", database=frontend_url)
    assert (refused.code, refused.out) == (3, "")


@pytest.mark.parametrize("demanded", ["claimed", "audited"])
def test_a_time_is_shown_with_what_it_is_worth_and_why_it_does_not_rank(
    cli: Call, task_folder: Path, submission_file: Path, serve: Serve, demanded: str
) -> None:
    """`submit --wait`, `status` and `leaderboard show`; a time that is too little passes and stands in no ranking."""
    assert cli("leaderboard", "create", task_folder, "--name", "echo", "--timing", demanded).code == 0
    serve(lambda _: Verdict.ACCEPTED)
    said = cli("submit", submission_file, "--leaderboard", "echo", "--user", "alice", "--wait", "--timeout", PATIENCE_S)
    assert said.code == 0
    ranking = cli("leaderboard", "show", "echo", "--json").document
    if demanded == "claimed":
        assert "score: 2.50 µs (claimed)" in said.out
        assert "2.50 µs (claimed)" in cli("status").out
        assert "2.50 µs (claimed)" in cli("leaderboard", "show", "echo").out
        assert [(line["timing"], line["correctness"]) for line in ranking] == [("claimed", "judge")]
    else:
        why = "this board ranks audited times only; this time is claimed: the judge's clock cannot vouch for it"
        assert f"does not rank: {why}\n" in said.out
        assert "leaderboard: pass   2.50 µs (claimed), does not rank" in said.out
        assert (cli("status", 1, "--json").document["unranked"], ranking) == (why, [])


def test_options_of_a_profile_reach_the_daemon(cli: Call, board: str, submission_file: Path, database_url: str) -> None:
    """Those that are given; in another mode they are refused in a sentence."""
    submit = ("submit", submission_file, "--leaderboard", board, "--user", "alice")
    given = ("--benchmark", 0, "--kernel", "regex:a b", "--kernel-base", "mangled", "--launches", 3)
    assert cli(*submit, "--mode", "profile", *given).code == 0
    with closing(Store(database_url, application_name="test daemon")) as store:
        (job,) = store.claim(host="h", slots={"CPU": 1}, lease_s=60.0).jobs
    options = ProfileOptions(benchmark=0, kernel="regex:a b", kernel_base="mangled", launches=3)
    assert of_submission(job).options == options
    refused = cli(*submit, "--mode", "test", "--benchmark", 0)
    assert (refused.code, "mode test takes no options" in refused.err) == (2, True)


def test_submit_prints_the_number_and_returns(cli: Call, board: str, submission_file: Path) -> None:
    """The number on stdout is all a script needs; both jobs of a ranked submission are in the queue.

    Both are cancelled by their user only, and cancelling again finds nothing to do.
    """
    said = cli("submit", submission_file, "--leaderboard", board, "--user", "alice", "--user-name", "Alice")
    assert said.code == 0
    number = int(said.out)
    document = cli("status", number, "--json").document
    assert (document["state"], document["verdict"], document["user_id"]) == ("queued", None, "alice")
    assert [(job["mode"], job["secret"]) for job in document["jobs"]] == [("leaderboard", False), ("leaderboard", True)]
    page = cli("status", number).out
    assert "by Alice to echo" in page
    assert "position 1 in the queue" in page
    assert cli("cancel", number, "--user", "mallory").code == 2
    said = cli("cancel", number, "--user", "alice")
    assert (said.code, said.out) == (0, "2\n")
    document = cli("status", number, "--json").document
    assert (document["state"], document["verdict"]) == ("cancelled", None)
    assert cli("cancel", number).out == "0\n"


REFUSED = [
    (b"x = 1\n", ("--leaderboard", "nowhere"), "nowhere"),
    (b"x = 1\n", (), "leaderboard"),
    (b"x = 1\n", ("--leaderboard", "echo", "--gpu", "H100"), "H100"),
    (b"x = 1\n", ("--leaderboard", "echo", "--mode", "race"), "race"),
    (b"", ("--leaderboard", "echo"), "0 bytes"),
    (b"\xff\xfe", ("--leaderboard", "echo"), "UTF-8"),
    (b"x" * 1_000_001, ("--leaderboard", "echo"), "1000001 bytes"),
    (b"#!POPCORN leaderboard other\n", ("--leaderboard", "echo"), "other"),
]


def test_a_refused_submission_is_a_usage_error_with_a_reason(cli: Call, board: str, tmp_path: Path) -> None:
    """Exit code 2, one message on stderr, nothing on stdout, nothing in the queue."""
    for content, arguments, says in REFUSED:
        path = tmp_path / "bad.py"
        path.write_bytes(content)
        said = cli("submit", path, "--user", "alice", *arguments)
        assert (said.code, said.out) == (2, "")
        assert said.err.startswith("kernel-runner: ")
        assert says in said.err
        assert "Traceback" not in said.err
        assert cli("status", "--json").document == []


def test_waiting_gives_one_document_and_tells_the_verdict_by_its_exit_code(
    cli: Call, board: str, submission_file: Path, serve: Serve
) -> None:
    """An accepted ranked submission: exit 0, public score, both jobs, the secret one without any of its text."""
    serve(lambda _: Verdict.ACCEPTED)
    said = cli("submit", submission_file, "--leaderboard", board, "--user", "alice", "--wait", "--json")
    assert said.code == 0
    assert (said.document["verdict"], said.document["score"]) == ("accepted", 2.5e-6)
    public, secret = said.document["jobs"]
    assert public["runs"][0]["result"]["benchmark.0.mean"] == "2500.0"
    assert (secret["secret"], secret["verdict"], secret["runs"][0]["passed"]) == (True, "accepted", True)
    assert secret["runs"][0]["result"] is None
    assert SECRET_MARK not in said.out + said.err
    assert f"submission {said.document['submission_id']}" in said.err
    ranked = cli("leaderboard", "show", board)
    assert "2.50 µs" in ranked.out
    assert "alice" in ranked.out


def test_a_failed_secret_run_fails_the_submission_without_saying_why(
    cli: Call, board: str, submission_file: Path, serve: Serve
) -> None:
    """Exit 1, the gravest verdict, no score; only --admin shows what the secret run said."""
    serve(lambda job: Verdict.WRONG_ANSWER if job.secret else Verdict.ACCEPTED)
    said = cli("submit", submission_file, "--leaderboard", board, "--user", "alice", "--wait")
    assert said.code == 1
    assert "wrong_answer" in said.out
    assert SECRET_MARK not in said.out + said.err
    number = cli("status", "--json").document[0]["submission_id"]
    assert SECRET_MARK not in cli("status", number).out + cli("status", number, "--json").out
    assert SECRET_MARK not in cli("status").out
    assert SECRET_MARK in cli("status", number, "--admin").out
    assert cli("status", number, "--admin", "--json").document["jobs"][1]["error"].startswith("case 0 is wrong")
    assert cli("leaderboard", "show", board, "--json").document == []


def test_waiting_for_a_failed_public_run_shows_why(cli: Call, board: str, submission_file: Path, serve: Serve) -> None:
    """The page carries verdict, message and where it ran."""
    serve(lambda _: Verdict.RUNTIME_ERROR)
    said = cli("submit", submission_file, "--leaderboard", board, "--user", "alice", "--mode", "test", "--wait")
    assert said.code == 1
    assert "runtime error: the submission crashed" in said.out
    assert "case 0 is wrong n: 16; seed: 3" in said.out
    assert "host h" in said.out


def test_the_end_of_the_patience_is_an_infrastructure_exit_code(cli: Call, board: str, submission_file: Path) -> None:
    """No host serves the type: the command gives up, says how to go on, and leaves the submission in the queue."""
    said = cli("submit", submission_file, "--leaderboard", board, "--user", "alice", "--wait", "--timeout", "0.3")
    assert (said.code, said.out) == (3, "")
    assert "kernel-runner status" in said.err
    assert cli("status", "--json").document[0]["state"] == "queued"


def test_ctrl_c_ends_the_waiting_and_not_the_submission(
    cli: Call, board: str, submission_file: Path, database_url: str
) -> None:
    """Exit 130 and two commands to go on with; the submission is still queued."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "runner.cli", "submit", str(submission_file)),
            *("--leaderboard", board, "--user", "alice", "--wait"),
        ],
        env={"DATABASE_URL": database_url, "PATH": "/usr/bin:/bin"},
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    first = [process.stderr.readline(), process.stderr.readline()]
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (130, "")
    assert "is in the queue" in first[0]
    assert "queued" in first[1]
    assert "kernel-runner cancel" in err
    assert "Traceback" not in err
    assert cli("status", "--json").document[0]["state"] == "queued"
