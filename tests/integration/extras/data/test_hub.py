"""A real export, published to a hub over HTTP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from runner.extras.data import manifest
from runner.extras.data.folder import sha256_of
from tests.fakes import hub as fake
from tests.integration.extras.data.conftest import Filler, exported

NAME = "tester/kernels"


@pytest.fixture(name="hub")
def _hub() -> Iterator[fake.Hub]:
    """A hub that answers HTTP."""
    with fake.hub() as found:
        yield found


def publish(folder: Path, hub: fake.Hub, *options: str) -> subprocess.CompletedProcess[str]:
    """The command, with the hub of its environment."""
    # The stand-in takes large files over HTTP, not by the library's own protocol.
    given = {"HF_ENDPOINT": hub.endpoint, "HF_TOKEN": fake.TOKEN, "HF_HUB_DISABLE_XET": "1"}
    command = [sys.executable, "-m", "runner.cli", "data", "publish", str(folder), NAME, *options]
    return subprocess.run(command, check=False, capture_output=True, text=True, env={**os.environ, **given})


@pytest.fixture(name="public")
def _public(filler: Filler, database_url: str, tmp_path: Path) -> Path:
    """A public export of two users."""
    board = filler.board("gemv")
    for user in ("ada", "bob"):
        filler.user(user)
        filler.ranked(board, user, f"# {user}".encode(), "0.001")
    exported(database_url, tmp_path / "out", private=False, licence="cc-by-4.0")
    return tmp_path / "out"


def test_an_export_that_does_not_agree_with_itself_is_not_published(public: Path, hub: fake.Hub) -> None:
    """Though every file has the hash that the manifest says: both were forged."""
    path = public / "submissions.parquet"
    rows = pq.read_table(path)
    rows = rows.set_column(
        rows.schema.get_field_index("user_id"),
        rows.schema.field("user_id"),
        pa.array(["eve", "eve"], pa.large_string()),
    )
    pq.write_table(rows, path)
    told = json.loads((public / "manifest.json").read_text())
    manifest.paths(told)["submissions.parquet"].update(sha256=sha256_of(path), bytes=path.stat().st_size)
    manifest.write(public, told)
    refused = publish(public, hub)
    assert refused.returncode == 2
    assert "is not whole, so it is not published" in refused.stderr
    assert (hub.repositories, hub.writes) == ({}, [])
