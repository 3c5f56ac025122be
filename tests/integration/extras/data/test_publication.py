"""Which real exports are published: by what their manifests say of the whole and of each leaderboard."""

from __future__ import annotations

from pathlib import Path

import pytest
from huggingface_hub import HfApi

from runner.base.errors import DataError
from runner.extras.data import manifest
from runner.extras.data import publish as publishing
from runner.extras.data.people import Identity
from tests.fakes import hub as fake
from tests.integration.extras.data.conftest import Oddities, exported

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


def test_a_public_export_is_published_and_a_private_one_is_not(
    oddities: Oddities, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest decides: that of the whole, and that of each leaderboard."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    oddities.filler.board("running", running=True)
    exported(database_url, tmp_path / "private", licence="mit")
    with pytest.raises(DataError, match="private"):
        publishing.checked(tmp_path / "private")
    told = manifest.read(tmp_path / "private")
    manifest.write(tmp_path / "private", {**told, "private": False})
    with pytest.raises(DataError, match=r"whose code was not public:\n  - running$"):
        publishing.checked(tmp_path / "private")
    public = {"private": False, "boards": ("gemv",), "licence": "cc-by-4.0"}
    exported(database_url, tmp_path / "public", **public, identity=Identity.PSEUDONYM, key=b"k" * 32)
    folder = publishing.checked(tmp_path / "public")
    with fake.hub() as hub:
        api = HfApi(endpoint=hub.endpoint, token=fake.TOKEN)
        publishing.publish(folder, publishing.plan(folder, "tester/x", api=api), api=api)
        files = {path.relative_to(folder.path).as_posix() for path in folder.path.rglob("*") if path.is_file()}
        assert set(hub.repositories["tester/x"].files) == files
