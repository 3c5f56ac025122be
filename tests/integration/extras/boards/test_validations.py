"""`leaderboard validate` and `leaderboard final`, and where their results are shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.base.errors import SubmissionError
from runner.base.model import FinalJob, JobResult, Mode, Verdict
from runner.extras.boards.store import BoardStore
from runner.store import HostRecord, Store
from tests.integration.cli.conftest import Call, write_task
from tests.integration.store.conftest import Bench, ranked, result


@pytest.fixture
def validated(cli: Call, tmp_path: Path, submission_file: Path, store: Store) -> str:
    """A leaderboard with a validation, and two ranked submissions."""
    folder = write_task(tmp_path / "echo", validation={"version": "v1", "script": "check.py"})
    (folder / "check.py").write_text("print()\n")
    assert cli("leaderboard", "create", folder).code == 0
    for number, user in enumerate(("ann", "bob"), 1):
        assert cli("submit", submission_file, "--leaderboard", "echo", "--user", user).code == 0
        while jobs := store.claim(host="h", slots={"CPU": 1}, lease_s=60).jobs:
            store.complete(jobs[0], ranked(jobs[0], number * 1e-6))
    return "echo"


def test_a_validation_is_ordered_and_its_result_is_shown_everywhere(cli: Call, validated: str, store: Store) -> None:
    """In the ranking, beside the submission, in JSON; a failed one with its reason."""
    ordered = cli("leaderboard", "validate", validated, "--gpu", "cpu", "--json")
    assert ordered.code == 0, ordered.err
    assert ordered.document == {"sweep_id": 1, "contract_version": "v1", "jobs": 2}
    assert "validation sweep 1 of echo, v1: 2 jobs" in ordered.err
    assert cli("leaderboard", "show", validated, "--json").document[0]["validation"] is None

    said = {"contract_version": "v1", "passed_shapes": 2, "total_shapes": 3, "fully_validated": False}
    report = {"validation": {**said, "geomean_sync_wall_speedup": 1.5, "result": {}}}
    outcomes: list[JobResult] = [result(report=report), result(Verdict.RUNTIME_ERROR)]
    for outcome in outcomes:
        (job,) = store.claim(host="h", slots={"CPU": 1}, lease_s=60).jobs
        assert job.mode is Mode.VALIDATION
        store.complete(job, outcome)
    page = cli("leaderboard", "show", validated).out
    assert all(said in page for said in ("2 of 3 shapes, 1.50x (v1, ", "failed (v1, "))
    assert "validated on CPU: 2 of 3 shapes, 1.50x (v1, " in cli("status", 1).out
    assert "because runtime_error" in cli("status", 2).out
    assert cli("leaderboard", "show", validated, "--json").document[0]["validation"]["passed_shapes"] == 2
    (line,) = cli("status", 1, "--json").document["validations"]
    assert (line["status"], line["geomean_sync_wall_speedup"]) == ("completed", 1.5)

    waited = cli("leaderboard", "validate", validated, "--gpu", "CPU", "--all-users", "--only-missing", "--wait")
    assert (waited.code, waited.out.strip()) == (0, "nothing was validated")

    assert cli("leaderboard", "validate", validated, "--gpu", "CPU").code == 0
    for count in ("2", "0"):
        assert cli("leaderboard", "cancel-validations", 3).out.strip() == count
    gone = cli("leaderboard", "cancel-validations", 99)
    assert (gone.code, "validation sweep 99 does not exist" in gone.err) == (2, True)


def test_a_final_is_ordered_followed_and_shown(cli: Call, validated: str, store: Store) -> None:
    """Its progress while it runs, its ranking first once it is over; it may be cancelled."""
    store.register_host(HostRecord(name="h", version="1", slots=[], gpu_types=("CPU",), instance="h"))
    refused = cli("leaderboard", "final", validated)
    assert (refused.code, "is open until" in refused.err) == (2, True)
    ordered = cli("leaderboard", "final", validated, "--open", "--rounds", 10)
    assert "final 1 of echo: 2 finalists on 1 hosts" in ordered.err
    assert "final 1 on CPU is running: round 1 of at most 10, 0 of at most 30 evaluations" in ordered.out
    assert cli("leaderboard", "final", validated, "--cancel").out.strip() == "1"
    assert cli("leaderboard", "final", validated, "--status", "--json").document["status"] == "cancelled"
    assert cli("leaderboard", "final", validated, "--open").code == 0
    while jobs := store.claim(host="h", slots={"CPU": 1}, lease_s=60).jobs:
        (job,) = jobs
        assert isinstance(job, FinalJob)
        # The second of the ranking is the faster one.
        store.complete(job, result(report={"score_s": 1e-3 / job.validates}))
    status = cli("leaderboard", "final", validated, "--status", "--json").document
    assert (status["status"], [place["user_id"] for place in status["places"]]) == ("completed", ["bob", "ann"])
    assert [pair["told_apart"] for pair in status["pairs"]] == [False, True]
    page = cli("leaderboard", "show", validated).out
    assert page.index("control: number 1 under another name is not told apart from itself") < page.index("echo on CPU")
    assert "1.00 ms to 1.00 ms" in page


def test_a_submission_cannot_ask_for_it(cli: Call, validated: str, submission_file: Path, store: BoardStore) -> None:
    """Neither by the command line nor by SQL."""
    asked = cli("submit", submission_file, "--leaderboard", validated, "--mode", "validation")
    assert (asked.code, "validation" in asked.err) == (2, True)
    with pytest.raises(SubmissionError, match="unknown mode 'validation'"):
        Bench(store=store, url="").submit(leaderboard=validated, mode="validation")
