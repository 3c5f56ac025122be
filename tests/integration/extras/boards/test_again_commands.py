"""`rerun`, `invalidate` and `host drain` against a real database; the test plays the daemon."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from runner.base.model import Job, JobResult, Verdict
from runner.store import HostRecord, Store
from tests.integration.cli.conftest import Call
from tests.integration.store.conftest import Db, result, run_record


def evaluate(store: Store, *, host: str = "node1", score_s: float = 2.5e-6) -> None:
    """Claim and accept everything that waits."""
    while claimed := store.claim(host=host, slots={"CPU": 1}, lease_s=60.0).jobs:
        store.complete(claimed[0], accepted(claimed[0], score_s))


def accepted(job: Job, score_s: float = 2.5e-6) -> JobResult:
    """What a correct submission leaves."""
    score = score_s if job.mode == "leaderboard" else None
    return result(Verdict.ACCEPTED, run_record(str(job.mode), score_s=score))


def register(store: Store, name: str) -> None:
    """A daemon that serves the CPU type."""
    slots = [{"name": "cpu0", "gpu_type": "CPU", "devices": [], "cpus": [0]}]
    store.register_host(HostRecord(name=name, version="1", slots=slots, instance=name, gpu_types=["CPU"]))


@pytest.fixture
def submitted(cli: Call, board: str, submission_file: Path, store: Store) -> tuple[int, int]:
    """Two ranked submissions, evaluated on node1 and node2."""
    numbers = []
    for user, host in (("alice", "node1"), ("bob", "node2")):
        numbers.append(int(cli("submit", submission_file, "--leaderboard", board, "--user", user).out))
        evaluate(store, host=host)
    return numbers[0], numbers[1]


def answers(monkeypatch: pytest.MonkeyPatch, *, terminal: bool, answer: str = "") -> None:
    """The command runs with or without a terminal."""
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: terminal, readline=lambda *_: f"{answer}\n"))


def test_one_submission_is_evaluated_again_without_a_question(
    cli: Call, submitted: tuple[int, int], store: Store, board: str
) -> None:
    """The number of jobs on stdout; the old score stands until the new one is there; the page tells the rest."""
    number, _ = submitted
    said = cli("rerun", number, "--reason", "mended task")
    assert (said.code, said.out) == (0, "2\n")
    document = cli("status", number, "--json").document
    told = [document[key] for key in ("state", "rerunning", "reruns", "score")]
    assert told == ["queued", True, 1, 2.5e-6]
    assert "evaluated again; until that is over, the earlier results count" in cli("status", number).out
    assert "queued, position 1, again" in cli("status").out
    evaluate(store, score_s=9e-6)
    page = cli("status", number).out
    assert "does not count: replaced by job 5: mended task" in page
    assert "again for job 1" in page
    assert cli("leaderboard", "show", board, "--json").document[1]["score"] == 9e-6


def test_a_dry_run_counts_and_does_nothing(cli: Call, submitted: tuple[int, int], store: Store, board: str) -> None:
    """What would be done, by board, type and mode, with what is left alone and why; for programs too."""
    assert cli("rerun", submitted[1]).code == 0
    said = cli("rerun", "--leaderboard", board, "--dry-run")
    assert said.code == 0
    assert [line.split() for line in said.out.splitlines()[2:]] == [
        ["echo", "CPU", "leaderboard", "1", "2"],
        ["echo", "CPU", "leaderboard", "1", "2", "left", "alone:", "waits", "or", "runs"],
    ]
    assert "2 jobs; nothing was done" in said.err
    document = cli("invalidate", "--leaderboard", board, "--reason", "x", "--dry-run", "--json").document
    assert (document["jobs"], document["dry_run"]) == (4, True)
    assert [line["counting"] for line in document["matching"]] == [2, 2]
    assert "nothing matches" in cli("rerun", "--host", "node1", "--until", "9 days ago", "--dry-run").out
    assert sum(line.state == "queued" for line in store.queue(limit=9)) == 1


@pytest.mark.parametrize("command", [("rerun",), ("invalidate", "--reason", "a broken fan")])
def test_many_need_a_yes(
    cli: Call, submitted: tuple[int, int], board: str, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    """A terminal asks, with how many of what; a script says --yes; stdout is the number; no leaves all as it is."""
    answers(monkeypatch, terminal=True, answer="n")
    said = cli(*command, "--leaderboard", board)
    assert (said.code, said.out) == (1, "")
    for shown in ("leaderboard   2             4", "4 jobs", "nothing was done"):
        assert shown in said.err
    answers(monkeypatch, terminal=False)
    said = cli(*command, "--host", "node2")
    assert (said.code, said.out) == (2, "")
    assert all(option in said.err for option in ("--yes", "--dry-run"))
    assert cli(*command, "--leaderboard", board, "--until", "9 days ago").out == "0\n"
    assert all(line["score"] for line in cli("status", "--json").document)
    assert cli(*command, "--host", "node2", "--yes").out == "2\n"
    answers(monkeypatch, terminal=True, answer="y")
    said = cli(*command, "--host", "node1", "--json")
    place = {"leaderboard": board, "gpu_type": "CPU", "mode": "leaderboard", "obstacle": None}
    matching = [{**place, "evaluations": 1, "jobs": 2, "counting": 2}]
    assert (said.code, said.document) == (0, {"jobs": 2, "dry_run": False, "matching": matching})


NO_SELECTION = [
    ((), "no filter given"),
    (("--since", "2026-05-01T12:00"), "2026-05-01T12:00Z for UTC"),
    (("--until", "2026-05-01"), "without a time zone"),
    (("--since", "yesterday"), "found 'yesterday', expected a date like"),
    (("--since", "2 parsecs ago"), "'2 parsecs ago' is no span of time"),
    (("--host", "node1", "--priority", "5000"), "priority"),
]


def test_what_cannot_be_meant_is_a_usage_error(cli: Call, submitted: tuple[int, int]) -> None:
    """One message, exit code 2, nothing on stdout, nothing in the queue."""
    for arguments, says in NO_SELECTION:
        said = cli("rerun", *arguments, "--yes")
        assert (said.code, said.out, says in said.err, "Traceback" in said.err) == (2, "", True, False)
        assert {line["state"] for line in cli("status", "--json").document} == {"done"}


def test_what_is_taken_out_says_why_on_its_page(cli: Call, submitted: tuple[int, int], board: str) -> None:
    """No verdict, no score, the reason for everybody; exit code 0 for the operator who did it."""
    said = cli("invalidate", submitted[0], "--reason", "the fan was broken")
    assert (said.code, said.out) == (0, "2\n")
    document = cli("status", submitted[0], "--json").document
    assert (document["verdict"], document["score"]) == (None, None)
    assert document["error"] == "taken out of the ranking: the fan was broken"
    assert "taken out of the ranking: the fan was broken" in cli("status", submitted[0]).out
    assert [place["user_id"] for place in cli("leaderboard", "show", board, "--json").document] == ["bob"]
    assert cli("invalidate", submitted[0], "--reason", "once more").out == "0\n"
    assert cli("invalidate", submitted[1]).code == 2, "a reason is required"


def test_a_host_is_drained_and_undrained(
    cli: Call, board: str, submission_file: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list shows it with the reason; doing it twice is no error; an unknown name is one. It can be waited for."""
    register(store, "node1")
    assert "up" in cli("host", "list").out
    said = cli("host", "drain", "node1", "--reason", "new fan")
    assert (said.code, said.out) == (0, "")
    assert "claims nothing more" in said.err
    assert "was draining already" in cli("host", "drain", "node1", "--reason", "new fan").err
    assert "draining: new fan" in cli("host", "list").out
    (line,) = cli("host", "list", "--json").document
    assert (line["state"], line["drain_reason"]) == ("draining", "new fan")
    assert "claims again" in cli("host", "undrain", "node1").err
    assert "was not draining" in cli("host", "undrain", "node1").err
    assert cli("host", "drain", "nobody").code == 2
    # Progress on stderr while something runs; the command ends when the last job there has ended.
    assert cli("submit", submission_file, "--leaderboard", board, "--user", "alice").code == 0
    (job,) = store.claim(host="node1", slots={"CPU": 1}, lease_s=60.0).jobs
    seen: list[str] = []

    def watch(_: object, text: str) -> None:
        if not seen:
            store.complete(job, accepted(job))
        seen.append(text)

    monkeypatch.setattr("runner.cli.progress.ProgressLine.show", watch)
    said = cli("host", "drain", "node1", "--wait")
    assert said.code == 0
    assert seen[0] == "1 job runs on host node1"
    assert "nothing runs on host node1" in said.err
    assert not store.claim(host="node1", slots={"CPU": 1}, lease_s=60.0).jobs


