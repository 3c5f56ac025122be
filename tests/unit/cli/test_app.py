"""The frame of the command line: help, versions, exit codes, output, and that its page is what the commands say."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import typer

from runner.base import errors
from runner.base.model import JobState, Verdict
from runner.cli import main, program
from runner.cli.app import ExitCode, app, exit_code_for, out_json
from runner.cli.finding import Finding, Mark, verdict_of
from runner.cli.submit import exit_code_of
from runner.cli.view import from_store
from sandbox.errors import EngineUnavailable
from tests.support.waiting import PATIENCE_S
from tests.unit.cli import reference, samples

#: Without the configuration of this machine.
_UNCONFIGURED = {**os.environ, "KERNEL_RUNNER_CONFIG": os.devnull, "KERNEL_RUNNER_GPUS_DIR": "/nonexistent"}


def test_the_page_is_what_the_commands_say() -> None:
    """docs/cli.md is made of the help texts; `python -m tests.unit.cli.reference` writes it anew."""
    outdated = reference.PAGE.read_text(encoding="utf-8") != reference.page()
    assert not outdated, "a command or its help text was changed: run `python -m tests.unit.cli.reference`"


def test_every_help_text_teaches() -> None:
    """A short first sentence for the list, a paragraph, an example that starts like a shell line."""
    for name, command in reference.commands().items():
        example = re.match(r"Examples?:\n *(sudo )?(dist/)?kernel-runner ", (command.epilog or "").replace("\b\n", ""))
        assert example is not None, name
        assert "\n\n" in command.help, name
        assert len(command.help.split("\n")[0]) <= 120, name


def test_only_the_command_that_was_asked_for_is_loaded() -> None:
    """Whatever stands before its name; all of them take half a second."""
    code = "import sys; from runner.cli import main; main('--config x.toml status -h'.split()); print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    loaded = {name.removeprefix("runner.cli.") for name in ran.stdout.split() if name.startswith("runner.cli.")}
    modules = {function.__module__ for function in map(callback, reference.commands().values())}
    assert loaded & {name.removeprefix("runner.cli.") for name in modules} == {"status"}


def test_every_command_is_found_by_its_name() -> None:
    """A module that registers a command and is named for none would be missing from the help."""
    names = {name.split()[0] for name in reference.commands()}
    for name in names:
        assert set(vars(typer.main.get_command(program([name])))["commands"]) == {name}
    registered = {info.name or callback(info).__name__ for info in app.registered_commands if not info.hidden}
    assert registered | {info.name for info in app.registered_groups} == names


def callback(command: Any) -> Any:  # noqa: ANN401 typer does not export its command types
    """The function of a command."""
    return inspect.unwrap(command.callback)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["submti"], "Did you mean 'submit'"),
        (["status", "seventeen"], "'ID'"),
        (["submit"], "FILE"),
        (["status", "--jsn"], "--jsn"),
        (["submit", "/no/such/file.py"], "/no/such/file.py"),
    ],
)
def test_bad_arguments_are_explained_in_a_sentence(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, nothing on stdout, one line on stderr."""
    assert main(arguments) == ExitCode.USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("kernel-runner: ")
    assert says in captured.err
    assert len(captured.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.SubmissionError("x"), 2),
        (errors.TaskError("x"), 2),
        (errors.ConfigError("x"), 2),
        (errors.NotFoundError("x"), 2),
        (errors.BoardError("x"), 2),
        (errors.SchemaDriftError(["x"]), 3),
        (errors.DatabaseUnavailableError("x"), 3),
        (errors.EvaluationError("x"), 3),
        (EngineUnavailable("x"), 3),
    ],
)
def test_every_error_has_its_exit_code(error: Exception, code: int) -> None:
    """What the caller can mend is 2, what an operator must mend is 3."""
    assert exit_code_for(error) == code


