"""`demo`: the whole thing for real, from a row in PostgreSQL to a leaderboard; leaves nothing running.

Owns a fresh stack (`development.stack`): an embedded PostgreSQL, an engine if none answers, one daemon and one gateway
as processes. Submits the right and the wrong solutions of the starter problems.
"""

from __future__ import annotations

import json
import secrets
import shutil
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

from rich.text import Text

import tasks
from development import demo_batch
from development.stack import Stack, orderly, state_directory
from runner.base.errors import InfrastructureError
from runner.base.model import JobState, Mode, Verdict
from runner.base.units import score
from runner.cli import render, render_submission
from runner.cli.app import console, note, out
from runner.cli.view import from_store
from runner.store import Store, migrate
from runner.store.records import SubmissionView
from runner.task_format import extra_to_stored, load_folder, to_stored

#: So that the endless submission does not hold the demo up for the task's own three minutes.
_TIME_LIMIT_S = 5
#: The whole demo takes a minute or two; beyond this something is wrong and the daemon's log says what.
_PATIENCE_S = 900.0
_LOOK_S = 0.25
_PAGE_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One submission of the demo: who sends which file where, and the verdicts it may get."""

    user: str
    leaderboard: str
    file: str
    mode: Mode
    story: str
    expected: tuple[Verdict, ...]


_RIGHT = (Verdict.ACCEPTED,)
_WRONG = (Verdict.WRONG_ANSWER,)
_FORGED = (Verdict.REJECTED, Verdict.RUNTIME_ERROR, Verdict.WRONG_ANSWER)
_ENDLESS = f"never ends (limit {_TIME_LIMIT_S} s here)"
_FORGES = "writes forged results into every descriptor"
#: User, leaderboard, file below its solutions, mode, what it does, verdicts it may get.
_ROWS = (
    ("ada", "vectoradd", "correct/torch_add.py", Mode.LEADERBOARD, "right", _RIGHT),
    ("grace", "vectoradd", "correct/float32.py", Mode.LEADERBOARD, "right, another way", _RIGHT),
    ("mallory", "vectoradd", "wrong/last_element.py", Mode.LEADERBOARD, "wrong in one element", _WRONG),
    ("mallory", "vectoradd", "faults/crash.py", Mode.TEST, "crashes", (Verdict.RUNTIME_ERROR,)),
    ("mallory", "vectoradd", "faults/slow.py", Mode.TEST, _ENDLESS, (Verdict.TIME_LIMIT,)),
    ("mallory", "vectoradd", "faults/cheat.py", Mode.LEADERBOARD, _FORGES, _FORGED),
    ("ada", "identity", "correct/copy.py", Mode.LEADERBOARD, "right", _RIGHT),
    ("mallory", "identity", "wrong/zeros.py", Mode.LEADERBOARD, "returns zeros", _WRONG),
    ("ada", "nvfp4_gemv", "correct/dequantize.py", Mode.LEADERBOARD, "right", _RIGHT),
    ("grace", "nvfp4_gemv", "correct/blocks.py", Mode.LEADERBOARD, "right, another way", _RIGHT),
    ("mallory", "nvfp4_gemv", "wrong/shifted_scales.py", Mode.LEADERBOARD, "off by one scale block", _WRONG),
)
ENTRIES = tuple(
    Entry(user=user, leaderboard=leaderboard, file=file, mode=mode, story=story, expected=expected)
    for user, leaderboard, file, mode, story, expected in _ROWS
)


def demo() -> None:
    """Evaluate real submissions on this machine, from queue to rankings, in a minute or two.

    Starts an embedded PostgreSQL, a daemon, a gateway on a free port of this machine and, if none answers, an engine,
    and stops them at the end. Touches no configured database.

    Raises:
        InfrastructureError: a part does not start, or a verdict is another than expected.
    """
    directory, began = state_directory("demo"), datetime.now(UTC)
    with (
        orderly(),
        _fresh_stack(directory) as (stack, url),
        _closing(Store(url, application_name="kernel-runner demo")) as store,
    ):
        boards = _publish(store)
        note("starting the daemon (it proves its containers with a probe first)")
        stack.start_daemon()
        if not stack.daemon_serves(store, since=began):
            raise InfrastructureError(f"the daemon is not ready; its log says why: {stack.daemon_log}")
        submissions = [(entry, _submit(store, entry)) for entry in ENTRIES]
        note(
            f"{len(submissions)} submissions queued on {len(boards)} leaderboards; "
            "a ranked one that is right is evaluated again, with a secret seed"
        )
        page = _open_pages(stack, store, boards[0])
        views = _watch(store, stack, submissions)
        _print_results(store, boards, views)
        surprises = [
            f"submission {view.submission_id} ({entry.file}): {view.verdict}, expected {' or '.join(entry.expected)}"
            for entry, view in views
            if view.verdict not in entry.expected
        ]
        note("a batch of candidates for a PyTorch module, as trainers send them")
        table, wrong = demo_batch.evaluate(stack.config_file, directory)
        surprises += wrong
        out("\ncandidates for a PyTorch module (docs/trainers.md):\n")
        out(table)
        if page is not None:
            _show_page(page)
        note("stopping what was started")
    if surprises:
        raise InfrastructureError("the demo did not go as it should: " + "; ".join(surprises))


@contextmanager
def _fresh_stack(directory: Path) -> Iterator[tuple[Stack, str]]:
    """PostgreSQL and engine for one demo, on a database that holds nothing yet."""
    stack = Stack(directory)
    with stack.lock():
        stack.stop_all()
        shutil.rmtree(directory / "postgres", ignore_errors=True)
        try:
            note("starting PostgreSQL (embedded, in a directory of its own)")
            url = stack.start_postgres()
            engine = stack.start_engine()
            note(f"container engine: {engine.url}")
            note(f"migrations applied: {', '.join(migrate(url))}")
            stack.write_config(database_url=url, engine=engine)
            yield stack, url
        finally:
            stack.stop_all()


@contextmanager
def _closing(store: Store) -> Iterator[Store]:
    try:
        yield store
    finally:
        store.close()


def _publish(store: Store) -> tuple[str, ...]:
    root = Path(tasks.__file__).parent / "problems"
    names = tuple(dict.fromkeys(entry.leaderboard for entry in ENTRIES))
    for name in names:
        folder = load_folder(root / name)
        task = replace(folder.task, test_timeout_s=_TIME_LIMIT_S)
        store.create_board(
            name=name,
            deadline=datetime.now(UTC) + timedelta(days=1),
            task=to_stored(task),
            description=folder.description,
            gpus=("CPU",),
            templates=folder.templates,
            extra=extra_to_stored(task.extra),
        )
    note(f"leaderboards published for GPU type CPU: {', '.join(names)}")
    return names


def _open_pages(stack: Stack, store: Store, board: str) -> str | None:
    """Start the gateway and say where to look; the address of the board's page, or None without a gateway."""
    base = stack.serve_gateway()
    if base is None:
        return None
    token = secrets.token_urlsafe(12)
    digest = f"sha256:{sha256(token.encode()).hexdigest()}"
    store.set_token(_user_id("ada"), user_name="ada", digest=digest)
    page = f"{base}/board/{board}"
    note(f"look at {page} while it runs; {base}/login takes you in as ada with the token {token}")
    return page


