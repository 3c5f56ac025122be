"""Publishing: the real client library against a hub on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi

from runner.base.errors import ConfigError, DataError, InfrastructureError
from runner.cli import main
from runner.extras.data import Progress, manifest
from runner.extras.data import publish as publishing
from runner.extras.data.verify import wrong_files
from tests.fakes import hub as fake
from tests.unit.extras.data import samples
from tests.unit.extras.data.samples import row

#: The client library's use of its own HTTP library.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

NAME = "tester/kernels"
FLAT = "nvidia_nvfp4_submissions.parquet"


@pytest.fixture(autouse=True)
def _samples_and_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of samples, which lack tables, the files are compared; the stand-in takes large files over HTTP."""

    def files(folder: Path, progress: Progress) -> list[str]:
        return list(wrong_files(folder, manifest.paths(manifest.read(folder)), progress))

    monkeypatch.setattr(publishing, "verify", files)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)


@pytest.fixture(name="hub")
def _hub() -> Iterator[fake.Hub]:
    with fake.hub() as found:
        yield found


@pytest.fixture(name="api")
def _api(hub: fake.Hub) -> HfApi:
    return HfApi(endpoint=hub.endpoint, token=fake.TOKEN)


def export(folder: Path, *scores: float, **manifest: Any) -> Path:  # noqa: ANN401 any key of a manifest
    """An exported folder of one user."""
    rows = [row(number, score=score) for number, score in enumerate(scores or (1e-5,), start=1)]
    return samples.write_export(folder, rows, manifest=manifest)


def send(folder: Path, api: HfApi, **options: bool) -> publishing.Plan:
    """Check, plan and publish, as the command does."""
    checked = publishing.checked(folder)
    wanted = publishing.plan(checked, NAME, api=api)
    publishing.publish(checked, wanted, api=api, **options)
    return wanted


