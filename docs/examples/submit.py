"""Submits a file and waits for the verdict: python submit.py FILE LEADERBOARD USER. DATABASE_URL names the database."""

import os
import sys
from pathlib import Path

import psycopg


def main(file: str, leaderboard: str, user: str) -> int:
    """Submit, wait, print; the exit code says whether it was accepted."""
    path = Path(file)
    # Autocommit: daemons hear of a submission when it is committed, and notifications come between statements.
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        try:
            (submission,) = connection.execute(
                "SELECT runner.submit(leaderboard => %s, user_id => %s, file_name => %s, code => %s, mode => 'test')",
                (leaderboard, user, path.name, path.read_bytes()),
            ).fetchone()
        except psycopg.Error as error:
            # Class KR: written for the user. Everything else is ours to mend.
            if not (error.sqlstate or "").startswith("KR"):
                raise
            print(error.diag.message_primary, error.diag.message_hint or "")
            return 2
        connection.execute("LISTEN runner_events")
        while True:
            state, phase, verdict, score, problem = connection.execute(
                "SELECT state, phase, verdict, score, error FROM runner.status WHERE submission_id = %s", (submission,)
            ).fetchone()
            if state in ("done", "cancelled"):
                break
            print(f"submission {submission}: {phase or state}")
            # Until something happens to any submission, and at least every five seconds: notifications may be lost.
            for _ in connection.notifies(timeout=5, stop_after=1):
                pass
    print(f"submission {submission}: {verdict or state}", "" if score is None else f"{score} s", problem or "")
    return 0 if verdict == "accepted" else 1


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: python submit.py FILE LEADERBOARD USER")
    sys.exit(main(*sys.argv[1:]))
