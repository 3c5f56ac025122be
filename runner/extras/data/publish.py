"""Publishing an exported folder as a data set of a hub (Hugging Face).

Only what the manifest lists is published, and only if every file still has the hash that the manifest says, and the
files agree with one another. All files of one publication are one commit, so a reader sees the old data set or the new
one. A publication that was interrupted is started again: the hub keeps the large files that had arrived, and files that
it has already are not sent.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import RepositoryNotFoundError

from runner import __version__
from runner.base.errors import DataError
from runner.extras.data import manifest
from runner.extras.data.folder import MANIFEST, sha256_of
from runner.extras.data.verify import verify
from runner.extras.hub import REFUSED, refusals_explained

_KIND: Final = "dataset"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a publication does at the hub, beside sending the folder's files."""

    repository: str
    #: Files that the data set had and this export has no longer. Files that no export wrote are left alone.
    removed: Sequence[str] = ()
    #: The commit that the data set has; None: there is no such data set, and it is made first.
    parent: str | None = None


@dataclass(frozen=True, kw_only=True)
class Folder:
    """An exported folder that may be published: checked, file by file."""

    path: Path
    #: Paths below the folder, with `/` -> SHA-256.
    files: Mapping[str, str]
    size_bytes: int


def checked(path: Path) -> Folder:
    """The folder, if it may be published and is a whole export (`verify`). Nothing is asked of a hub.

    Raises:
        DataError: it is no export, it was exported as private, it has a leaderboard whose code was not public, it
            has no licence, a file is missing or has changed, or its files do not agree with one another.
    """
    document = manifest.read(path)
    if document.get("private") is not False:
        raise DataError(
            f"{path} was exported as private, so it is not published; export it again with the rules of a public export"
        )
    kept_back = [str(board.get("name")) for board in document["boards"] if board.get("code_open") is not True]
    if kept_back:
        raise DataError(
            _list(f"{path} is not published, because it has leaderboards whose code was not public", kept_back)
        )
    if not str(document.get("licence") or "").strip():
        raise DataError(f"{path} has no licence, so it is not published; export it again with a licence")
    wrong = verify(path, lambda _stage, _done, _total: None)
    if wrong:
        raise DataError(_list(f"{path} is not whole, so it is not published", wrong))
    files = {name: entry["sha256"] for name, entry in manifest.paths(document).items()}
    files[MANIFEST] = sha256_of(path / MANIFEST)
    return Folder(path=path, files=files, size_bytes=sum((path / name).stat().st_size for name in files))


def plan(folder: Folder, repository: str, *, api: HfApi) -> Plan:
    """What publishing a folder that was `checked` would change; reads only. `repository`: USER/NAME.

    Raises:
        DataError: the name is none of a repository.
        ConfigError: the hub wants another login.
        InfrastructureError: the hub does not answer, or not as expected.
    """
    if repository.count("/") != 1:
        raise DataError(f"found the repository {repository!r}, expected USER/NAME or ORGANISATION/NAME")
    with refusals_explained(repository):
        try:
            head = api.repo_info(repository, repo_type=_KIND).sha
        except RepositoryNotFoundError as error:
            if error.response.status_code in REFUSED:
                # Without a login the hub does not say whether it exists.
                raise
            return Plan(repository=repository)
        present = set(api.list_repo_files(repository, repo_type=_KIND, revision=head))
        before = _published_before(repository, head, api=api) if MANIFEST in present else frozenset()
    return Plan(repository=repository, removed=sorted((before - folder.files.keys()) & present), parent=head)


def publish(folder: Folder, changes: Plan, *, api: HfApi, private: bool = False) -> str:
    """Carry a plan out, in one commit; returns its address, or that of the last one if nothing changed.

    `private`: make a new repository a private one; one that exists stays as it is.

    Raises:
        DataError: a file has changed since it was checked, or the hub refuses the card.
        ConfigError: the hub wants another login.
        InfrastructureError: the hub does not answer, or the data set was changed meanwhile. Run it again: what has
            arrived is not sent again.
    """
    repository, parent = changes.repository, changes.parent
    with refusals_explained(repository):
        if parent is None:
            api.create_repo(repository, repo_type=_KIND, private=private, exist_ok=True)
            parent = api.repo_info(repository, repo_type=_KIND).sha
        # The library sends no file that the data set has.
        done = api.create_commit(
            repository,
            [
                *(_addition(folder.path / name, name, sha256) for name, sha256 in folder.files.items()),
                *(CommitOperationDelete(path_in_repo=path, is_folder=False) for path in changes.removed),
            ],
            commit_message=f"Submissions exported by kernel-runner {__version__}",
            repo_type=_KIND,
            parent_commit=parent,
        )
    return str(done.commit_url)


def hub() -> HfApi:
    """The hub of the environment (HF_ENDPOINT), with the login of `hf auth login` or HF_TOKEN."""
    return HfApi(library_name="kernel-runner", library_version=__version__)


def _list(what: str, wrong: Sequence[str]) -> str:
    shown = "\n".join(f"  - {problem}" for problem in wrong[:10])
    more = f"\n  - and {len(wrong) - 10} more" if len(wrong) > 10 else ""
    return f"{what}:\n{shown}{more}"


def _published_before(repository: str, head: str | None, *, api: HfApi) -> frozenset[str]:
    """What the published manifest lists; nothing if it is none of ours."""
    with tempfile.TemporaryDirectory() as folder:
        api.hf_hub_download(repository, MANIFEST, repo_type=_KIND, revision=head, local_dir=folder)
        try:
            return frozenset(manifest.paths(manifest.read(Path(folder))))
        except DataError:
            return frozenset()


def _addition(path: Path, name: str, sha256: str) -> CommitOperationAdd:
    addition = CommitOperationAdd(path_in_repo=name, path_or_fileobj=str(path))
    if addition.upload_info.sha256.hex() != sha256:
        raise DataError(f"{path} has changed while it was published; nothing was published")
    return addition
