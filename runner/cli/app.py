"""The command line's frame: the typer application, the session every command gets, output and exit codes.

Commands live in sibling modules and register themselves on `app`; `runner.cli.main` runs it. Data goes to stdout,
everything else to stderr. No command catches an error of the project: `exit_code_for` decides, in one place.
"""

from __future__ import annotations

import getpass
import json
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import date
from enum import IntEnum
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.console import Console, RenderableType

from runner import __version__
from runner.base import logs
from runner.base.config import Config
from runner.base.errors import BoardError, ConfigError, DataError, NotFoundError, SubmissionError, TaskError
from runner.base.model import Json
from runner.base.safe import printable
from runner.store import Store, direct_address

#: A table on something that is no terminal is as wide as it needs to be: nothing is cut off for a program's sake.
_UNBOUNDED_WIDTH = 100_000
#: A terminal that says it has fewer columns has no size yet, or cannot show a table: it has the usual ones.
_NARROWEST = 40
_USUAL_WIDTH = 80
_USUAL_HEIGHT = 25
_Store = TypeVar("_Store", bound=Store)
_CONTINUATION = re.compile(r"\n[\t ]+(?![-\t ])")

Priority = Annotated[int, typer.Option("--priority", metavar="N", min=-1000, max=1000, help="Higher goes first.")]


class ExitCode(IntEnum):
    """What the shell gets to know."""

    OK = 0
    NOT_ACCEPTED = 1
    USAGE = 2
    INFRASTRUCTURE = 3
    #: 128 + SIGINT, as shells have it.
    INTERRUPTED = 130
    #: 128 + SIGPIPE, as shells have it.
    READER_GONE = 141


#: Where the keys of guests are, if those are installed.
_GUESTS_CONFIG = "runner.extras.config"
#: What the caller can mend by calling differently; every other error of the project is infrastructure.
_USAGE_ERRORS = (SubmissionError, TaskError, ConfigError, NotFoundError, BoardError, DataError)


def exit_code_for(error: Exception) -> ExitCode:
    """The exit code of an error that the project raises on purpose."""
    return ExitCode.USAGE if isinstance(error, _USAGE_ERRORS) else ExitCode.INFRASTRUCTURE


@dataclass
class Session:
    """What one invocation shares between the root command and its subcommand."""

    #: `--config`, or None for the default places.
    config_path: Path | None = None

    @cached_property
    def config(self) -> Config:
        """The configuration, read when first needed: `--help` works without one.

        Raises:
            ConfigError: it cannot be read or is wrong.
        """
        return load_config(self.config_path)

    def store(self) -> AbstractContextManager[Store]:
        """As `open`, of the core's own class."""
        return self.open(Store)

    @contextmanager
    def open(self, kind: type[_Store]) -> Iterator[_Store]:
        """A connection to the database for the time of one command.

        Raises:
            ConfigError: no database is configured.
        """
        config = self.config
        dsn = config.require_database_url()
        store = kind(dsn, application_name="kernel-runner cli", direct_host=config.direct_host)
        try:
            yield store
        finally:
            store.close()


def load_config(path: Path | None, *, environ: Mapping[str, str] | None = None) -> Config:
    """As `Config.load`, with the keys of guests where those are installed.

    Raises:
        ConfigError: it cannot be read, or a key of the core or of a guest is wrong.
    """
    try:
        kind: type[Config] = import_module(_GUESTS_CONFIG).SiteConfig
    except ModuleNotFoundError:
        kind = Config
    return kind.load(path, environ=environ)


def direct_url(config: Config) -> str:
    """The connection string of the server itself, for what needs a session of its own.

    Raises:
        ConfigError: no database is configured, or its address cannot be parsed.
    """
    return direct_address(config.require_database_url(), config.direct_host)


def session(context: typer.Context) -> Session:
    """The session of the running command."""
    current = context.obj
    if not isinstance(current, Session):
        raise TypeError(f"the root command made no session, found {current!r}")
    return current