def test_a_defect_keeps_its_traceback_and_an_interrupt_has_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An unforeseen exception is not dressed up as an error message.

    A command's module takes a while to be imported: interrupted there, too, it says so.
    """
    monkeypatch.setattr("runner.extras.boards.commands.task.load", Mock(side_effect=ZeroDivisionError("a defect")))
    with pytest.raises(ZeroDivisionError):
        main(["task", "check", str(Path(__file__).parent)])
    monkeypatch.setattr("runner.cli.import_module", Mock(side_effect=KeyboardInterrupt))
    assert main(["status"]) == ExitCode.INTERRUPTED
    assert capsys.readouterr().err == "kernel-runner: interrupted\n"


@pytest.mark.parametrize(
    ("shell", "code", "says"),
    [
        ("gpu show > /dev/full", 3, "kernel-runner: cannot write to stdout: No space left on device"),
        ("gpu show > /dev/full 2>&1", 3, ""),
        ("gpu show > file-of-no-bytes", 3, "kernel-runner: cannot write to stdout: File too large"),
        ("gpu show >&-", 0, ""),
        ("nothing 2>&-", 2, ""),
        # A closed stdin is as empty as /dev/null.
        ("webhook add board name --format slack <&-", 2, "kernel-runner: .+"),
    ],
)
def test_a_stdout_that_takes_nothing(tmp_path: Path, shell: str, code: int, says: str) -> None:
    """A full disk is an error of one line, as is a limit; a stream that the shell has closed is no error."""
    # No file is made larger, as by a limit of ulimit or a quota.
    limit = "ulimit -f 0; " if "no-bytes" in shell else ""
    ended = subprocess.run(
        ["sh", "-c", f"{limit}exec {shlex.quote(sys.executable)} -Bm runner.cli {shell}"],
        env={**_UNCONFIGURED, "PYTHONPATH": os.pathsep.join(sys.path), "DATABASE_URL": "no address"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert ended.returncode == code
    assert re.fullmatch(says, ended.stderr.strip(), re.DOTALL), ended.stderr


@pytest.mark.parametrize("arguments", ["--help", "gpu show"])
def test_a_reader_that_has_gone_decides_nothing(arguments: str) -> None:
    """`| head` ends before the command does: 0 would mean that a submission was accepted, 1 that it was not."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "runner.cli", *arguments.split()]
    with os.fdopen(writing, "wb") as gone:
        ended = subprocess.run(
            command, env=_UNCONFIGURED, stdout=gone, stderr=subprocess.PIPE, check=False, timeout=PATIENCE_S
        )
    assert (ended.returncode, ended.stderr) == (141, b"")


def test_json_is_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither an escape sequence nor a direction override survives in a document."""
    out_json({"text": "\x1b[2J \u202e µ"})
    text = capsys.readouterr().out
    assert text.isascii()
    assert "\x1b" not in text


def test_the_exit_code_of_check_is_that_of_its_worst_finding() -> None:
    """Warnings pass, failures are 1, a missing database or engine is 3."""
    ok, warning, failed = (Finding(name="x", mark=mark, fact="y") for mark in (Mark.OK, Mark.WARNING, Mark.FAILED))
    assert verdict_of([ok, warning]) == 0
    assert verdict_of([ok, failed]) == 1
    assert verdict_of([failed, replace(failed, infrastructure=True)]) == 3


@pytest.mark.parametrize(
    ("verdict", "code"),
    [(Verdict.ACCEPTED, 0), (Verdict.WRONG_ANSWER, 1), (Verdict.INVALID, 1), (Verdict.INTERNAL_ERROR, 3), (None, 1)],
)
def test_the_exit_code_of_a_submission_tells_whose_fault_it_is(verdict: Verdict | None, code: int) -> None:
    """An internal error is not the submission's failure; one that was cancelled, without a verdict, is not accepted."""
    state = JobState.CANCELLED if verdict is None else JobState.DONE
    view = samples.submission(line=samples.status(state=state, verdict=verdict))
    assert exit_code_of(from_store(view, admin=False)) == code
