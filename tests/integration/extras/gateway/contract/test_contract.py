"""The gateway over the real queue and real containers, as each generation of its clients meets it.

Submissions of three clients run first, all at the same time; then each rule of their contract is one check. The clients
of `clients.py` are as strict as their originals.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pytest

from tests.integration.extras.gateway.contract.clients import log
from tests.integration.extras.gateway.contract.site import CAPTURE, RUNS, STREAMED, Site, site
from tests.integration.extras.gateway.test_kernelboard import LISTED

#: The first check waits for all submissions, on a loaded machine too.
pytestmark = pytest.mark.timeout(1800)
EVERY: Final = tuple(RUNS)
SCORE: Final = r"0\.[0-9]+|[1-9][0-9]*(\.[0-9]+)?"


@pytest.fixture(scope="module")
def live(create_database: Callable[[str | None], str], migrated_template: str) -> Iterator[Site]:
    """One site for all checks."""
    with site(create_database(migrated_template)) as made:
        yield made


@pytest.mark.parametrize("name", EVERY)
def test_the_client_ends_as_it_should(live: Site, name: str) -> None:
    """Exit code 0 for what was evaluated; 1 for a ranked submission that is wrong, and says why."""
    outcome, detail = live.outcomes[name], live.details[name]
    assert outcome.exit_code == RUNS[name].exit_code, outcome.stderr
    if RUNS[name].status != "succeeded":
        job = detail["job"]
        assert job["error"]
        assert f"Submission {detail['id']} {job['status']}: {job['error']}" in outcome.stderr


@pytest.mark.parametrize("name", EVERY)
def test_the_detail_has_the_shape_that_clients_read(live: Site, name: str) -> None:
    """Every key, and every type."""
    found = live.details[name]
    texts = ("leaderboard_name", "file_name", "user_id", "submission_time", "code")
    shapes: Mapping[str, Any] = {
        **dict.fromkeys(("id", "leaderboard_id"), int), **dict.fromkeys(texts, str), "done": bool,
        "runs": list, "job": dict, "runner_queue": (dict, type(None)),
    }  # fmt: skip
    assert set(found) == set(shapes)
    for key, kind in shapes.items():
        assert isinstance(found[key], kind), key
    assert found["submission_time"].endswith("Z")
    assert set(found["job"]) == {"status", "error", "last_heartbeat"}
    ended = (True, RUNS[name].status, RUNS[name].code.decode())
    assert (found["done"], found["job"]["status"], found["code"]) == ended


@pytest.mark.parametrize("name", EVERY)
def test_the_rows_say_what_passed(live: Site, name: str) -> None:
    """Public rows first; each of a GPU type that the client looks for; scores of ranked rows alone, as text."""
    runs = live.details[name]["runs"]
    assert [run["secret"] for run in runs] == sorted(run["secret"] for run in runs)
    assert {run["runner"] for run in runs} <= {RUNS[name].gpu.upper()}
    for run in runs:
        assert {"start_time", "end_time", "mode", "secret", "runner", "score", "passed"} <= set(run)
        assert isinstance(run["passed"], bool)
        assert run["score"] is None or re.fullmatch(SCORE, run["score"])
        assert (run["score"] is not None) <= (run["mode"] == "leaderboard" and not run["secret"])
    public = [run["passed"] for run in runs if not run["secret"]]
    assert (bool(public) and all(public)) is RUNS[name].passed


@pytest.mark.parametrize("name", STREAMED)
def test_a_full_result_has_its_fields(live: Site, name: str) -> None:
    """Those of KernelBot's FullResult, with the types that clients read; a profile has a zip file with a trace."""
    profiled = RUNS[name].mode == "profile"
    for full in live.outcomes[name].events[-1][1]["results"]:
        assert set(full) == {"success", "error", "system", "runs", *(["profile_metadata"] if profiled else [])}
        assert isinstance(full["error"], str)
        assert set(full["system"]) <= {"gpu", "device_count", "cpu", "runtime", "platform", "torch", "hostname"}
        assert full["system"]["hostname"] == ""
        for run in full["runs"].values():
            assert set(run) == {"start", "end", "compilation", "run", "profile"}
            assert not run["start"].endswith("Z")
            assert " ".join(sorted(run["run"])) == "command duration exit_code passed result stderr stdout success"
            assert run["run"]["command"] == ""
            assert all(isinstance(value, str) for value in run["run"]["result"].values())
    profiles = live.outcomes[name].profiles
    assert bool(profiles) is profiled
    assert all(any(".trace.json" in file for file in files) for files in profiles.values())


def test_a_capture_comes_with_report_text_and_csv(live: Site) -> None:
    """Of the one benchmark that was asked for, under the options of the form; and a word on what it was made of."""
    outcome = live.outcomes["strict_profile"]
    ((file, content),) = outcome.profiles.items()
    assert file == "profile_profile.1_run0.zip"
    report = json.loads(content["profile.ncu-rep"])
    assert report == {"kernels": ["void reduce<float>(float *)"], "kernel": "regex:^void reduce", "base": "demangled"}
    assert content["ncu-details.txt"].startswith(b"  void reduce<float>")
    assert content["ncu-details.csv"].startswith(b'"ID","Kernel Name"')
    assert b'"void reduce<float>(float *)"' in content["ncu-details.csv"]
    (told,) = outcome.metadata
    assert told["benchmarks"] == {"1": "seed: 3624; size: 2048"}
    kernel = {"kernel": CAPTURE["ncu_kernel_name"], "kernel_base": "demangled"}
    assert told["options"] == {"benchmark": 1, "launches": 3, **kernel}
    assert told["source_sha256"] == hashlib.sha256(RUNS["strict_profile"].code).hexdigest()
    assert re.fullmatch("[0-9a-f]{64}", told["config_sha256"])
    assert told["device"]
    assert all(told["versions"].values())
    (row,) = live.details["strict_profile"]["runs"]
    assert row["mode"] == "profile.1"


@pytest.mark.parametrize("name", EVERY)
def test_kernelboard_reads_each_submission(live: Site, name: str) -> None:
    """A job status for each, and rows that break none of its pages."""
    (found,) = live.read(LISTED, live.details[name]["id"])
    assert (found["done"], found["status"]) == (True, RUNS[name].status)
    for run in found["runs"] or []:
        assert (type(run["result"]), type(run["compilation"])) == (dict, dict)
        told = log(run)
        assert (told is not None) <= run["passed"]
        if run["passed"] and run["mode"] in ("test", "benchmark", "leaderboard"):
            assert told


def test_the_database_has_no_row_that_breaks_kernelboard(live: Site) -> None:
    """No JSON null where SQL's is meant, a GPU type for each board, a job status for each submission."""
    nulls = "SELECT id FROM leaderboard.runs WHERE 'null' IN (jsonb_typeof(result), jsonb_typeof(compilation))"
    without = "SELECT id FROM leaderboard.{0} x WHERE NOT EXISTS (SELECT FROM leaderboard.{1} y WHERE y.{0}_id = x.id)"
    assert live.rows(nulls) == []
    assert live.rows(without.format("leaderboard", "gpu_type")) == []
    assert live.rows(without.format("submission", "submission_job_status")) == []
