"""Rows from a hub over HTTP, and data sets to it, with the hub's own library."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.fakes import hub as fake
from tests.integration.extras.trainers.kernelbook.service import Service, lines, rows, run

EVALUATIONS = "siro1/kernelbook-glm4_7-evals"
UNIQUE = "siro1/kernelbook-glm4_7-evals-unique"
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(name="hub")
def _hub() -> Iterator[fake.Hub]:
    """A hub that answers HTTP."""
    with fake.hub() as found:
        yield found


@pytest.fixture
def given(hub: fake.Hub, tmp_path: Path) -> dict[str, str]:
    """The variables of a command that talks to it."""
    # The stand-in takes large files over HTTP, not by the library's own protocol.
    return {
        "HF_ENDPOINT": hub.endpoint,
        "HF_TOKEN": fake.TOKEN,
        "HF_HOME": str(tmp_path / "home"),
        "HF_HUB_DISABLE_XET": "1",
    }


def published(hub: fake.Hub, name: str, made: Sequence[Mapping[str, Any]], commit: str = "a" * 40) -> None:
    """Rows at the hub."""
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(list(made)), file)
    found = hub.repositories.setdefault(name, fake.Repository(private=False))
    found.files["data/train-00000-of-00001.parquet"] = file.getvalue()
    found.large.add("data/train-00000-of-00001.parquet")
    found.files["README.md"] = b"a card"
    found.commits.append(commit)


def test_rows_come_from_the_hub_and_sets_go_to_it(
    service: Service, tmp_path: Path, hub: fake.Hub, given: dict[str, str]
) -> None:
    """By the published names; the card names the commit that the rows came from."""
    published(hub, EVALUATIONS, lines(rows(tmp_path, ["ok"] * 30)))
    published(hub, "GPUMODE/KernelBook", [{"entry_point": "Net", "python_code": "x = 1", "licenses": ["MIT"]}])
    given["FILTERED_DATASET_PATH"] = "outputs/filtered_dataset.jsonl"
    given["SYNTHETIC_DATASET_PATH"] = "outputs/synthetic_prompts.jsonl"

    def steps() -> None:
        for step in (("filter", "--threshold", "1.004"), ("prompts",), ("upload", "filtered"), ("upload", "synthetic")):
            done = run(service, tmp_path, *step, **given)
            assert done.returncode == 0, done.stderr

    steps()
    first = lines(tmp_path / "outputs/filtered_dataset.jsonl")
    assert [row["example_id"] for row in first] == list(range(5, 30))
    filtered = hub.repositories[f"{EVALUATIONS}-filtered"].files
    parts = [pq.read_table(io.BytesIO(data)) for name, data in filtered.items() if name.endswith(".parquet")]
    assert sorted(part.num_rows for part in parts) == [3, 22]
    card = filtered["README.md"].decode()
    for line in (f"source: {EVALUATIONS}@{'a' * 40}", "threshold: 1.004", "model of filter: openai/gpt-5.2"):
        assert f"- {line}\n" in card
    card = hub.repositories["siro1/kernelbook-synthetic-tasks"].files["README.md"].decode()
    assert "- licences of the modules, as their rows say: MIT (1)\n" in card
    # Nothing is asked again.
    asked = service.names().total()
    steps()
    assert service.names().total() == asked
    # A new commit at the hub is other rows.
    published(hub, EVALUATIONS, lines(rows(tmp_path, ["ok"] * 33)), commit="b" * 40)
    steps()
    assert service.names().total() == asked + 3
    assert f"{EVALUATIONS}@{'b' * 40}" in hub.repositories[f"{EVALUATIONS}-filtered"].files["README.md"].decode()


def test_what_was_fetched_before_serves_when_the_hub_does_not_answer(
    service: Service, tmp_path: Path, hub: fake.Hub, given: dict[str, str]
) -> None:
    """Else a sentence says so, with exit code 3; a name that the hub does not know is the caller's mistake."""
    published(hub, EVALUATIONS, lines(rows(tmp_path, ["ok"] * 3)))
    assert run(service, tmp_path, "filter", **given).returncode == 0
    before = (tmp_path / "outputs/filtered_dataset.jsonl").read_bytes()
    assert run(service, tmp_path, "filter", **{**given, "HF_ENDPOINT": NOWHERE}).returncode == 0
    assert (tmp_path / "outputs/filtered_dataset.jsonl").read_bytes() == before
    done = run(service, tmp_path, "prompts", **{**given, "HF_ENDPOINT": NOWHERE})
    assert done.returncode == 3
    assert "cannot fetch GPUMODE/KernelBook from the hub" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    done = run(service, tmp_path, "prompts", **given)
    assert done.returncode == 2
    assert "neither a file GPUMODE/KernelBook nor a data set of that name" in " ".join(done.stderr.split())


def test_a_token_that_may_not_write_is_refused(
    service: Service, tmp_path: Path, hub: fake.Hub, given: dict[str, str]
) -> None:
    """Exit code 2, in a sentence; a hub that fails or is not there has exit code 3."""
    more = {**given, "UNIQUE_DATASET_PATH": str(rows(tmp_path, ["ok"] * 20))}
    done = run(service, tmp_path, "upload", "unique", **{**more, "HF_TOKEN": fake.READ_ONLY})
    assert (done.returncode, "set HF_TOKEN to a token with write access" in " ".join(done.stderr.split())) == (2, True)
    done = run(service, tmp_path, "upload", "unique", **{**more, "HF_ENDPOINT": NOWHERE})
    assert (done.returncode, f"{UNIQUE} was not published" in " ".join(done.stderr.split())) == (3, True)
    hub.fault = lambda _, path: 500 if "/commit/" in path else None
    done = run(service, tmp_path, "upload", "unique", **more)
    assert (done.returncode, "Run it again" in " ".join(done.stderr.split())) == (3, True)
    assert hub.repositories[UNIQUE].files == {}
    assert not list(tmp_path.glob(".upload*"))
