"""`user`: tokens, approvals, the list, and the end of a login; and `gateway` as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from runner.base.errors import SubmissionError
from runner.store import Store
from tests.integration.cli.conftest import Call
from tests.integration.extras.gateway.conftest import ADMIN, approve, ask, gateway_login, revoke, set_token, states
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_S, wait_until


def test_a_token_is_printed_once_and_stored_as_a_digest(cli: Call, database_url: str) -> None:
    """As a line of ~/.popcorn.yaml."""
    said = cli("user", "token", "ada", "--name", "Ada L.")
    key, _, token = said.out.strip().partition(": ")
    assert (said.code, key, len(token)) == (0, "cli_id", 32)
    with psycopg.connect(database_url) as connection:
        found = connection.execute("SELECT id, user_name, cli_id, cli_valid FROM leaderboard.user_info").fetchall()
    assert found == [("ada", "Ada L.", f"sha256:{sha256(token.encode()).hexdigest()}", True)]
    assert cli("user", "token", "temp_x").code == 2


@pytest.mark.parametrize("blank", ["", " "])
def test_a_name_without_a_letter_is_none(cli: Call, database_url: str, blank: str) -> None:
    """A new user's is the id then, a known one keeps theirs: else rankings would show nothing."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        for code in ("1b9d6bcd", "2b9d6bcd"):
            connection.execute("SELECT runner.begin_login(%s, %s, 'github', 'here')", (code, "sha256:" + code * 8))
        assert cli("user", "token", "ada", "--name", blank).code == 0
        assert cli("user", "approve", "1b9d6bcd", "bob", "--name", blank).code == 0
        assert cli("user", "token", "eve", "--name", "Eve").code == 0
        assert cli("user", "approve", "2b9d6bcd", "eve", "--name", blank, "--existing").code == 0
        assert cli("user", "token", "eve", "--name", blank).code == 0
        users = connection.execute("SELECT id, user_name FROM leaderboard.user_info ORDER BY id").fetchall()
    assert users == [("ada", "ada"), ("bob", "bob"), ("eve", "Eve")]


def test_a_login_is_approved_listed_and_revoked(cli: Call, database_url: str) -> None:
    """By the code that its owner tells; of another user's account only with --existing."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        for code in ("1b9d6bcd", "2b9d6bcd"):
            connection.execute("SELECT runner.begin_login(%s, %s, 'github', 'here')", (code, "sha256:" + code * 8))
    assert cli("user", "approve", "1B9D6BCD", "ada").code == 0
    again = cli("user", "approve", "1b9d6bcd", "ada")
    assert (again.code, "first 8 characters of cli_id" in again.err) == (2, True)
    assert cli("user", "approve", "2b9d6bcd", "ada").code == 2
    waits, valid = cli("user", "list", "--json").document
    assert (waits["user_id"], waits["state"]) == ("temp_2b9d6bcd", "waits")
    assert (valid["user_id"], valid["state"]) == ("ada", "valid")
    assert cli("user", "approve", "2b9d6bcd", "ada", "--existing").code == 0
    assert cli("user", "revoke", "ada").code == 0
    assert "no login" in cli("user", "list").out
    assert cli("user", "revoke", "nobody").code == 2


def test_the_gateway_starts_serves_and_ends(database_url: str, tmp_path: Path) -> None:
    """As systemd starts it, with the credentials of its unit in a folder; SIGTERM ends it with 0."""
    port = free_port()
    (tmp_path / "database_url").write_text(f"{gateway_login(database_url)}\n", encoding="utf-8")
    (tmp_path / "gateway_admin_token").write_text(f"{ADMIN}\n", encoding="utf-8")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("KERNEL_RUNNER_", "DATABASE_"))}
    environment = {
        **kept,
        "CREDENTIALS_DIRECTORY": str(tmp_path),
        "KERNEL_RUNNER_GATEWAY_LISTEN": f"127.0.0.1:{port}",
        "KERNEL_RUNNER_STATE_DIR": str(tmp_path),
    }

    def status_of(path: str, **headers: str) -> int:
        with suppress(OSError):
            return ask(port, "GET", path, headers=headers).status
        return 0

    command = [sys.executable, "-m", "runner.cli", "gateway"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as running:
        try:
            wait_until(lambda: status_of("/readyz") == 200, "it is ready")
            assert status_of("/admin/stats", Authorization=f"Bearer {ADMIN}") == 200
            assert status_of("/admin/stats", Authorization="Bearer wrong") == 401
            assert status_of("/") == 200
        finally:
            running.terminate()
        assert running.wait(PATIENCE_S) == 0


def test_a_short_admin_token_is_refused(database_url: str, tmp_path: Path) -> None:
    """Before anything is served."""
    (tmp_path / "database_url").write_text(database_url, encoding="utf-8")
    (tmp_path / "gateway_admin_token").write_text("short", encoding="utf-8")
    command = [sys.executable, "-m", "runner.cli", "gateway"]
    environment = {**os.environ, "CREDENTIALS_DIRECTORY": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 2
    assert "at least 16" in done.stderr
    assert "short" not in done.stderr.replace(str(tmp_path), "")


def test_an_operator_gives_and_takes_logins(database_url: str) -> None:
    """The role is enough: no right on a credential is needed."""
    operator = make_conninfo(database_url, options="-c role=runner_operator")
    with closing(Store(operator, application_name="test")) as store:
        set_token(store, "ada", "a token")
        assert list(states(store)) == ["ada"]
        assert revoke(store, "ada")
        with pytest.raises(SubmissionError):
            approve(store, "00000000", "ada", existing=True)
