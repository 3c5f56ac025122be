"""The commands that README.md, CONTRIBUTING.md and docs/ show: each is one that there is, and a story of them is run.

Against a real queue and a real daemon, whose evaluator accepts everything at once: containers are other tests' subject.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import structlog
import typer

from runner.base import logs
from runner.cli import main, program
from runner.store import HostRecord
from tests.integration.daemon.rig import Rig
from tests.integration.documents.commands import ROOT, Shown, shown, words

#: What is run, in this order: a board comes before what is submitted to it. The numbers of submissions in the pages are
#: those of the story told there.
PLAY: Sequence[str] = (
    "kernel-runner leaderboard create tasks/problems/vectoradd --gpu CPU --deadline '2031-06-30 18:00'",
    "kernel-runner leaderboard template vectoradd Python > mine.py",
    "kernel-runner submit mine.py --user alice --wait",
    "kernel-runner leaderboard show vectoradd",
    # operations.md. With one submission nothing is asked.
    'kernel-runner host drain gpu-07 --reason "fan 3 is loud"',
    "kernel-runner host undrain gpu-07",
    'kernel-runner host drain gpu-07 --reason "fan 3 failed" --wait',
    "kernel-runner rerun --host gpu-07 --since '2 days ago' --gpu H100 --dry-run",
    "kernel-runner rerun --host node1 --since '2 hours ago' --dry-run",
    "kernel-runner invalidate --host gpu-07 --since '2 days ago' --reason \"measured on a broken GPU\"",
    "kernel-runner rerun --host gpu-07 --since '2 days ago' --reason \"measured on a broken GPU\"",
    "kernel-runner host undrain gpu-07",
    'kernel-runner gpu pause H100 --reason "new driver on all hosts"',
    "kernel-runner gpu resume H100",
    'kernel-runner leaderboard pause vectoradd --reason "the reference is wrong"',
    "kernel-runner leaderboard resume vectoradd",
    # cli.md
    "kernel-runner failed --since '2 hours ago' --host gpu-07",
    "kernel-runner submit mine.py --leaderboard vectoradd --gpu CPU --mode test --wait",
    "kernel-runner status 2",
    "kernel-runner status",
    "kernel-runner leaderboard list",
    "kernel-runner leaderboard task vectoradd reference.py",
    "kernel-runner leaderboard update tasks/problems/vectoradd --timing audited --tolerance 0.05 --dry-run",
    "kernel-runner leaderboard import tasks/problems/nvfp4.yaml --dry-run",
    "kernel-runner host list",
    "kernel-runner gpu list",
    "kernel-runner gpu show H100",
    "kernel-runner gpu detect",
    # adding-a-task.md
    "kernel-runner task new row_max --directory tasks/problems",
    "kernel-runner leaderboard create tasks/problems/row_max --name row-max --gpu CPU",
    "kernel-runner leaderboard template row-max Python > mine.py",
    "kernel-runner submit mine.py --wait",
    "kernel-runner leaderboard show row-max",
    "kernel-runner leaderboard update tasks/problems/row_max --name row-max",
)
#: These ask for a confirmation at the terminal, which is given.
ASKS = ("kernel-runner rerun", "kernel-runner invalidate")
#: A host may have devices of no type.
NOT_ALWAYS_0 = ("kernel-runner gpu detect",)


def parse(command: Any, arguments: Sequence[str], parent: Any = None) -> None:  # noqa: ANN401 - typer's own click
    """Read arguments as the program does, and do nothing; what is missing or unknown is an error."""
    context = command.make_context(command.name, [*arguments], parent=parent)
    if isinstance(command, typer.core.TyperGroup):
        _, below, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert below is not None
        parse(below, rest, context)


@pytest.mark.parametrize("shown_command", sorted(set(shown())), ids=str)
def test_every_command_is_one_that_there_is(shown_command: Shown) -> None:
    """With its options and as many arguments; a target of make; what other programs understand is theirs to say."""
    words_ = shlex.split(re.split(r" (?:\||&&|<<<|<) ", shown_command.command)[0])
    words_ = words_[words_[0] == "sudo" :]
    if words_[0] == "make":
        assert words_[-1] in re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"))
    if Path(words_[0]).name != "kernel-runner":
        return
    arguments = words_[1 : words_.index(">")] if ">" in words_ else words_[1:]
    try:
        parse(typer.main.get_command(program(arguments)), arguments)
    except typer.BadParameter as error:
        # A value may be the path of a file that is not here.
        if type(error) is not typer.BadParameter:
            raise


@pytest.mark.parametrize(
    "command", ["submit mine.py --nope", "leaderboard pause", "gpu nope", "leaderboard show a b", "nope"]
)
def test_a_command_that_there_is_not_is_found_out(command: str) -> None:
    """An unknown option or command, and too few or too many arguments."""
    words_ = command.split()
    with pytest.raises(Exception, match=r"(?i)no such|missing|unexpected"):
        parse(typer.main.get_command(program(words_)), words_)


def test_the_story_is_that_of_the_pages() -> None:
    """It does not outlive a change of the pages."""
    assert set(PLAY) - {each.command for each in shown()} == set()


@pytest.fixture
def rig(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    """The host of the pages, which accepts everything at once; and in the list another one. Commands find its queue."""
    for name in os.environ:
        if name.startswith("KERNEL_RUNNER_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("DATABASE_URL", database_url)
    # The daemon is in this process, and what it logs is no command's output.
    logs.configure("json", "error")
    rig = Rig(database_url, host_name="gpu-07")
    rig.start()
    rig.store.register_host(HostRecord(name="node1", version="1", slots=[], instance="i", gpu_types=[]))
    yield rig
    rig.close()
    # The commands have pointed the log at a stream that ends with the test.
    structlog.reset_defaults()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the tasks, to work in."""
    shutil.copytree(ROOT / "tasks", tmp_path / "tasks", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_commands_work_in_the_order_of_a_story(
    rig: Rig, checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the first board to the bad GPU: each ends well, as it is written."""
    monkeypatch.setenv("KERNEL_RUNNER_GPUS_DIR", str(checkout / "gpus.d"))
    for command in PLAY:
        play(command, checkout, capsys)


def test_the_quickstart_shows_the_numbers_that_its_commands_print(
    rig: Rig, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the order of the page, after `make up`."""
    play(PLAY[0], checkout, capsys)
    typed = [each.command for each in shown() if each.page == "docs/quickstart.md"]
    printed = "".join(play(command, checkout, capsys) for command in typed if command.startswith("kernel-runner "))
    titles = re.compile(r"(?m)^submission \d+  \S+ by \w+ to \w+")
    page = titles.findall((ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8"))
    assert len(page) == 2
    assert set(page) <= set(titles.findall(printed))


def play(command: str, checkout: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Do a command as it is written; what it prints, also into the file that its output goes to."""
    parts, target = words(command)
    capsys.readouterr()
    code = main([*parts[1:], *(["--yes"] if command.startswith(ASKS) else [])])
    output = capsys.readouterr()
    assert code in ((0, 1) if command in NOT_ALWAYS_0 else (0,)), f"{command}\n{output.out}{output.err}"
    if target is not None:
        (checkout / target).write_text(output.out, encoding="utf-8")
    return output.out
