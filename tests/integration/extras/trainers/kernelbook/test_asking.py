"""The steps that ask a model, against an endpoint that fails in every way the protocol knows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from runner.cli import main
from tests.fakes.tokenizer import words
from tests.integration.extras.trainers.kernelbook.service import Service, environment, kept, lines, modules, rows, run

FILTERED = "outputs/filtered_dataset.jsonl"


def test_every_way_to_fail_is_tried_again_or_kept_aside(service: Service, tmp_path: Path) -> None:
    """Good rows in the order of the input; failures with their reasons in the side file; nothing is lost."""
    behaviours = ["ok", "429,ok", "500,500,ok", "cut,ok", "null,ok", "malformed,ok", "upper", "malformed", "400", "500"]
    file = rows(tmp_path, behaviours)
    done = run(service, tmp_path, "filter", "--input", str(file), "--json")
    assert done.returncode == 1, done.stderr
    (report,) = json.loads(done.stdout)
    written, original = lines(tmp_path / FILTERED), lines(file)
    assert {row["difficulty"] for row in written} <= {"low", "medium", "high"}
    told = (written[6]["difficulty"], written[6]["evaluation_raw"])
    assert told == ("high", "<Difficulty> HIGH </Difficulty>")
    assert [{name: row[name] for name in original[0]} for row in written] == original[:7]
    failures = lines(tmp_path / "outputs/filtered_dataset.failures.jsonl")
    reasons = [(7, "the answ"), (8, "HTTP 400"), (9, "HTTP 500")]
    assert [(failure["row"]["example_id"], failure["why"][:8]) for failure in failures] == reasons
    assert (report["rows_in"], report["rows_out"], sum(report["failed"].values())) == (10, 7, 3)
    # A bad request is not repeated; everything else has three tries.
    assert service.asked()["400"] == 1
    assert report["account"]["tokens_in"] > 0


def test_a_rerun_asks_only_what_the_service_failed(service: Service, tmp_path: Path) -> None:
    """Answers, good and malformed, stay; what the service failed is asked again; --again asks for the malformed too."""
    file = rows(tmp_path, ["ok", "500,500,500,ok", "malformed,malformed,malformed,ok"])
    assert run(service, tmp_path, "filter", "--input", str(file)).returncode == 1
    before = service.names().total()
    assert run(service, tmp_path, "filter", "--input", str(file)).returncode == 1
    assert service.names().total() == before + 1
    done = run(service, tmp_path, "filter", "--input", str(file), "--again")
    assert done.returncode == 0, done.stderr
    assert service.names().total() == before + 2
    assert len(lines(tmp_path / FILTERED)) == 3
    assert not (tmp_path / "outputs/filtered_dataset.failures.jsonl").exists()


def test_a_service_that_wants_no_more_ends_the_step(service: Service, tmp_path: Path) -> None:
    """It ends at once with exit code 3, and what was answered before is kept."""
    file = rows(tmp_path, ["ok"] * 20 + ["402"] + ["ok"] * 200)
    done = run(service, tmp_path, "filter", "--input", str(file), BATCH_SIZE="2")
    assert (done.returncode, "HTTP 402" in done.stderr, "journal" in done.stderr) == (3, True, True)
    assert len(kept(tmp_path / "outputs" / "journal.sqlite")) >= 19
    assert service.names().total() < 40


def test_a_row_that_cannot_be_read_ends_the_step(service: Service, tmp_path: Path) -> None:
    """With its line, and exit code 2; what was answered before is kept."""
    file = rows(tmp_path, ["ok"] * 30)
    file.write_text(file.read_text() + "{\n")
    done = run(service, tmp_path, "filter", "--input", str(file), BATCH_SIZE="2")
    assert done.returncode == 2
    assert "evals.jsonl, line 31: expected a JSON object" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert len(kept(tmp_path / "outputs" / "journal.sqlite")) >= 28


def test_lengths_are_shown(service: Service, tmp_path: Path) -> None:
    """A histogram in the terminal; DATASET_PATH and MODEL_NAME from .env; failed rows set the exit code."""
    file = rows(tmp_path, ["ok"] * 20)
    file.write_text(file.read_text() + '{"prompt": "a"}\n')
    (tmp_path / ".env").write_text(f"DATASET_PATH={file}\nMODEL_NAME={words(tmp_path)}\n")
    done = run(service, tmp_path, "lengths")
    assert done.returncode == 1, done.stderr
    assert "failed: 1 (ValueError: the row has no completion)" in done.stderr
    assert f"   to 1024       20 {'#' * 40}\n" in done.stdout
    assert "sequence length for 99.5 %: 1024\n" in done.stdout


def test_a_service_that_is_not_there_ends_the_step(tmp_path: Path) -> None:
    """Many failures in a row: exit code 3 with the address."""
    file = rows(tmp_path, ["ok"] * 40)
    nowhere = Service(url="http://127.0.0.1:9/v1", log=file)
    done = run(nowhere, tmp_path, "filter", "--input", str(file), BATCH_SIZE="4", MAX_RETRIES="2")
    assert done.returncode == 3, done.stderr
    assert "127.0.0.1:9" in done.stderr


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a row and no variables, in which commands run."""
    rows(tmp_path, ["ok"])
    (tmp_path / "latin.jsonl").write_bytes(b'{"a": "\xe9"}\n')
    monkeypatch.chdir(tmp_path)
    for name in ("HF_TOKEN", "PRIME_TEAM_ID", "DATASET_PATH", "UNIQUE_DATASET_PATH", "TEST_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PRIME_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("PRIME_API_KEY", "a key")


@pytest.mark.parametrize(
    ("arguments", "case"),
    [
        (("filter", "--input", "nowhere.jsonl"), ({}, "there is no data set nowhere.jsonl")),
        (("filter", "--input", "evals.jsonl"), ({"PRIME_API_KEY": ""}, "no API key: set PRIME_API_KEY")),
        (("filter", "--input", "evals.jsonl"), ({"BATCH_SIZE": "many"}, "BATCH_SIZE is 'many', expected a number")),
        (("filter", "--input", "evals.jsonl", "--threshold", "nan"), ({}, "--threshold is nan, expected a number")),
        (("filter", "--input", "evals.jsonl", "--output", "."), ({}, "is a directory")),
        (("filter", "--input", "latin.jsonl"), ({}, "latin.jsonl is no JSONL file: it has bytes that are no UTF-8")),
        (("filter", "--input", "evals.jsonl"), ({"PRIME_API_KEY": "é"}, "PRIME_API_KEY has characters that are no")),
        (("filter", "--input", "evals.jsonl"), ({"PRIME_BASE_URL": "foo"}, "PRIME_BASE_URL is 'foo', expected http")),
        (("best",), ({}, "there is no outputs/filtered_dataset.jsonl; run the step that writes it first")),
        (("lengths",), ({}, "no data set: give --input, or set DATASET_PATH")),
        (("upload", "unique"), ({}, "no rows for unique: set UNIQUE_DATASET_PATH")),
        (("upload", "unique"), ({"UNIQUE_DATASET_PATH": "evals.jsonl"}, "no token for the hub: set HF_TOKEN")),
        (("upload", "all", "--repository", "a/b"), ({}, "--repository names one data set")),
    ],
)
@pytest.mark.usefixtures("alone")
def test_what_is_missing_is_said_in_a_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    case: tuple[dict[str, str], str],
) -> None:
    """Exit code 2, nothing written."""
    variables, said = case
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert main(["kernelbook", *arguments]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "outputs" / "filtered_dataset.jsonl").exists()


