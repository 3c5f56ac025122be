"""A hub for data sets on this machine: the part of Hugging Face's HTTP interface that a publication uses.

The real client library talks to it, so a test sees what would go over the wire. Keeps everything in memory.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.support.serving import serving

TOKEN = "hf_writes"
READ_ONLY = "hf_reads"


@dataclass
class Repository:
    """One data set: its files, and the commits that made them."""

    private: bool
    files: dict[str, bytes] = field(default_factory=dict)
    #: Paths whose content is kept as a large file.
    large: set[str] = field(default_factory=set)
    commits: list[str] = field(default_factory=lambda: ["0" * 40])

    @property
    def head(self) -> str:
        """The newest commit."""
        return self.commits[-1]

    def hash_of(self, path: str) -> str | None:
        """What the hub calls a file's content; None: it has no such file."""
        content = self.files.get(path)
        if content is None:
            return None
        if path in self.large:
            return hashlib.sha256(content).hexdigest()
        return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


@dataclass
class Hub:
    """What the stand-in holds and has seen."""

    repositories: dict[str, Repository] = field(default_factory=dict)
    #: Large files that arrived, whether or not a commit names them: sha256 -> content.
    objects: dict[str, bytes] = field(default_factory=dict)
    #: sha256 of every large file that was sent, in the order of arrival.
    uploads: list[str] = field(default_factory=list)
    #: The ids of licences that a card may have.
    licences: frozenset[str] = frozenset({"cc-by-4.0", "mit", "other"})
    #: Answers with this status where it returns one, before anything happens.
    fault: Callable[[str, str], int | None] = lambda _method, _path: None
    endpoint: str = ""


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def _handle(self) -> None:
        method = self.command
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = self._chunks()
        path = self.path.partition("?")[0]
        status = self.hub.fault(method, path)
        if status is not None:
            self._json(status, {"error": "a fault of the test"})
            return
        for pattern, verb, answer in _ROUTES:
            match = re.fullmatch(pattern, path)
            if match is not None and verb == method:
                answer(self, *match.groups(), body)
                return
        self._json(404, {"error": f"no such page: {method} {path}"}, code="EntryNotFound")

    do_GET = do_HEAD = do_POST = do_PUT = _handle  # noqa: N815 the names that the base class looks for

    def _chunks(self) -> bytes:
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _json(self, status: int, value: object, *, code: str | None = None) -> None:
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        if code is not None:
            self.send_header("X-Error-Code", code)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _token(self) -> str:
        return (self.headers.get("Authorization") or "").removeprefix("Bearer ")

    def _writer(self) -> bool:
        if self._token() == TOKEN:
            return True
        self._json(403 if self._token() == READ_ONLY else 401, {"error": "not allowed"})
        return False

    def _found(self, name: str) -> Repository | None:
        repository = self.hub.repositories.get(name)
        if repository is None:
            self._json(404 if self._token() else 401, {"error": "not found"}, code="RepoNotFound")
        return repository

    # -- the pages -----------------------------------------------------------------------------------------------

    def who(self, _: bytes) -> None:
        """Whose token this is."""
        if self._token() in (TOKEN, READ_ONLY):
            self._json(200, {"name": "tester", "type": "user", "auth": {"accessToken": {"role": "write"}}})
        else:
            self._json(401, {"error": "Invalid username or password."})

    def create(self, body: bytes) -> None:
        """Make a data set."""
        if not self._writer():
            return
        wanted = json.loads(body)
        name = f"{wanted.get('organization') or 'tester'}/{wanted['name']}"
        if name in self.hub.repositories:
            self._json(409, {"error": "exists", "url": f"{self.hub.endpoint}/datasets/{name}"})
            return
        self.hub.repositories[name] = Repository(
            private=wanted.get("visibility") == "private" or bool(wanted.get("private"))
        )
        self._json(200, {"url": f"{self.hub.endpoint}/datasets/{name}", "name": name, "id": name})

    def info(self, name: str, _: str | None, __: bytes) -> None:
        """What a data set is."""
        repository = self._found(name)
        if repository is not None:
            self._json(200, {"id": name, "sha": repository.head, "private": repository.private, "siblings": []})

    def tree(self, name: str, _: str, __: bytes) -> None:
        """The files of a data set."""
        repository = self._found(name)
        if repository is None:
            return
        entries = [
            {"type": "file", "path": path, "size": len(content), "oid": repository.hash_of(path)}
            for path, content in sorted(repository.files.items())
        ]
        self._json(200, entries)

    def resolve(self, name: str, _: str, path: str, __: bytes) -> None:
        """The content of a file."""
        repository = self._found(name)
        if repository is None:
            return
        if path not in repository.files:
            self._json(404, {"error": "no such file"}, code="EntryNotFound")
            return
        content = repository.files[path]
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", repository.head)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def validate(self, body: bytes) -> None:
        """Refuse a card with a licence that is not known; a card may have none."""
        licence = re.search(r"(?m)^license: (.*)$", json.loads(body)["content"])
        known = licence is None or licence[1] in self.hub.licences
        errors = [] if known else [{"message": f'"license" must be one of {sorted(self.hub.licences)}'}]
        self._json(400 if errors else 200, {"errors": errors, "warnings": []})

    def preupload(self, name: str, _: str, body: bytes) -> None:
        """Parquet files are large files, all else is not; what the data set has is known by its hash."""
        repository = self._found(name)
        if repository is not None and self._writer():
            answers = [
                {
                    "path": path,
                    "uploadMode": "lfs" if path.endswith(".parquet") else "regular",
                    "shouldIgnore": False,
                    "oid": repository.hash_of(path),
                }
                for path in (file["path"] for file in json.loads(body)["files"])
            ]
            self._json(200, {"files": answers})

    def batch(self, _: str, body: bytes) -> None:
        """Where to send large files; no address for those that are here."""
        if not self._writer():
            return
        answers: list[Mapping[str, Any]] = []
        for wanted in json.loads(body)["objects"]:
            known = {"oid": wanted["oid"], "size": wanted["size"], "authenticated": True}
            here = wanted["oid"] in self.hub.objects
            href = f"{self.hub.endpoint}/objects/{wanted['oid']}"
            answers.append(known if here else {**known, "actions": {"upload": {"href": href, "header": {}}}})
        self._json(200, {"transfer": "basic", "objects": answers})

    def upload(self, sha256: str, body: bytes) -> None:
        """Take a large file."""
        if hashlib.sha256(body).hexdigest() != sha256:
            self._json(422, {"error": "the content has another hash"})
            return
        self.hub.objects[sha256] = body
        self.hub.uploads.append(sha256)
        self._json(200, {})

    def commit(self, name: str, _: str, body: bytes) -> None:
        """Apply a commit as a whole."""
        repository = self._found(name)
        if repository is None or not self._writer():
            return
        lines = [json.loads(line) for line in body.splitlines()]
        if lines[0]["value"].get("parentCommit") not in (None, repository.head):
            self._json(412, {"error": "A commit has happened since. Please refresh and try again."})
            return
        for line in lines[1:]:
            value = line["value"]
            match line["key"]:
                case "file":
                    repository.files[value["path"]] = base64.b64decode(value["content"])
                    repository.large.discard(value["path"])
                case "lfsFile":
                    repository.files[value["path"]] = self.hub.objects[value["oid"]]
                    repository.large.add(value["path"])
                case "deletedFile":
                    del repository.files[value["path"]]
        repository.commits.append(hashlib.sha1(body, usedforsecurity=False).hexdigest())
        url = f"{self.hub.endpoint}/datasets/{name}/commit/{repository.head}"
        self._json(200, {"success": True, "commitOid": repository.head, "commitUrl": url})