app = typer.Typer(
    name="kernel-runner",
    no_args_is_help=True,
    # Plain help: rich's boxes break examples that are meant to be copied.
    rich_markup_mode=None,
    # A traceback of a defect is for a report: complete, not decorated, and without the values of locals.
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(requested: bool) -> None:  # noqa: FBT001 typer calls it with the flag's value
    if requested:
        typer.echo(f"kernel-runner {__version__}")
        raise typer.Exit


@app.callback(
    epilog="\b\nExit codes: 0 accepted or done, 1 not accepted, 2 usage, 3 infrastructure (database, engine).\n"
    "Data goes to stdout, progress and messages to stderr; --json is for programs."
)
def root(
    context: typer.Context,
    *,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="PATH", help="Configuration file instead of /etc/kernel-runner/config.toml."),
    ] = None,
    version: Annotated[  # noqa: ARG001 the callback does the work
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Evaluate GPU kernel submissions in isolated containers, from a PostgreSQL queue.

    An operator starts with `check`, `migrate` and `serve`; an author of tasks with `task new` and `task check`;
    a participant with `submit` and `status`. DATABASE_URL or the configuration names the database.
    """
    # Until a command knows better (`serve`): warnings only, for people, and never on stdout.
    logs.configure("console", "warning")
    context.obj = Session(config_path=config)


def out(renderable: RenderableType) -> None:
    """Print something for people on stdout: colours and wrapping on a terminal only."""
    target = console(stderr=False)
    if target.is_terminal:
        target.print(renderable)
        return
    with target.capture() as capture:
        target.print(renderable)
    # Tables pad their cells; a file or a diff should not hold the padding.
    typer.echo("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()), nl=False)


def note(message: str) -> None:
    """Tell the person something that is not data, on stderr."""
    console(stderr=True).print(message, markup=False, highlight=False)


def out_json(value: Json | Sequence[Json]) -> None:
    """Print one JSON document on stdout, ASCII only, so that no terminal and no pipe can mistake it.

    JSON has no word for a number that is none, or not finite: it becomes null.
    """
    try:
        text = json.dumps(value, indent=2, default=_text, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(value), indent=2, default=_text, allow_nan=False)
    typer.echo(text)


def _text(value: object) -> str:
    return value.isoformat() if isinstance(value, date) else str(value)


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def login_name(instead: str) -> str:
    """The login name of this process's user.

    Raises:
        ConfigError: it has none; `instead` is what to do.
    """
    try:
        return getpass.getuser()
    except (KeyError, OSError) as error:
        raise ConfigError(f"this process has no login name; {instead}") from error


def fail(message: str) -> None:
    """Say on stderr why the command ends; one or two sentences, no traceback."""
    # libpq continues its sentences on indented lines; lists of findings stay lists. Errors repeat what they were given.
    typer.echo(f"kernel-runner: {printable(_CONTINUATION.sub(' ', message))}", err=True)


def console(*, stderr: bool) -> Console:
    """A console on the current stdout or stderr."""
    stream = sys.stderr if stderr else sys.stdout
    terminal = stream.isatty()
    target = Console(
        file=stream,
        force_terminal=terminal,
        no_color=None if terminal else True,
        width=None if terminal else _UNBOUNDED_WIDTH,
        highlight=False,
        emoji=False,
        markup=False,
        soft_wrap=not terminal,
    )
    if target.width < _NARROWEST:
        target.width = _USUAL_WIDTH
    if not target.height:
        target.height = _USUAL_HEIGHT
    return target


def example(*texts: str) -> str:
    """The epilog of a command: examples, kept line by line. Below the first line of a text stands what it prints."""
    lines = ["Example:" if len(texts) == 1 else "Examples:"]
    for text in texts:
        command, *printed = text.splitlines()
        lines += [f"  {command}", *(f"    {line}".rstrip() for line in printed)]
    # Each paragraph needs the mark that keeps its lines apart.
    return "\b\n" + "\n".join(lines).replace("\n\n", "\n\n\b\n")
