"""Admin routes that make and change leaderboards: from folders below `gateway_problems_dir`, and from archives.

The gateway's own login may not write tasks. These routes use another one (`gateway_publish_url`); a site that has not
set it has no such routes. Nothing is downloaded: an operator keeps the folder up to date.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from runner.base.errors import DatabaseUnavailableError, KernelRunnerError
from runner.base.marks import visible
from runner.extras.boards import publication
from runner.extras.boards.competition import Problem, load_competition
from runner.extras.boards.plan import Action, BoardPlan, plan_board
from runner.extras.boards.publication import DEFAULT_LIFETIME
from runner.extras.boards.store import BoardStore
from runner.extras.gateway.boards import shown
from runner.extras.gateway.context import AppState, Ascii, Refusal, app_state, json_body, problem
from runner.extras.gateway.identity import OPERATOR, admin
from runner.extras.gateway.upload import is_multipart, upload
from runner.task_format import load
from runner.task_format.model import TaskFolder

#: Boards with such a name are for trying a task: they are replaced without being asked.
_DEV: Final = "-dev"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
#: How long a board's making may take; the database has bounds of its own.
_PUBLISH_S: Final = 120.0


async def create(request: Request) -> Response:
    """POST /admin/leaderboards: a folder that a JSON body names, or the archive in a form's part `file`."""
    admin(request)
    current = app_state(request)
    _login(current)
    if is_multipart(request):
        sent = await upload(request, OPERATOR.id)
        name, visibility = sent.fields.get("name"), _visibility(sent.fields)
        board_name = await _in_thread(_from_archive, current, visibility, sent.name, sent.code, name)
    else:
        body = await json_body(request)
        directory, visibility = body.get("directory"), _visibility(body)
        if not isinstance(directory, str) or not directory:
            raise Refusal(422, [problem("missing", "body.directory", "Field required", None)])
        folder = _below(_problems(current), directory)
        board_name = await _in_thread(_from_folder, current, visibility, folder)
    return Ascii({"status": "ok", "leaderboard": board_name})


async def export(request: Request) -> Response:
    """POST /admin/export-hf, which KernelBot has: the command line does it."""
    admin(request)
    raise Refusal(501, "Data sets are made with `kernel-runner data export` and published with `data publish`")


async def update_problems(request: Request) -> Response:
    """POST /admin/update-problems: the competition files of the configured folder, and what came of each problem."""
    admin(request)
    current = app_state(request)
    _login(current)
    body = await json_body(request)
    chosen, force, visibility = body.get("problem_set"), body.get("force", False), _visibility(body)
    if chosen is not None and (not isinstance(chosen, str) or not _NAME.fullmatch(chosen)):
        raise Refusal(400, "problem_set is the name of a competition file without .yaml")
    if not isinstance(force, bool):
        raise Refusal(422, [problem("bool_type", "body.force", "Input should be a valid boolean", None)])
    report = await _in_thread(_update_all, current, visibility, _problems(current), chosen, force)
    return Ascii({"status": "ok", **report})


def _login(current: AppState) -> str:
    url = current.config.secret("gateway_publish_url")
    if url is None:
        raise Refusal(
            501, "Here leaderboards are made with `kernel-runner leaderboard`: gateway_publish_url_file is not set"
        )
    return url


def _problems(current: AppState) -> Path:
    if current.config.gateway_problems_dir is None:
        raise Refusal(501, "This site has no folder of problems (gateway_problems_dir is not set)")
    return current.config.gateway_problems_dir


def _visibility(fields: Mapping[str, Any]) -> str:
    visibility = fields.get("visibility") or "public"
    if visibility not in ("public", "closed"):
        raise Refusal(422, [problem("literal_error", "body.visibility", "Input should be 'public' or 'closed'", None)])
    return str(visibility)


def _below(root: Path, directory: str) -> Path:
    """A folder below the root, whatever links lie on the way.

    Raises:
        Refusal: 400, there is none.
    """
    try:
        folder = (root / directory).resolve()
        right = folder.is_dir() and folder.is_relative_to(root.resolve()) and folder != root.resolve()
    except (OSError, ValueError, RuntimeError):
        right = False
    if not right or not _NAME.fullmatch(folder.name):
        raise Refusal(400, f"Directory {shown(directory)} is not below the folder of problems")
    return folder