_NAME = r"([\w.-]+/[\w.-]+)"
_ROUTES: tuple[tuple[str, str, Callable[..., None]], ...] = (
    (r"/api/whoami-v2", "GET", _Handler.who),
    (r"/api/repos/create", "POST", _Handler.create),
    (r"/api/validate-yaml", "POST", _Handler.validate),
    (rf"/api/datasets/{_NAME}(/revision/\w+)?", "GET", _Handler.info),
    (rf"/api/datasets/{_NAME}/tree/(\w+)", "GET", _Handler.tree),
    (rf"/api/datasets/{_NAME}/preupload/(\w+)", "POST", _Handler.preupload),
    (rf"/api/datasets/{_NAME}/commit/(\w+)", "POST", _Handler.commit),
    (rf"/datasets/{_NAME}\.git/info/lfs/objects/batch", "POST", _Handler.batch),
    (rf"/datasets/{_NAME}/resolve/(\w+)/(.+)", "HEAD", _Handler.resolve),
    (rf"/datasets/{_NAME}/resolve/(\w+)/(.+)", "GET", _Handler.resolve),
    (r"/objects/([0-9a-f]{64})", "PUT", _Handler.upload),
)


@contextmanager
def hub() -> Iterator[Hub]:
    """A hub that answers on a port of its own for the time of a test."""
    state = Hub()
    with serving(type("Handler", (_Handler,), {"hub": state})) as state.endpoint:
        yield state