def content(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# -- what is refused -------------------------------------------------------------------------------------------------


def refuse(folder: Path, said: str) -> str:
    """Check a folder that may not be published; the error."""
    with pytest.raises(DataError, match=said) as caught:
        publishing.checked(folder)
    return str(caught.value)


def test_a_changed_missing_or_linked_file_is_refused_by_name(tmp_path: Path) -> None:
    """Every file is compared with the manifest, and all that differ are named; one below a linked folder, too."""
    folder = export(tmp_path / "export")
    flat = folder / FLAT
    changed = bytearray(flat.read_bytes())
    changed[100] ^= 1
    flat.write_bytes(changed)
    (folder / "README.md").unlink()
    for name in ("submissions.parquet", "scripts"):
        (folder / name).rename(tmp_path / name)
        (folder / name).symlink_to(tmp_path / name)
    text = refuse(folder, f"{FLAT} is not the file that was exported")
    assert "README.md is missing" in text
    assert "submissions.parquet is a link" in text
    assert "query_submissions.py is a link" in text


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "a/../../b", "a//b", "manifest.json", ""])
def test_a_manifest_that_leads_out_of_the_folder_is_refused(tmp_path: Path, path: str) -> None:
    """A folder may come from anyone."""
    files = [{"path": path, "bytes": 1, "sha256": "0" * 64}]
    refuse(export(tmp_path / "export", files=files), "no path below the folder")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"licence": None}, "has no licence"),
        ({"licence": "  "}, "has no licence"),
        ({"files": None}, "no manifest of format"),
        ({"files": {}}, "no manifest of format"),
        ({"files": []}, "no manifest of format"),
        ({"files": [{"path": "README.md"}]}, "no manifest of format"),
        ({"files": [{"path": "README.md", "bytes": 5, "sha256": "x"}]}, "is not the file"),
    ],
)
def test_what_cannot_be_checked_is_refused(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    """A manifest without licence, files, sizes or hashes."""
    refuse(export(tmp_path / "export", **change), said)


@pytest.mark.parametrize("text", [None, "{", "[]"])
def test_a_folder_without_a_manifest_is_refused(tmp_path: Path, text: str | None) -> None:
    """Absent, no JSON, or another document; it is said what makes one."""
    folder = export(tmp_path / "export")
    (folder / "manifest.json").unlink()
    if text is not None:
        (folder / "manifest.json").write_text(text, encoding="utf-8")
    absent = r"is no export: it has no manifest\.json; make one with `kernel-runner data export"
    refuse(folder, absent if text is None else r"manifest\.json")


def test_a_file_that_changes_after_the_check_is_not_published(tmp_path: Path, hub: fake.Hub, api: HfApi) -> None:
    """What the hub gets is what the manifest says."""
    folder = publishing.checked(export(tmp_path / "export"))
    wanted = publishing.plan(folder, NAME, api=api)
    (folder.path / "README.md").write_text("another card", encoding="utf-8")
    with pytest.raises(DataError, match="has changed while it was published"):
        publishing.publish(folder, wanted, api=api)
    assert hub.repositories[NAME].files == {}


# -- what is sent ----------------------------------------------------------------------------------------------------


def test_the_files_of_the_manifest_are_published_in_one_commit(tmp_path: Path, hub: fake.Hub, api: HfApi) -> None:
    """And no other file of the folder."""
    folder = export(tmp_path / "export")
    expected = content(folder)
    (folder / "notes.txt").write_text("for me", encoding="utf-8")
    assert send(folder, api, private=True).parent is None
    repository = hub.repositories[NAME]
    assert repository.files == expected
    assert repository.private
    assert len(repository.commits) == 2


def test_only_changes_are_sent_again(tmp_path: Path, hub: fake.Hub, api: HfApi) -> None:
    """Nothing for the same folder; of another export what differs; what it lacks is removed, other files stay."""
    send(export(tmp_path / "one"), api)
    repository = hub.repositories[NAME]
    repository.files[".gitattributes"] = b"theirs"
    hub.uploads.clear()
    assert send(tmp_path / "one", api).removed == []
    assert (len(repository.commits), hub.uploads) == (2, [])
    second = export(tmp_path / "two", 1e-5, 2e-5)
    (second / "queries.sql").unlink()
    document = json.loads((second / "manifest.json").read_text(encoding="utf-8"))
    document["files"] = [entry for entry in document["files"] if entry["path"] != "queries.sql"]
    (second / "manifest.json").write_text(json.dumps(document), encoding="utf-8")
    assert send(second, api).removed == ["queries.sql"]
    assert len(hub.uploads) == 2
    assert repository.files == {**content(second), ".gitattributes": b"theirs"}
    assert len(repository.commits) == 3


def test_an_interrupted_publication_goes_on_where_it_was(tmp_path: Path, hub: fake.Hub, api: HfApi) -> None:
    """Large files that had arrived are not sent again, and until the commit readers see nothing new."""
    folder = export(tmp_path / "export")
    hub.fault = lambda _, path: 500 if "/commit/" in path else None
    with pytest.raises(InfrastructureError, match="Run it again"):
        send(folder, api)
    assert hub.repositories[NAME].files == {}
    assert len(hub.uploads) == 2
    hub.fault = lambda _method, _path: None
    send(folder, api)
    assert len(hub.uploads) == 2
    assert hub.repositories[NAME].files == content(folder)


@pytest.mark.parametrize("plain", [True, False])
def test_a_transfer_that_breaks_is_no_traceback(
    tmp_path: Path, hub: fake.Hub, api: HfApi, monkeypatch: pytest.MonkeyPatch, *, plain: bool
) -> None:
    """The storage refuses the file; or the library's own protocol fails, which the stand-in does not speak."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", plain)
    if plain:
        hub.fault = lambda method, _: 403 if method == "PUT" else None
    with pytest.raises(InfrastructureError, match="Run it again"):
        send(export(tmp_path / "export"), api)
    assert hub.repositories[NAME].files == {}


def test_a_publication_overwrites_no_commit_of_another(tmp_path: Path, hub: fake.Hub, api: HfApi) -> None:
    """The data set changed between plan and commit."""
    folder = publishing.checked(export(tmp_path / "export"))
    api.create_repo(NAME, repo_type="dataset")
    wanted = publishing.plan(folder, NAME, api=api)
    hub.repositories[NAME].commits.append("f" * 40)
    with pytest.raises(InfrastructureError, match="412"):
        publishing.publish(folder, wanted, api=api)
    assert hub.repositories[NAME].files == {}


# -- logins and faults -----------------------------------------------------------------------------------------------


def test_a_missing_or_weak_login_is_said(tmp_path: Path, hub: fake.Hub) -> None:
    """With what to do; a data set that may only be read is not changed."""
    folder = export(tmp_path / "export")
    for token in (False, "hf_abc\u2026"):
        with pytest.raises(ConfigError, match="hf auth login"):
            send(folder, HfApi(endpoint=hub.endpoint, token=token))
    with pytest.raises(ConfigError, match="status 403"):
        send(folder, HfApi(endpoint=hub.endpoint, token=fake.READ_ONLY))
    assert hub.repositories == {}


def test_a_card_that_the_hub_refuses_is_no_traceback(tmp_path: Path, hub: fake.Hub, api: HfApi) -> None:
    """What the hub says of it is said, on one line."""
    hub.licences = frozenset({"mit"})
    with pytest.raises(
        DataError,
        match=r"the card, so tester/kernels got no file: .*README\.md\. - \"license\" must be one of \['mit'\]$",
    ):
        send(export(tmp_path / "export"), api)
    assert hub.repositories[NAME].files == {}


@pytest.mark.parametrize("name", ["kernels", "a/b/c", "tester/..", "-x/y"])
def test_a_wrong_name_is_refused(tmp_path: Path, api: HfApi, name: str) -> None:
    """Before anything is asked."""
    with pytest.raises(DataError, match="repository"):
        publishing.plan(publishing.checked(export(tmp_path / "export")), name, api=api)


# -- the command -----------------------------------------------------------------------------------------------------


def test_the_command_verifies_before_it_asks_the_hub(
    tmp_path: Path, hub: fake.Hub, api: HfApi, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What `data verify` finds is said, and no request is sent; a dry run verifies too."""
    monkeypatch.setattr(publishing, "hub", lambda: api)
    monkeypatch.setattr(publishing, "verify", lambda _folder, _progress: ["a row lacks its code", "and more"])
    asked: list[str] = []
    hub.fault = lambda _, path: asked.append(path)
    folder = export(tmp_path / "export")
    for options in ([], ["--dry-run"]):
        assert main(["data", "publish", str(folder), NAME, *options]) == 2
        assert "is not whole, so it is not published:\n  - a row lacks its code" in capsys.readouterr().err
    assert asked == []