def test_what_failed_is_listed_and_evaluated_again_by_its_cause(
    cli: Call, board: str, submission_file: Path, store: Store, db: Db
) -> None:
    """On a page and as JSON; nothing that a host wrote moves the cursor."""
    assert "no attempt has failed" in cli("failed").out
    cli("submit", submission_file, "--leaderboard", board, "--mode", "test")
    for _ in range(3):
        (job,) = store.claim(host="node1", slots={"CPU": 1}, lease_s=60.0).jobs
        store.fail(job, error="the engine hung\x1b[2J", report=None, slot="gpu3")
        db.execute("UPDATE runner.job SET not_before = NULL, avoid_until = NULL")
    assert cli("failed", "--since", "1 hour ago", "--host", "node1").out.count("the engine hung\\x1b[2J") == 3
    (line,) = cli("failed", "--limit", "1", "--json").document
    assert (line["attempt"], line["slot"], line["verdict"]) == (3, "gpu3", "internal_error")
    assert cli("failed", "--host", "node2", "--json").document == []
    assert cli("rerun", "--verdict", "internal_error", "--cause", "ENGINE", "--yes").out == "1\n"
    assert cli("rerun", "--verdict", "accepted", "--yes").out == "0\n"


def test_start_and_end_are_options_of_submit(cli: Call, board: str, submission_file: Path, store: Store) -> None:
    """Times are spans from now."""
    submit = ("submit", submission_file, "--leaderboard", board, "--user", "alice")
    assert cli(*submit, "--start", "in 2 hours", "--expires", "in 3 hours").code == 0
    assert store.claim(host="node1", slots={"CPU": 1}, lease_s=60.0).jobs == ()
    assert cli(*submit, "--start", "in 2 hours", "--expires", "in 1 hour").code == 2


