"""The gateway over the real queue and real containers, as each generation of its clients meets it.

Twenty submissions of seven clients run first, all at the same time; then each rule of their contract is one check. The
clients of `clients.py` are as strict as their originals.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from tests.integration.extras.gateway.contract.clients import chip, log
from tests.integration.extras.gateway.contract.site import (
    POLLED,
    RIGHT,
    RUNS,
    STREAMED,
    VERSIONS,
    Site,
    file_of,
    site,
)

#: The first check waits for all submissions, on a loaded machine too.
pytestmark = pytest.mark.timeout(1800)
EVERY: Final = tuple(RUNS)
RANKED: Final = tuple(name for name, run in RUNS.items() if run.mode.lower() == "leaderboard" and run.passed)
SCORE: Final = r"0\.[0-9]+|[1-9][0-9]*(\.[0-9]+)?"


@pytest.fixture(scope="module")
def live(create_database: Callable[[str | None], str], migrated_template: str) -> Iterator[Site]:
    """One site for all checks."""
    with site(create_database(migrated_template)) as made:
        yield made


def rows_of(live: Site, name: str, *, secret: bool | None = None) -> list[dict[str, Any]]:
    """The rows that the owner of a submission sees."""
    return [run for run in live.details[name]["runs"] if secret is None or run["secret"] is secret]


# -- what every submission comes to ------------------------------------------------------------------------------------


def test_the_page_names_the_versions_that_are_played() -> None:
    """And claims no others."""
    page = (Path(__file__).parents[5] / "docs" / "gateway.md").read_text(encoding="utf-8")
    (said,) = re.findall(r"Tests play popcorn-cli ([\d., \n]+)", page)
    assert re.findall(r"\d+\.\d+\.\d+", said) == [name for name in VERSIONS if name != "next"]


@pytest.mark.parametrize("name", [name for name in EVERY if RUNS[name].client != "kernelboard"])
def test_the_client_ends_as_it_should(live: Site, name: str) -> None:
    """Exit code 0 for what was evaluated; 1 for a ranked submission that is wrong, and for one that timed out."""
    outcome = live.outcomes[name]
    assert outcome.exit_code == RUNS[name].exit_code, outcome.stderr


@pytest.mark.parametrize("name", EVERY)
def test_the_detail_has_the_shape_that_clients_read(live: Site, name: str) -> None:
    """Every key, and every type."""
    found = live.details[name]
    shapes: Mapping[str, Any] = {
        "id": int,
        "leaderboard_id": int,
        "leaderboard_name": str,
        "file_name": str,
        "user_id": str,
        "submission_time": str,
        "done": bool,
        "code": str,
        "runs": list,
        "job": dict,
        "runner_queue": (dict, type(None)),
    }
    assert set(found) == set(shapes)
    for key, kind in shapes.items():
        assert isinstance(found[key], kind), key
    assert found["done"] is True
    assert found["submission_time"].endswith("Z")
    assert set(found["job"]) == {"status", "error", "last_heartbeat"}
    assert found["job"]["status"] == RUNS[name].status
    assert found["file_name"] == file_of(name)
    assert found["code"] == RUNS[name].code.decode()


@pytest.mark.parametrize("name", EVERY)
def test_the_rows_say_what_passed(live: Site, name: str) -> None:
    """Public rows first; each of a GPU type that the client looks for; scores of ranked rows alone, as text."""
    runs = rows_of(live, name)
    assert [run["secret"] for run in runs] == sorted(run["secret"] for run in runs)
    assert {run["runner"] for run in runs} <= {"CPU"}
    for run in runs:
        assert {"start_time", "end_time", "mode", "secret", "runner", "score", "passed"} <= set(run)
        assert isinstance(run["passed"], bool)
        assert run["score"] is None or re.fullmatch(SCORE, run["score"])
        assert (run["score"] is not None) <= (run["mode"] == "leaderboard" and not run["secret"])
    public = [run["passed"] for run in runs if not run["secret"]]
    if RUNS[name].passed:
        assert public
        assert all(public)
    else:
        assert not all(public) or not public


@pytest.mark.parametrize("name", EVERY)
def test_secret_rows_have_a_verdict_and_nothing_else(live: Site, name: str) -> None:
    """No times of their own, no score, no output, no cases."""
    submitted = live.details[name]["submission_time"]
    secret = rows_of(live, name, secret=True)
    assert bool(secret) <= (RUNS[name].mode.lower() == "leaderboard")
    for run in secret:
        assert set(run) == {"start_time", "end_time", "mode", "secret", "runner", "score", "passed"}
        assert (run["score"], run["start_time"], run["end_time"]) == (None, submitted, submitted)


@pytest.mark.parametrize("name", [name for name in EVERY if RUNS[name].mode in ("test", "benchmark")])
def test_public_rows_explain_themselves(live: Site, name: str) -> None:
    """With the cases, and with what was printed; never a command of a host."""
    for run in rows_of(live, name, secret=False):
        assert {"result", "diagnostics"} <= set(run)
        assert "command" not in run["diagnostics"]
        if run["diagnostics"].get("exit_code") is not None:
            assert isinstance(run["diagnostics"]["exit_code"], int)
        if run["passed"]:
            kind = run["mode"]
            assert int(run["result"][f"{kind}-count"]) > 0
            assert run["result"][f"{kind}.0.spec"]


@pytest.mark.parametrize("name", RANKED)
def test_a_ranked_submission_has_what_newer_clients_look_for(live: Site, name: str) -> None:
    """A public row that passed with a score, a secret one that passed, and none that failed."""
    public = [run for run in rows_of(live, name, secret=False) if run["mode"] == "leaderboard"]
    secret = [run for run in rows_of(live, name, secret=True) if run["mode"] == "leaderboard"]
    assert [run["passed"] for run in public] == [True]
    assert float(public[0]["score"]) > 0
    assert [run["passed"] for run in secret] == [True]


@pytest.mark.parametrize("name", [name for name in EVERY if RUNS[name].status != "succeeded"])
def test_a_ranked_submission_that_does_not_rank_says_why(live: Site, name: str) -> None:
    """By the status of its job and a sentence, and the client prints both."""
    job = live.details[name]["job"]
    assert job["error"]
    assert f"Submission {live.number(name)} {job['status']}: {job['error']}" in live.outcomes[name].stderr


# -- popcorn-cli that polls --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", POLLED)
def test_a_polling_client_is_told_the_queue(live: Site, name: str) -> None:
    """The line that it prints while it waits."""
    line = live.outcomes[name].stderr.splitlines()[0]
    assert re.fullmatch(
        r"Submission \d+ accepted\. kernel-runner CPU queue: \d+ queued jobs\. Waiting for results\.\.\.", line
    )


@pytest.mark.parametrize("name", [name for name in POLLED if RUNS[name].exit_code == 0])
def test_a_polling_client_prints_a_report(live: Site, name: str) -> None:
    """JSON of the submission; for a ranked one a line with the score before it."""
    *scores, report = live.outcomes[name].stdout.splitlines()
    told = json.loads(report)
    assert set(told) == {"submission_id", "leaderboard", "file_name", "done", "runs"}
    assert (told["submission_id"], told["done"]) == (live.number(name), True)
    assert len(scores) == (1 if name in RANKED else 0)


# -- popcorn-cli that holds a stream -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STREAMED)
def test_a_stream_begins_with_a_status_and_ends_with_the_result(live: Site, name: str) -> None:
    """Each event is what old clients take apart."""
    events = live.outcomes[name].events
    assert [kind for kind, _ in events] == ["status"] * (len(events) - 1) + ["result"]
    assert events[0][1] == {"status": "processing", "elapsed_time": 0.0}
    last = events[-1][1]
    assert set(last) == {"status", "results", "reports"}
    assert last["status"] == "success"


@pytest.mark.parametrize("name", STREAMED)
def test_a_stream_is_cut_as_old_clients_cut_it(live: Site, name: str) -> None:
    """Line feeds alone, and ASCII: they decode piece by piece."""
    raw = live.outcomes[name].raw
    assert b"\r" not in raw
    assert raw.isascii()
    assert raw.endswith(b"\n\n")


@pytest.mark.parametrize("name", STREAMED)
def test_a_full_result_has_its_fields(live: Site, name: str) -> None:
    """Those of KernelBot's FullResult, with the types that clients read."""
    results = live.outcomes[name].events[-1][1]["results"]
    assert results
    for full in results:
        assert set(full) == {"success", "error", "system", "runs"}
        assert isinstance(full["error"], str)
        assert set(full["system"]) <= {"gpu", "device_count", "cpu", "runtime", "platform", "torch", "hostname"}
        assert full["system"]["hostname"] == ""
        for run in full["runs"].values():
            assert set(run) == {"start", "end", "compilation", "run", "profile"}
            assert not run["start"].endswith("Z")
            assert {"success", "passed", "command", "stdout", "stderr", "exit_code", "duration", "result"} == set(
                run["run"]
            )
            assert run["run"]["command"] == ""
            assert all(isinstance(value, str) for value in run["run"]["result"].values())


