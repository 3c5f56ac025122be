"""The steps that ask a model, against an endpoint that fails in every way the protocol knows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from runner.cli import main

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Service:
    """An endpoint and its log."""

    url: str
    log: Path

    def asked(self) -> Counter[str]:
        """Requests by what became of them."""
        return Counter(line.split()[1] for line in self.log.read_text().splitlines())

    def names(self) -> Counter[str]:
        """Requests by their question."""
        return Counter(line.split()[0] for line in self.log.read_text().splitlines())


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """An endpoint."""
    log = tmp_path / "endpoint.log"
    log.touch()
    with subprocess.Popen(
        [sys.executable, "-m", "tests.integration.kernelbook.endpoint", str(log)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield Service(url=f"http://127.0.0.1:{process.stdout.readline().strip()}/v1", log=log)
        process.kill()


def rows(folder: Path, behaviours: Sequence[str], *, reward: float = 1.0) -> Path:
    """Evaluation rows whose questions make the endpoint behave so."""
    file = folder / "evals.jsonl"
    with file.open("w", encoding="utf-8") as lines:
        for number, behaviour in enumerate(behaviours):
            row = {
                "example_id": number,
                "prompt": [{"role": "user", "content": f"task {number} BEHAVE:{behaviour}"}],
                "completion": [{"role": "assistant", "content": f"solution {number} — ü", "reasoning": "long"}],
                "reward": reward + number / 1000,
                "info": {"module_name": f"Module{number % 7}", "python_code": f"x = {number}"},
            }
            lines.write(json.dumps(row, ensure_ascii=False) + "\n")
    return file


def command(service: Service, *arguments: str, **variables: str) -> tuple[list[str], dict[str, str]]:
    """A command of the pipeline."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PRIME", "HF_", "TEST_MODE"))}
    environment = {
        **kept,
        "PYTHONPATH": str(ROOT),
        "PRIME_BASE_URL": service.url,
        "PRIME_API_KEY": "a key",
        "PRIME_TEAM_ID": "a team",
        **variables,
    }
    return [sys.executable, "-m", "runner.cli", "kernelbook", *arguments], environment


