"""The admin route that publishes a data set, against a hub of this machine."""

from __future__ import annotations

import asyncio
import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from runner.extras.gateway import exporting
from tests.fakes import hub as fake
from tests.integration.extras.gateway.conftest import ADMIN, Answer, Gate
from tests.support.waiting import wait_until

Finish = Callable[..., None]
PATH = "/admin/export-hf"
REPOSITORY = "tester/kernels"
ORDER = {"leaderboard_ids": [1], "filename": "kernels.parquet", "private": True}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[fake.Hub]:
    """A hub that the commands find by their environment."""
    with fake.hub() as found:
        monkeypatch.setenv("HF_ENDPOINT", found.endpoint)
        monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
        yield found


@pytest.fixture
def site(open_gate: Callable[..., Gate], tmp_path: Path, database_url: str, finish: Finish) -> Gate:
    """A gateway that publishes, before a leaderboard with two users' scores that has ended."""
    for name, text in (("url", database_url), ("token", fake.TOKEN)):
        (tmp_path / name).write_text(f"{text}\n", encoding="utf-8")
    made = open_gate(
        gateway_requests_per_minute=100_000,
        gateway_publish_url_file=tmp_path / "url",
        gateway_hub_repository=REPOSITORY,
        gateway_hub_licence="cc-by-4.0",
        gateway_hub_token_file=tmp_path / "token",
    )
    made.bench.board()
    for user in ("ada", "bob"):
        made.user(user)
        made.submit("/submission/identity/CPU/leaderboard", f"# {user}\n".encode(), cli=f"{user}-token")
    finish(score_s=2e-6)
    made.sql("UPDATE leaderboard.leaderboard SET deadline = now() - interval '1 minute'")
    return made


def ask(gate: Gate, **changes: object) -> Answer:
    """The route with some of its body changed."""
    return gate.send_json("POST", PATH, {**ORDER, **changes}, admin=ADMIN)


def test_a_data_set_is_published(site: Gate, hub: fake.Hub) -> None:
    """With the answer's file in it, in a private repository if asked; the second time nothing but what is new."""
    parquet = pytest.importorskip("pyarrow.parquet")
    answer = ask(site)
    assert answer.json == {"status": "ok", "rows": 2, "repo_id": REPOSITORY, "filename": "kernels_submissions.parquet"}
    repository = hub.repositories[REPOSITORY]
    assert repository.private is True
    flat = parquet.read_table(io.BytesIO(repository.files["kernels_submissions.parquet"]))
    assert sorted(flat.column("code").to_pylist()) == ["# ada\n", "# bob\n"]
    assert "licence" in repository.files["README.md"].decode() or "license" in repository.files["README.md"].decode()
    again = ask(site, filename="kernels_submissions.parquet")
    assert (again.status, again.json["filename"]) == (200, "kernels_submissions.parquet")


REFUSED: list[tuple[dict[str, Any], int, str]] = [
    ({"leaderboard_ids": []}, 422, ""),
    ({"leaderboard_ids": "1"}, 422, ""),
    ({"leaderboard_ids": [True]}, 422, ""),
    ({"leaderboard_ids": [4711]}, 404, "Leaderboard 4711 does not exist"),
    ({"filename": "kernels.csv"}, 400, "ends in .parquet"),
    ({"filename": "../kernels.parquet"}, 400, "plain name"),
    ({"filename": 1}, 400, "plain name"),
    ({"private": "yes"}, 422, ""),
]


def test_what_is_refused(site: Gate, hub: fake.Hub) -> None:
    """Before anything is exported."""
    for changes, status, words in REFUSED:
        answer = ask(site, **changes)
        assert answer.status == status
        assert words in str(answer.detail)
        assert hub.repositories == {}


def test_an_open_leaderboard_is_not_published(site: Gate, hub: fake.Hub, tmp_path: Path) -> None:
    """With the command's own sentence, and no path of the host."""
    site.sql("UPDATE leaderboard.leaderboard SET deadline = now() + interval '1 day'")
    answer = ask(site)
    assert (answer.status, "identity" in answer.detail) == (400, True)
    assert "kernel-runner-" not in answer.detail
    assert str(tmp_path) not in answer.detail
    assert hub.repositories == {}


def test_a_hub_that_is_away(site: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """502: the leaderboard is not at fault; and no secret is in the sentence."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    answer = ask(site)
    assert answer.status == 502
    assert fake.TOKEN not in answer.detail


def test_both_commands_together_have_a_limit(site: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy waits no longer."""
    ran: list[str] = []

    async def run(arguments: Sequence[str], *_: object) -> dict[str, object]:
        ran.append(arguments[1])
        if arguments[1] == "publish":
            await asyncio.Event().wait()
        return {}

    monkeypatch.setattr(exporting, "_run", run)
    monkeypatch.setattr(exporting, "LONGEST_S", 0.1)
    answer = ask(site)
    assert (answer.status, answer.headers["retry-after"]) == (503, "60")
    assert "takes too long; use `kernel-runner data`" in answer.detail
    assert ran == ["export", "publish"]


def test_a_command_that_is_given_up_is_killed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It would go on to write to the hub."""
    program, written = tmp_path / "waits", tmp_path / "pid"
    program.write_text(f"#!/bin/sh\necho $$ > {written}\nexec sleep 600\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))

    async def give_up() -> None:
        running = asyncio.create_task(exporting._run([], {"PATH": "/usr/bin:/bin"}, str(tmp_path)))
        await asyncio.to_thread(wait_until, lambda: written.exists() and written.read_text(), "the command runs")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(give_up())
    with pytest.raises(ProcessLookupError):
        os.kill(int(written.read_text()), 0)


def test_without_settings_it_says_what_to_do(gate: Gate) -> None:
    """501, and the command that does it."""
    answer = ask(gate)
    assert answer.status == 501
    assert "kernel-runner data publish" in answer.detail
    assert "gateway_hub_repository" in answer.detail