@pytest.mark.parametrize("name", [name for name in STREAMED if RUNS[name].mode != "profile"])
def test_a_stream_prints_a_report_for_people(live: Site, name: str) -> None:
    """A heading per GPU type, and a fenced log of the cases."""
    text = live.outcomes[name].stdout
    assert text.startswith(f"**CPU on kernel-runner {'✅ success' if RUNS[name].passed else '❌ failure'}**")
    assert text.count("```") >= 2


@pytest.mark.parametrize("name", [name for name in EVERY if RUNS[name].mode == "profile"])
def test_a_profile_comes_as_a_zip_file(live: Site, name: str) -> None:
    """With a trace in it, for new clients as for old ones."""
    profiles = live.outcomes[name].profiles
    assert profiles
    assert all(any(".trace.json" in file for file in files) for files in profiles.values())


# -- what is refused, in the words of each client ----------------------------------------------------------------------


ORDER: Final[Mapping[str, Any]] = {"board": "vectoradd", "gpu": "CPU", "mode": "test", "name": "x.py", "code": RIGHT}


# -- kernelboard -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in EVERY if RUNS[name].client == "kernelboard"])
def test_kernelboard_is_accepted(live: Site, name: str) -> None:
    """202 with the id that its page needs."""
    told = live.accepted[name]
    assert (told["http"], told["code"], told["message"]) == (202, 10202, "Accepted")
    assert told["data"]["details"]["id"] == live.number(name)
    assert isinstance(told["data"]["details"]["job_status_id"], int)