@pytest.mark.usefixtures("alone")
def test_who_has_no_login_name_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Such as a user of a container that no file names; the variable that helps is named."""
    monkeypatch.setattr("getpass.getuser", Mock(side_effect=KeyError("uid not found: 1234")))
    monkeypatch.setenv("KERNEL_RUNNER_DATABASE_URL", "postgresql://nobody@127.0.0.1:9/none")
    assert main(["kernelbook", "score", "--gpu", "CPU", "--input", "evals.jsonl"]) == 2
    assert "this process has no login name; set LOGNAME" in " ".join(capsys.readouterr().err.split())


def test_test_mode_takes_five_rows_and_a_dry_run_none(service: Service, tmp_path: Path) -> None:
    """TEST_MODE as the published scripts have it, also from .env."""
    file = rows(tmp_path, ["ok"] * 30)
    dry = run(service, tmp_path, "filter", "--input", str(file), "--dry-run")
    assert dry.returncode == 0
    assert "would ask: 30" in dry.stderr
    assert service.names().total() == 0
    assert not (tmp_path / "outputs").exists()
    (tmp_path / ".env").write_text("TEST_MODE=true\n")
    assert run(service, tmp_path, "filter", "--input", str(file)).returncode == 0
    assert len(lines(tmp_path / FILTERED)) == 5
    # The same under the published name.
    (tmp_path / FILTERED).unlink()
    assert run(service, tmp_path, "scripts", ".").returncode == 0
    script = [sys.executable, "scripts/filter_and_enrich_by_difficulty.py", "--input", str(file)]
    subprocess.run(script, env=environment(service), cwd=tmp_path, check=True, capture_output=True)
    assert len(lines(tmp_path / FILTERED)) == 5


def test_the_steps_one_after_the_other(service: Service, tmp_path: Path) -> None:
    """Each reads what the one before wrote; another threshold asks nothing anew."""
    file, book = rows(tmp_path, ["ok"] * 40), modules(tmp_path, 9)
    outputs = {
        "FILTERED_DATASET_PATH": "outputs/filtered_dataset.jsonl",
        "UNIQUE_DATASET_PATH": "outputs/filtered_dataset-filtered.jsonl",
        "SYNTHETIC_DATASET_PATH": "outputs/synthetic_prompts.jsonl",
    }

    def reports(*arguments: str) -> list[dict[str, Any]]:
        done = run(service, tmp_path, *arguments, "--json", **outputs)
        assert done.returncode == 0, done.stderr
        return list(json.loads(done.stdout))

    for threshold, kept_rows in (("0.85", 40), ("1.02", 19)):
        (rated,) = reports("filter", "--input", str(file), "--threshold", threshold)
        prompts, unique = reports("prompts", "--input", str(book)), reports("best")
        made = [rated, *prompts, *unique, *reports("upload", "all", "--to", "s")]
        assert [report["rows_out"] for report in made] == [kept_rows, 9, 7, kept_rows, 7, 9]
        assert service.names().total() == 40 + 9
    specified = lines(tmp_path / outputs["SYNTHETIC_DATASET_PATH"])
    assert [row["module_name"] for row in specified] == [row["entry_point"] for row in lines(book)]
    assert [list(row)[:3] for row in specified] == [["prompt", "module_name", "python_code"]] * 9
    assert all(row["prompt"].startswith("Compute what") for row in specified)
    assert rated["account"]["asked"] == 0
    assert sum(rated["dropped"].values()) == 21
    assert sorted(path.name for path in (tmp_path / "s").iterdir()) == ["filtered", "synthetic", "unique"]
