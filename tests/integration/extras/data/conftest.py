"""A database with submissions in every state that occurs, and some that should not."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from runner.extras.data.choice import Options
from runner.extras.data.export import export as export_to
from runner.extras.data.manifest import Manifest
from tests.integration.extras.gateway.conftest import login_of
from tests.integration.store.conftest import Db, db, one

__all__ = ["db"]

START = datetime(2025, 6, 1, tzinfo=UTC)
#: Occur in secret runs, seeds, tokens and names of hosts, and nowhere else.
CANARIES = {
    "secret_output": "canary-of-a-secret-run",
    "cli_id": "canary-cli-id",
    "web_auth_id": "canary-web-auth-id",
    "mail": "canary.mail@example.com",
    "host": "canary-host-name",
    "public_output": "canary-of-what-a-run-printed",
}
SECRET_SEED = 1_234_567_891
#: User id -> name with that address, in each of the ways that hide nothing of it.
MAILERS = {
    "mail": CANARIES["mail"],
    "mail-space": f"{CANARIES['mail']} ",
    "mail-name": f"Mail <{CANARIES['mail']}>",
    "mail-text": f"mail {CANARIES['mail']}!",
}
#: Every way in which a score can be unusable but for hacked and invalidated, with what is stored.
UNUSABLE = {
    "nan": "NaN",
    "infinite": "Infinity",
    "negative": "-1",
    "zero": "0",
    "below_1ns": "4.6e-25",
    "longer_than_run": "1000",
    "not_passed": "0.00002",
}


def no_progress(stage: str, done: int, total: int) -> None:
    """Tell no one."""


@dataclass
class Filler:
    """Writes rows as KernelBot and its frontends do."""

    db: Db
    #: Code of each submission.
    codes: dict[int, bytes] = field(default_factory=dict)
    _minutes: int = 0

    def _id(self, statement: str, *values: object) -> int:
        return int(one(self.db, statement, *values)["id"])

    def board(
        self, name: str, *, running: bool = False, visibility: str = "public", gpus: tuple[str, ...] = ("B200",)
    ) -> int:
        """A leaderboard, over unless `running`."""
        task = {"lang": "py", "ranking_by": "geom", "files": {"reference.py": "pass"}, "tests": [], "benchmarks": []}
        leaderboard_id = self._id(
            "INSERT INTO leaderboard.leaderboard (name, deadline, task, forum_id, secret_seed, description, visibility)"
            " VALUES (%s, %s, %s, 0, %s, 'A | problem', %s) RETURNING id",
            name,
            datetime.now(UTC) + timedelta(days=9) if running else START + timedelta(days=30),
            json.dumps(task),
            SECRET_SEED,
            visibility,
        )
        for gpu in gpus:
            self.db.execute("INSERT INTO leaderboard.gpu_type VALUES (%s, %s)", (leaderboard_id, gpu))
        return leaderboard_id

    def user(self, user_id: str, name: str | None = "", *, banned: bool = False) -> str:
        """A user with tokens."""
        shown = user_id.title() if name == "" else name
        self.db.execute(
            "INSERT INTO leaderboard.user_info (id, user_name, cli_id, cli_auth_provider, web_auth_id, is_banned)"
            " VALUES (%s, %s, %s, %s, %s, %s)",
            (user_id, shown, CANARIES["cli_id"], CANARIES["mail"], CANARIES["web_auth_id"], banned),
        )
        return user_id

    def code(self, code: bytes) -> int:
        """A code file; the same bytes are the same file."""
        self.db.execute("INSERT INTO leaderboard.code_files (code) VALUES (%s) ON CONFLICT DO NOTHING", (code,))
        return self._id("SELECT id FROM leaderboard.code_files WHERE code = %s", code)

    def submission(
        self,
        leaderboard_id: int,
        user_id: str,
        code: bytes,
        *,
        status: str = "active",
        job: str | None = "succeeded",
        done: bool = True,
        at: datetime | None = None,
    ) -> int:
        """A submission, a minute after the one before."""
        self._minutes += 1
        submission_id = self._id(
            "INSERT INTO leaderboard.submission (leaderboard_id, file_name, user_id, code_id, submission_time, done,"
            " status, mode_category) VALUES (%s, 'kernel.py', %s, %s, %s, %s, %s, 'leaderboard') RETURNING id",
            leaderboard_id,
            user_id,
            self.code(code),
            at or START + timedelta(minutes=self._minutes),
            done,
            status,
        )
        if job is not None:
            self.db.execute(
                "INSERT INTO leaderboard.submission_job_status (submission_id, status) VALUES (%s, %s)",
                (submission_id, job),
            )
        self.codes[submission_id] = code
        return submission_id

    def run(
        self,
        submission_id: int,
        score: str | None,
        *,
        mode: str = "leaderboard",
        secret: bool = False,
        runner: str = "B200",
        passed: bool = True,
        result: dict[str, str] | None = None,
        duration: object = 12.5,
        lasted_s: float = 20,
        begins_s: float = 5,
        system: dict[str, Any] | None = None,
    ) -> int:
        """A row of results."""
        ran_on = {"gpu": "NVIDIA B200", "torch": "2.9", "runtime": "CUDA"}
        said = CANARIES["secret_output" if secret else "public_output"]
        shown = result
        if secret:
            shown = {"benchmark-count": "1", "benchmark.0.spec": said, "benchmark.0.mean": "77777.25"}
        elif shown is None and score is not None:
            shown = {"benchmark.0.spec": "n: 8", "benchmark.0.mean": repr(float(score) * 1e9)}
            shown |= {"benchmark-count": "1", "check": "pass"}
        at = one(self.db, "SELECT submission_time AS t FROM leaderboard.submission WHERE id = %s", submission_id)
        return self._id(
            "INSERT INTO leaderboard.runs (submission_id, start_time, end_time, mode, secret, runner, score, passed,"
            " meta, result, system_info) VALUES (%s, %s, %s, %s, %s, %s, %s::numeric, %s, %s, %s, %s) RETURNING id",
            submission_id,
            at["t"] + timedelta(seconds=begins_s),
            at["t"] + timedelta(seconds=begins_s + lasted_s),
            mode,
            secret,
            runner,
            score,
            passed,
            json.dumps({"stdout": said, "stderr": said, "duration": duration}),
            json.dumps(shown),
            json.dumps({**ran_on, "hostname": CANARIES["host"], **(system or {})}),
        )

    def ranked(
        self,
        leaderboard_id: int,
        user_id: str,
        code: bytes,
        score: str,
        *,
        runner: str = "B200",
        **changes: Any,  # noqa: ANN401
    ) -> int:
        """A submission whose public and secret runs passed; `score` of the public one."""
        submission_id = self.submission(leaderboard_id, user_id, code)
        self.rank(submission_id, score, runner=runner, **changes)
        return submission_id

    def rank(self, submission_id: int, score: str, *, runner: str = "B200", **changes: Any) -> int:  # noqa: ANN401
        """Its runs on one runner; the id of the public one."""
        run_id = self.run(submission_id, score, runner=runner, **changes)
        self.run(submission_id, "0.00007777725", secret=True, runner=runner)
        return run_id


@pytest.fixture
def filler(db: Db) -> Filler:
    """Writes submissions."""
    return Filler(db)


@dataclass(frozen=True)
class Oddities:
    """A database with every oddity, and which submission has which."""

    filler: Filler
    board: int
    #: Check -> submission.
    unusable: dict[str, int]
    good: int
    two_runners: int
    bad_bytes: int
    with_nul: int
    blank: int
    orphan: int


@pytest.fixture
def oddities(filler: Filler) -> Oddities:
    """Bytes that are no text, scores that are no times, hacked submissions, deleted users, two runners, equal codes."""
    board = filler.board("gemv", gpus=("B200", "H100"))
    for number in range(4):
        filler.user(f"user{number}")
    filler.user("nameless", None)
    for user_id, name in MAILERS.items():
        filler.user(user_id, name)
    filler.user("banned", banned=True)
    unusable = {
        name: filler.ranked(board, "user1", f"# {name}".encode(), score, result={}, passed=name != "not_passed")
        for name, score in UNUSABLE.items()
    }
    unusable["hacked"] = filler.submission(board, "user1", b"# cheat", status="hacked", job="hacked")
    filler.rank(unusable["hacked"], "0.000001")
    unusable["outside_leaderboard"] = filler.ranked(board, "user1", b"# benchmark", "0.00003", mode="benchmark")
    good = filler.ranked(board, "user0", b"# good", "0.000025")
    two_runners = filler.ranked(board, "user2", b"# two", "0.00003")
    filler.rank(two_runners, "0.00004", runner="H100")
    filler.ranked(board, "user3", b"# two", "0.00005")
    bad_bytes = filler.ranked(board, "user0", b"x = '\xff\xfe'\n", "0.00006")
    with_nul = filler.ranked(board, "user0", b"x = '\0'\n", "0.00007")
    blank = filler.submission(board, "nameless", b" \n\t\n")
    for user_id in MAILERS:
        filler.ranked(board, user_id, f"# {user_id}".encode(), "0.00008")
    filler.ranked(board, "banned", b"# banned", "0.00009")
    filler.db.execute("ALTER TABLE leaderboard.submission DROP CONSTRAINT fk_user_info")
    orphan = filler.ranked(board, "deleted", b"# orphan", "0.0001")
    return Oddities(filler, board, unusable, good, two_runners, bad_bytes, with_nul, blank, orphan)


def exported(url: str, target: Path, **options: Any) -> Manifest:  # noqa: ANN401
    """An export; private unless said otherwise."""
    return export_to(url, Options(target=target, **{"private": True, **options}), no_progress)


@pytest.fixture
def login(database_url: str, db: Db) -> Iterator[str]:
    """The database's URL for a login that reads all but code, and whose rights end with the test."""
    name = f"runner_test_data_{os.getpid()}"
    yield login_of(database_url, name, "runner_readonly")
    db.execute(sql.SQL("DROP OWNED BY {0}; DROP ROLE {0}").format(sql.Identifier(name)))


def may_read_code(db: Db, url: str) -> None:
    """Give the login of a URL the right that an export needs beside those of runner_readonly."""
    grant = sql.SQL("GRANT SELECT (id, code, old_code) ON leaderboard.code_files TO {}")
    db.execute(grant.format(sql.Identifier(str(conninfo_to_dict(url)["user"]))))