#: What its list of submissions reads, column by column.
LISTED: Final = """
SELECT s.id, s.leaderboard_id, s.file_name, s.submission_time, s.done, t.status, t.error, t.last_heartbeat,
       t.created_at, (SELECT jsonb_agg(jsonb_build_object(
                   'mode', r.mode, 'passed', r.passed, 'score', r.score, 'start_time', r.start_time,
                   'end_time', r.end_time, 'meta', coalesce(r.meta, '{}'), 'result', coalesce(r.result, '{}'),
                   'compilation', coalesce(r.compilation, '{}')) ORDER BY r.start_time)
        FROM leaderboard.runs r WHERE r.submission_id = s.id AND NOT r.secret) AS runs
FROM leaderboard.submission s LEFT JOIN leaderboard.submission_job_status t ON t.submission_id = s.id
WHERE s.id = %s
"""


@pytest.mark.parametrize("name", EVERY)
def test_kernelboard_reads_each_submission(live: Site, name: str) -> None:
    """A job status for each, and rows that break none of its pages."""
    (found,) = live.read(LISTED, live.number(name))
    assert found["done"] is True
    assert chip(found["status"]) == ("finished" if RUNS[name].status == "succeeded" else "error")
    for run in found["runs"] or []:
        assert isinstance(run["result"], dict)
        assert isinstance(run["compilation"], dict)
        told = log(run)
        assert (told is not None) <= run["passed"]
        if run["passed"] and run["mode"] in ("test", "benchmark", "leaderboard"):
            assert told


# -- lists, rankings, deletion -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", VERSIONS)
def test_every_client_lists_leaderboards_and_gpus(live: Site, client: str) -> None:
    """All of them, closed and ended too; no board breaks the list."""
    popcorn = live.popcorn(client)
    assert [name for name, _ in popcorn.boards()] == ["vectoradd", "short", "Capitals", "closed", "over"]
    assert popcorn.gpus("vectoradd") == ["CPU"]
    assert popcorn.gpus("capitals") == ["CPU"]


@pytest.mark.parametrize("client", ["1.1.4", "1.3.23", "next"])
def test_a_client_lists_its_submissions(live: Site, client: str) -> None:
    """The newest first; scores only where the secret run has passed."""
    lines = live.popcorn(client).listed("vectoradd")
    mine = [name for name in EVERY if RUNS[name].client == client and RUNS[name].board == "vectoradd"]
    assert sorted(line["id"] for line in lines) == sorted(live.number(name) for name in mine)
    times = [line["submission_time"] for line in lines]
    assert times == sorted(times, reverse=True)
    by_id = {line["id"]: line for line in lines}
    for name in mine:
        scores = [run["score"] for run in by_id[live.number(name)]["runs"] if run["score"] is not None]
        assert len(scores) == (1 if name in RANKED else 0)


def test_the_database_has_no_row_that_breaks_kernelboard(live: Site) -> None:
    """No JSON null where SQL's is meant, a GPU type for each board, a job status for each submission."""
    nulls = "SELECT id FROM leaderboard.runs WHERE 'null' IN (jsonb_typeof(result), jsonb_typeof(compilation))"
    without = "SELECT id FROM leaderboard.{0} x WHERE NOT EXISTS (SELECT FROM leaderboard.{1} y WHERE y.{0}_id = x.id)"
    assert live.rows(nulls) == []
    assert live.rows(without.format("leaderboard", "gpu_type")) == []
    assert live.rows(without.format("submission", "submission_job_status")) == []
