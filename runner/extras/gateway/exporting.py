"""The admin route that publishes a data set: `data export` and `data publish` of the command line.

Each is a process of its own, so that neither its memory nor its work is the gateway's. Open and closed leaderboards are
refused, as everywhere where data become public.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from runner.base.environment import process_environment
from runner.extras.gateway.context import AppState, Ascii, Refusal, app_state, json_body, problem
from runner.extras.gateway.identity import admin
from runner.extras.gateway.queries import MOST

#: How long both commands may take together, in seconds.
LONGEST_S: Final = 900.0
_BOARDS: Final = 1000
_NAME: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,79}?)(_submissions)?\.parquet")
#: What a command gets of this process's environment: how to find programs, and how to reach the hub.
_PASSED: Final = (
    *("PATH", "LANG", "PYTHONPATH", "HF_ENDPOINT", "HF_HUB_DISABLE_XET"),
    *("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
)
#: Exit code of a command whose arguments or data are at fault.
_USAGE: Final = 2


async def export(request: Request) -> Response:
    """POST /admin/export-hf: the data set of some leaderboards, published in one commit.

    `private` makes a new repository a private one. The flat file is `NAME_submissions.parquet`.
    """
    admin(request)
    current = app_state(request)
    repository, licence, url, token = _settings(current)
    body = await json_body(request)
    boards = await _boards(current, body.get("leaderboard_ids"))
    named = _NAME.fullmatch(body.get("filename", "") if isinstance(body.get("filename", ""), str) else "")
    if named is None:
        raise Refusal(400, "filename must be a plain name that ends in .parquet")
    private = body.get("private", True)
    if not isinstance(private, bool):
        raise Refusal(422, [problem("bool_type", "body.private", "Input should be a valid boolean", None)])
    if current.exporting.locked():
        raise Refusal(409, "An export is being made. Try again later.", retry_after_s=60)
    async with current.exporting:
        with tempfile.TemporaryDirectory(prefix="kernel-runner-") as folder:
            environment = _environment(Path(folder), url, token)
            target = str(Path(folder) / "export")
            exporting = ["data", "export", target, "--json", "--licence", licence, "--name", named[1]]
            exporting += [part for name in boards for part in ("--leaderboard", name)]
            publishing = ["data", "publish", target, repository, "--json", *(["--private"] if private else [])]
            try:
                async with asyncio.timeout(LONGEST_S):
                    report = await _run(exporting, environment, folder)
                    await _run(publishing, environment, folder)
            except TimeoutError:
                raise Refusal(503, "The export takes too long; use `kernel-runner data`", retry_after_s=60) from None
    return Ascii({"status": "ok", "rows": report["rows"], "repo_id": repository, "filename": report["flat"]})


def _settings(current: AppState) -> tuple[str, str, str, str]:
    config = current.config
    settings = {
        "gateway_hub_repository": config.gateway_hub_repository,
        "gateway_hub_licence": config.gateway_hub_licence,
        "gateway_publish_url_file": config.secret("gateway_publish_url"),
        "gateway_hub_token_file": config.secret("gateway_hub_token"),
    }
    missing = [name for name, value in settings.items() if not value]
    if missing:
        raise Refusal(501, f"Here data are published with `kernel-runner data publish`: not set: {', '.join(missing)}")
    repository, licence, url, token = (str(value) for value in settings.values())
    return repository, licence, url, token


async def _boards(current: AppState, ids: object) -> Sequence[str]:
    """The names of these leaderboards.

    Raises:
        Refusal: 422, it is no list of numbers; 404, one is not there.
    """
    if (
        not isinstance(ids, list)
        or not 0 < len(ids) <= _BOARDS
        or not all(isinstance(item, int) and not isinstance(item, bool) and 0 < item <= MOST for item in ids)
    ):
        raise Refusal(422, [problem("list_type", "body.leaderboard_ids", "Input should be a list of ids", None)])
    names = {board["id"]: str(board["name"]) for board in await current.store.all("board_list")}
    missing = [item for item in ids if item not in names]
    if missing:
        raise Refusal(404, f"Leaderboard {missing[0]} does not exist")
    return list(dict.fromkeys(names[item] for item in ids))


def _environment(folder: Path, url: str, token: str) -> Mapping[str, str]:
    """What a command needs; its secrets are in files that only this user reads."""
    for name, text in (("database_url", url), ("token", token)):
        path = folder / name
        path.touch(mode=0o600)
        path.write_text(f"{text}\n", encoding="utf-8")
    given = process_environment()
    return {
        **{name: given[name] for name in _PASSED if name in given},
        "HOME": str(folder),
        "CREDENTIALS_DIRECTORY": str(folder),
        "HF_TOKEN_PATH": str(folder / "token"),
    }


async def _run(arguments: Sequence[str], environment: Mapping[str, str], folder: str) -> dict[str, Any]:
    """What a command prints as JSON. It is killed if this is cancelled.

    Raises:
        Refusal: 400, it refuses; 502, the database or the hub does not answer.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "runner.cli", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(environment),
        cwd=folder,
    )
    try:
        printed, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        lines = [line for line in errors.decode("utf-8", "replace").splitlines() if line.strip()]
        text = (lines[-1] if lines else "it failed").replace(f"{folder}/", "")
        raise Refusal(400 if process.returncode == _USAGE else 502, text[:1000])
    report: dict[str, Any] = json.loads(printed)
    return report