def test_a_type_or_a_leaderboard_is_paused_and_resumed(cli: Call, board: str, submission_file: Path) -> None:
    """Who waits reads why; doing it twice is no error."""
    number = cli("submit", submission_file, "--leaderboard", board).out.strip()
    for group, name, reason in (("gpu", "CPU", "a new driver"), ("leaderboard", board, "a mended task")):
        assert "is paused" in cli(group, "pause", name, "--reason", reason).err
        assert "was paused already" in cli(group, "pause", name, "--reason", reason).err
        assert f"its leaderboard or GPU type is paused: {reason}" in cli("status", number).out
        assert "is served again" in cli(group, "resume", name).err
        assert "was not paused" in cli(group, "resume", name).err


def test_a_file_that_a_run_left_is_never_a_hidden_one_and_replaces_none(
    cli: Call, submitted: tuple[int, int], db: Db, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A submission chose the name; with --output the person does."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    for number, name in enumerate((".bashrc", "...", "../.profile"), 1):
        db.execute("INSERT INTO runner.artifact (job_id, name, media_type, data) VALUES (1, %s, 'x', 'x')", (name,))
        assert cli("artifact", number).code == 0
    assert sorted(path.name for path in here.iterdir()) == ["artifact-2", "bashrc", "profile"]
    again = cli("artifact", 1)
    assert (again.code, "exists already" in again.err) == (2, True)