def _show_page(page: str) -> None:
    """Get the page as a browser does, and say where it is.

    Raises:
        InfrastructureError: the gateway does not serve it.
    """
    try:
        with urllib.request.urlopen(page, timeout=_PAGE_S) as answer:  # noqa: S310 - this machine's own address
            size = len(answer.read())
    except OSError as error:
        raise InfrastructureError(f"the gateway does not show {page}: {error}") from error
    note(f"the ranking as a page ({size} bytes): {page}; `make up` keeps one up")


def _user_id(name: str) -> str:
    """The id of one of the demo's users."""
    return f"demo-{name}"


def _submit(store: Store, entry: Entry) -> int:
    path = Path(tasks.__file__).parent / "problems" / entry.leaderboard / "solutions" / entry.file
    return store.submit(
        leaderboard=entry.leaderboard,
        user_id=_user_id(entry.user),
        user_name=entry.user,
        file_name=path.name,
        code=path.read_bytes(),
        mode=entry.mode.value,
        gpu_types=["CPU"],
    )


def _watch(
    store: Store, stack: Stack, submissions: Sequence[tuple[Entry, int]]
) -> tuple[tuple[Entry, SubmissionView], ...]:
    """Wait until all are over; a line for each as it ends."""
    deadline = time.monotonic() + _PATIENCE_S
    ended: dict[int, tuple[Entry, SubmissionView]] = {}
    while len(ended) < len(submissions):
        if time.monotonic() > deadline or not stack.daemon_runs():
            raise InfrastructureError(f"the daemon does not get on; its log: {stack.daemon_log}")
        for entry, number in submissions:
            view = store.submission(number)
            if view.state is JobState.DONE and number not in ended:
                ended[number] = entry, view
                console(stderr=True).print(_line(entry, view))
        time.sleep(_LOOK_S)
    return tuple(ended[number] for _, number in submissions)


def _line(entry: Entry, view: SubmissionView) -> Text:
    return Text.assemble(
        f"  {view.submission_id:>3}  {entry.leaderboard:<11} {entry.user:<8} {entry.story}: ",
        render.verdict_text(view.verdict),
        "" if view.score_s is None else f", {score(view.score_s)}",
    )


def _print_results(store: Store, boards: Sequence[str], views: Sequence[tuple[Entry, SubmissionView]]) -> None:
    for board in boards:
        out(render.ranking_page(f"leaderboard {board}", ("CPU",), store.ranking(board, None)))
        out("")
    best = store.ranking(boards[0], None)[0].submission_id
    view = next(view for _, view in views if view.submission_id == best)
    out("one result in full (`kernel-runner status ID` prints this):\n")
    out(render_submission.submission_page(from_store(view, admin=False)))
    ranked = next(run for job in view.jobs for run in job.runs if run.score_s is not None)
    out("\nwhat is kept with each of its runs (leaderboard.runs.system_info):\n")
    out(json.dumps(ranked.system_info, indent=2))