def run(service: Service, folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    call, environment = command(service, *arguments, **variables)
    return subprocess.run(call, env=environment, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


def test_every_way_to_fail_is_tried_again_or_kept_aside(service: Service, tmp_path: Path) -> None:
    """Good rows in the order of the input; failures with their reasons in the side file; nothing is lost."""
    behaviours = ["ok", "429,ok", "500,500,ok", "cut,ok", "null,ok", "malformed,ok", "upper", "malformed", "400", "500"]
    file = rows(tmp_path, behaviours)
    done = run(service, tmp_path, "filter", "--input", str(file), "--json")
    assert done.returncode == 1, done.stderr
    (report,) = json.loads(done.stdout)
    written = [json.loads(line) for line in (tmp_path / "outputs/filtered_dataset.jsonl").read_text().splitlines()]
    assert [row["example_id"] for row in written] == [0, 1, 2, 3, 4, 5, 6]
    assert {row["difficulty"] for row in written} <= {"low", "medium", "high"}
    assert written[6]["difficulty"] == "high"
    assert written[6]["evaluation_raw"] == "<Difficulty> HIGH </Difficulty>"
    original = [json.loads(line) for line in file.read_text().splitlines()]
    assert [{name: row[name] for name in original[0]} for row in written] == original[:7]
    failures = (tmp_path / "outputs/filtered_dataset.failures.jsonl").read_text().splitlines()
    assert [(json.loads(line)["row"]["example_id"], json.loads(line)["why"][:8]) for line in failures] == [
        (7, "the answ"),
        (8, "HTTP 400"),
        (9, "HTTP 500"),
    ]
    assert report["rows_in"] == 10
    assert report["rows_out"] == 7
    assert sum(report["failed"].values()) == 3
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
    assert len((tmp_path / "outputs/filtered_dataset.jsonl").read_text().splitlines()) == 3
    assert not (tmp_path / "outputs/filtered_dataset.failures.jsonl").exists()


def test_a_killed_step_goes_on_where_it_was(service: Service, tmp_path: Path) -> None:
    """SIGKILL in the middle, three times: the output is that of an undisturbed run, and no kept answer is asked for."""
    undisturbed = tmp_path / "undisturbed"
    undisturbed.mkdir()
    file = rows(tmp_path, ["ok"] * 300)
    assert run(service, undisturbed, "filter", "--input", str(file)).returncode == 0
    service.log.write_text("")
    journal = tmp_path / "outputs" / "journal.sqlite"
    for wanted in (30, 100, 200):
        call, environment = command(service, "filter", "--input", str(file), BATCH_SIZE="8")
        with subprocess.Popen(call, env=environment, cwd=tmp_path, stderr=subprocess.DEVNULL) as process:
            while process.poll() is None and service.names().total() < wanted:
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
        assert not (tmp_path / "outputs/filtered_dataset.jsonl").exists()
        kept = _kept(journal)
        asked = service.names()
        # What was on its way when the process was killed may be asked again, and nothing else.
        assert asked.total() - kept <= 8 * (1 + (wanted > 30) + (wanted > 100))
    assert run(service, tmp_path, "filter", "--input", str(file), BATCH_SIZE="8").returncode == 0
    assert (tmp_path / "outputs/filtered_dataset.jsonl").read_bytes() == (
        undisturbed / "outputs/filtered_dataset.jsonl"
    ).read_bytes()
    assert service.names().total() <= 300 + 3 * 8


def test_a_service_that_wants_no_more_ends_the_step(service: Service, tmp_path: Path) -> None:
    """402 ends it at once with exit code 3, and what was answered before is kept."""
    file = rows(tmp_path, ["ok"] * 20 + ["402"] + ["ok"] * 200)
    done = run(service, tmp_path, "filter", "--input", str(file), BATCH_SIZE="2")
    assert done.returncode == 3
    assert "HTTP 402" in done.stderr
    assert "journal" in done.stderr
    assert _kept(tmp_path / "outputs" / "journal.sqlite") >= 19
    assert service.names().total() < 40


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
    monkeypatch.chdir(tmp_path)
    for name in ("HF_TOKEN", "DATASET_PATH", "UNIQUE_DATASET_PATH", "TEST_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PRIME_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("PRIME_API_KEY", "a key")


@pytest.mark.parametrize(
    ("arguments", "case"),
    [
        (("filter", "--input", "nowhere.jsonl"), ({}, "there is no data set nowhere.jsonl")),
        (("filter", "--input", "evals.jsonl"), ({"PRIME_API_KEY": ""}, "no API key: set PRIME_API_KEY")),
        (("filter", "--input", "evals.jsonl", "--shard", "3/3"), ({}, "a shard is i/n")),
        (("filter", "--input", "evals.jsonl"), ({"BATCH_SIZE": "many"}, "BATCH_SIZE is 'many', expected a number")),
        (("best",), ({}, "there is no outputs/filtered_dataset.jsonl; run the step that writes it first")),
        (("lengths",), ({}, "no data set: give --input, or set DATASET_PATH")),
        (("upload", "unique"), ({}, "no rows for unique: set UNIQUE_DATASET_PATH")),
        (("upload", "unique"), ({"UNIQUE_DATASET_PATH": "evals.jsonl"}, "no token for the hub: set HF_TOKEN")),
        (("upload", "all", "--repository", "a/b"), ({}, "--repository names one data set")),
        (("all", "nowhere.toml"), ({}, "cannot read nowhere.toml")),
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


def test_test_mode_takes_five_rows_and_a_dry_run_none(service: Service, tmp_path: Path) -> None:
    """TEST_MODE as the published scripts have it, also from .env; shards share the rows."""
    file = rows(tmp_path, ["ok"] * 30)
    dry = run(service, tmp_path, "filter", "--input", str(file), "--dry-run")
    assert dry.returncode == 0
    assert "would ask: 30" in dry.stderr
    assert service.names().total() == 0
    (tmp_path / ".env").write_text("TEST_MODE=true\n")
    assert run(service, tmp_path, "filter", "--input", str(file)).returncode == 0
    assert len((tmp_path / "outputs/filtered_dataset.jsonl").read_text().splitlines()) == 5
    (tmp_path / ".env").unlink()
    for shard in range(3):
        assert run(service, tmp_path, "filter", "--input", str(file), "--shard", f"{shard}/3").returncode == 0
    parts = sorted((tmp_path / "outputs").glob("filtered_dataset-0000*.jsonl"))
    found = sorted(json.loads(line)["example_id"] for part in parts for line in part.read_text().splitlines())
    assert found == list(range(30))


def test_prompts_hold_no_code(service: Service, tmp_path: Path) -> None:
    """Step 2: name from entry_point, columns as published."""
    file = tmp_path / "book.jsonl"
    book = [
        {"entry_point": f"Net{n}", "module_name": "other", "python_code": f"class Net{n}: pass", "uuid": n}
        for n in range(9)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in book))
    done = run(service, tmp_path, "prompts", "--input", str(file))
    assert done.returncode == 0, done.stderr
    made = [json.loads(line) for line in (tmp_path / "outputs/synthetic_prompts.jsonl").read_text().splitlines()]
    assert [row["module_name"] for row in made] == [row["entry_point"] for row in book]
    assert [list(row)[:3] for row in made] == [["prompt", "module_name", "python_code"]] * 9
    assert all(row["prompt"].startswith("Compute what") for row in made)


def test_the_whole_pipeline(service: Service, tmp_path: Path) -> None:
    """All steps from a file; a second run does nothing again; a changed parameter does what depends on it."""
    file = rows(tmp_path, ["ok"] * 40)
    book = tmp_path / "book.jsonl"
    book.write_text("".join(json.dumps({"entry_point": f"Net{n}", "python_code": f"x = {n}"}) + "\n" for n in range(9)))
    (tmp_path / "pipeline.toml").write_text(
        f"evaluations = '{file}'\nmodules = '{book}'\nto = 'sets'\nsteps = ['filter', 'prompts', 'best', 'upload']\n"
        "price_in = 2.0\nprice_out = 8.0\n"
    )
    done = run(service, tmp_path, "all", "pipeline.toml", "--json")
    assert done.returncode == 0, done.stderr
    assert [report["rows_out"] for report in json.loads(done.stdout)] == [40, 9, 7, 40 + 7 + 9]
    kept = json.loads((tmp_path / "outputs" / "report.json").read_text())
    assert kept["filter"]["cost"] == pytest.approx(40 * (100 * 2 + 10 * 8) / 1e6)
    assert sorted(path.name for path in (tmp_path / "sets").iterdir()) == ["filtered", "synthetic", "unique"]
    asked = service.names().total()
    done = run(service, tmp_path, "all", "pipeline.toml", "--json")
    assert [report["found"] for report in json.loads(done.stdout)] == [{"done before": "skipped"}] * 4
    with (tmp_path / "pipeline.toml").open("a") as more:
        more.write("threshold = 1.02\n")
    done = run(service, tmp_path, "all", "pipeline.toml", "--json")
    assert [report["rows_out"] for report in json.loads(done.stdout)][:3] == [19, 9, 7]
    assert service.names().total() == asked


def _kept(journal: Path) -> int:
    import sqlite3

    with sqlite3.connect(journal) as database:
        return int(database.execute("SELECT count(*) FROM answer").fetchone()[0])