async def _in_thread(work: Any, *values: Any) -> Any:  # noqa: ANN401 - one of the functions below, and what it returns
    """What a function of another thread returns; what it refuses is a 400 without the host's paths.

    Raises:
        Refusal: 400, 503.
    """
    current: AppState = values[0]
    try:
        async with asyncio.timeout(_PUBLISH_S), current.publishing:
            return await asyncio.to_thread(work, *values)
    except TimeoutError:
        raise Refusal(503, "This takes too long. Look later whether it is done.", retry_after_s=60) from None
    except DatabaseUnavailableError:
        raise
    except KernelRunnerError as error:
        raise Refusal(400, _without_paths(current, str(error))) from error


def _without_paths(current: AppState, text: str) -> str:
    root = current.config.gateway_problems_dir
    return text if root is None else text.replace(f"{root.resolve()}/", "").replace(f"{root}/", "")


def _from_archive(current: AppState, visibility: str, file_name: str, data: bytes, name: str | None) -> str:
    base = file_name.removesuffix(".zip")
    if not _NAME.fullmatch(base) or (name is not None and not _NAME.fullmatch(name)):
        raise Refusal(400, "The archive is NAME.zip with a plain name of at most 100 letters, digits, dots, - and _")
    return _publish(current, visibility, publication.load_archive(f"{base}.zip", data), name or f"{base}{_DEV}")


def _from_folder(current: AppState, visibility: str, path: Path) -> str:
    return _publish(current, visibility, load(path), f"{path.name}{_DEV}")


def _publish(current: AppState, visibility: str, folder: TaskFolder, name: str) -> str:
    """A new board; one for trying a task is removed first, with its submissions."""
    store = BoardStore(_login(current), application_name="kernel-runner gateway publishing")
    try:
        gpus = publication.offered(store, current.config.gpus_dir, folder, folder.gpus, name)
        if name.endswith(_DEV) and name in {line.name for line in store.boards()}:
            store.delete_board(name, force=True)
        deadline = datetime.now(UTC) + DEFAULT_LIFETIME
        publication.create(store, name, folder, deadline=deadline, gpus=gpus, visibility=visibility)
    finally:
        store.close()
    return name


def _update_all(
    current: AppState,
    visibility: str,
    root: Path,
    chosen: str | None,
    force: bool,  # noqa: FBT001 - called by another thread, by position
) -> dict[str, list[Any]]:
    """The outcome for each problem of the chosen competition file, or of all."""
    report: dict[str, list[Any]] = {"created": [], "updated": [], "skipped": [], "errors": []}
    files = [root / f"{chosen}.yaml"] if chosen is not None else visible(root, ".yaml")
    store = BoardStore(_login(current), application_name="kernel-runner gateway publishing")
    try:
        names = {line.name for line in store.boards()}
        for file in files:
            try:
                problems = load_competition(file)
            except KernelRunnerError as error:
                report["errors"].append({"name": file.stem, "error": _without_paths(current, str(error))})
                continue
            for entry in problems:
                try:
                    plan = _update(current, store, visibility, entry, present=entry.name in names, force=force)
                except DatabaseUnavailableError:
                    raise
                except KernelRunnerError as error:
                    report["errors"].append({"name": entry.name, "error": _without_paths(current, str(error))})
                    continue
                done = {Action.CREATE: "created", Action.UPDATE: "updated"}.get(plan.action)
                if done is not None:
                    report[done].append(entry.name)
                else:
                    report["skipped"].append({"name": entry.name, "reason": plan.remark or "no changes"})
    finally:
        store.close()
    return report


def _update(
    current: AppState, store: BoardStore, visibility: str, entry: Problem, *, present: bool, force: bool
) -> BoardPlan:
    """What has been done about one problem."""
    board = store.board(entry.name) if present else None
    named = entry.gpus or entry.folder.gpus
    if board is not None:
        # It keeps its GPU types, as in KernelBot.
        gpus = board.gpus
    else:
        gpus = publication.offered(store, current.config.gpus_dir, entry.folder, named, entry.name) if named else ()
    plan = plan_board(entry, present=board, gpus=gpus, lifetime_end=datetime.now(UTC) + DEFAULT_LIFETIME)
    publication.carry_out(store, plan, force=force, visibility=visibility)
    return plan
