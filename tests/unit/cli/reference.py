"""Makes the reference of the command line from the commands; `python -m tests.unit.cli.reference` writes the page.

What a command does stands in its help text, so that `--help` and docs/cli.md agree. This module owns the page's
introduction, the order of its sections, and how a help text becomes Markdown.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import typer

from runner.cli import program

PROGRAM: Final = "kernel-runner"
PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "cli.md"
HEAD: Final = """# The command line

`kernel-runner` is one program for participants, task authors and operators. `--help` after a command prints its section
of this page.

- **Database**: `DATABASE_URL`, or `database_url` in the [configuration](configuration.md): `--config PATH`, else
  `KERNEL_RUNNER_CONFIG`, else `/etc/kernel-runner/config.toml`. `KERNEL_RUNNER_<KEY>` overrides any setting. Most
  commands need a login of [role](security.md#the-database) `runner_operator`, those for task authors the owner's.
- **Output**: data goes to stdout; progress, notes and errors go to stderr. Tables are coloured and wrapped on a
  terminal, plain and complete elsewhere. `--json` prints ASCII, with times in ISO 8601 and scores in seconds.
- **Text of submissions** (output, messages, file names) is shown with control characters as escapes.
- **Errors** are a sentence or two after `kernel-runner:`. A traceback is a defect: please report it.
- **Secret runs**: only verdict and passed runs are shown; output, cases, messages and times could reveal the hidden
  inputs. `--admin` shows everything, to anyone with the database's credentials.

| exit code | meaning |
|---|---|
| 0 | accepted, or done |
| 1 | not accepted (`submit --wait`, `eval`), not ready (`check`), or what else is looked for is wrong or missing |
| 2 | usage: bad arguments, a refused submission, a wrong task or configuration, something that does not exist |
| 3 | infrastructure: database or engine away, an internal error, no verdict within `--timeout` |
| 130 | interrupted with Ctrl-C |
| 141 | the program that read the output has ended |

`kernel-runner --version` prints the version, `--install-completion` sets up completion for your shell.
"""
GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "For participants": (
        *("submit", "status", "artifact", "cancel", "receipt show", "receipt verify"),
        *("leaderboard list", "leaderboard show", "leaderboard template", "mcp"),
    ),
    "For task authors": (
        *("task new", "task check", "eval", "leaderboard create", "leaderboard update"),
        *("leaderboard import", "leaderboard task", "leaderboard delete"),
    ),
    "For trainers": (
        *("batch run", "batch rewards", "batch kernelgym"),
        *("kernelbook synthesize", "kernelbook score"),
        *("kernelbook filter", "kernelbook prompts", "kernelbook best", "kernelbook lengths", "kernelbook upload"),
        "kernelbook scripts",
    ),
    "For operators": (
        *("check", "install", "migrate", "serve"),
        *("failed", "rerun", "invalidate"),
        *("host list", "host drain", "host undrain", "gpu list", "gpu show", "gpu pause", "gpu resume"),
        *("leaderboard pause", "leaderboard resume", "leaderboard validate"),
        *("leaderboard cancel-validations", "leaderboard final"),
        *("gateway", "discord", "user approve", "user token", "user list", "user revoke"),
        *("webhook run", "webhook list", "webhook test", "webhook add", "webhook remove"),
        *("gpu detect", "gpu validate"),
        *("data export", "data verify", "data check", "data top", "data progression", "data summary", "data user"),
        *("data plot", "data publish"),
    ),
}
_LINK: Final = re.compile(r"docs/([\w-]+\.md)(#[\w-]+)?")
#: What typer says behind a parameter's text: its default, its range, that it is required.
_EXTRA: Final = re.compile(r"\s*\[((?:default: |required|[\d.]+<=|x>=).*)\]$")
#: A help text of `--json` that says nothing which the usage line does not.
_JSON: Final = "Print JSON."


def commands() -> Mapping[str, Any]:
    """Every command by its full name, e.g. `leaderboard show`."""
    by_name: dict[str, Any] = {}

    def walk(command: Any, path: tuple[str, ...]) -> None:  # noqa: ANN401 typer does not export its command types
        for name, child in getattr(command, "commands", {}).items():
            if not child.hidden:
                walk(child, (*path, name))
        if not getattr(command, "commands", {}):
            by_name[" ".join(path)] = command

    walk(typer.main.get_command(program([])), ())
    return by_name


def page() -> str:
    """docs/cli.md as it should be.

    Raises:
        ValueError: `GROUPS` lacks a command, or names one that is gone.
    """
    by_name = commands()
    grouped = [name for names in GROUPS.values() for name in names]
    if sorted(grouped) != sorted(by_name):
        raise ValueError(f"GROUPS and the commands differ in {set(grouped) ^ set(by_name)}")
    parts = [HEAD]
    shown: dict[Any, str] = {}
    for title, names in GROUPS.items():
        parts.append(f"## {title}\n")
        for name in names:
            function = inspect.unwrap(by_name[name].callback)
            parts += [f"### `{PROGRAM} {name}`\n", *_section(name, by_name[name], shown.get(function))]
            shown.setdefault(function, name)
    return "\n".join(parts)


def _section(name: str, command: Any, same: str | None) -> Iterator[str]:  # noqa: ANN401 as above
    """The blocks of a command's section; `same` is the command that is the same and was shown before."""
    context = typer.Context(command, info_name=f"{PROGRAM} {name}")
    rows = [row for parameter in command.get_params(context) for row in _row(parameter, context)]
    options = ["[OPTIONS]"] if any(row.startswith(("| `-", "| `--")) for row in rows) else []
    options += ["[--json]" for parameter in command.params if parameter.help == _JSON]
    yield f"    {' '.join([context.command_path, *options, *command.collect_usage_pieces(context)[1:]])}\n"
    if same is not None:
        yield f"The same as [`{same}`](#{PROGRAM}-{same.replace(' ', '-')}).\n"
    else:
        # The items of a list are paragraphs for `--help`, which wraps each by itself.
        text = re.sub(r"(?m)(^- .*(?:\n(?!\n).*)*)\n\n(?=- )", r"\1\n", command.help)
        yield _LINK.sub(r"[\1](\1\2)", text) + "\n"
        if rows:
            yield "\n".join(["| | default | meaning |", "|---|---|---|", *rows]) + "\n"
    yield "\n".join(_examples(command.epilog)) + "\n"


def _row(parameter: Any, context: typer.Context) -> Iterator[str]:  # noqa: ANN401 as above
    """A parameter's row of the table; none where the usage line says all."""
    record = parameter.get_help_record(context)
    if record is None:
        # Hidden: for scripts of ours.
        return
    name, text = record
    if parameter.param_type_name == "argument":
        name = name.partition(" <")[0]
    extra, meaning = _EXTRA.search(text), _EXTRA.sub("", text)
    extent = "" if extra is None else re.sub(r"(; )?x>=0$", "", extra[1].removeprefix("default: "))
    default = re.sub(r"^\((.*)\)$", r"\1", extent)
    if "--help" in parameter.opts or meaning == _JSON or (not meaning and default in ("", "required")):
        return
    cells = (f"`{name}`", default, _LINK.sub(r"[\1](\1\2)", meaning))
    yield " | ".join(("", *(cell.replace("|", "\\|") for cell in cells), "")).strip().replace("|  |", "| |")


def _examples(epilog: str) -> Iterator[str]:
    """Commands with a prompt, and what they print."""
    for line in epilog.replace("\b\n", "").splitlines()[1:]:
        printed = not line or line.startswith("    ")
        yield f"    {line[4:]}".rstrip() if printed else f"    $ {line.strip()}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
