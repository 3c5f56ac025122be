"""`host`: the daemons that have registered, and which of them shall claim nothing more."""

from __future__ import annotations

from typing import Annotated

import typer

from runner.base.errors import NotFoundError
from runner.cli import json_output, render_hosts
from runner.cli.app import ExitCode, app, example, note, out, out_json, session
from runner.cli.progress import ProgressLine
from runner.cli.wait import wait_until
from runner.store import HostLine, Store

host = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Hosts: where the daemons run.")
app.add_typer(host, name="host")

_Name = Annotated[str, typer.Argument(metavar="NAME")]


@host.command("list", epilog=example("kernel-runner host list"))
def list_hosts(
    context: typer.Context,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the hosts.

    A host is `up`, `draining`, `silent` (not heard of for a minute: down, or cut off from the database) or `stopped`.
    It is forgotten after a week's absence, unless it drains. A slot that is out of use is named with the reason
    (docs/operations.md#slots-whose-container-does-not-go, docs/operations.md#devices-that-are-not-fit).
    """
    with session(context).store() as store:
        hosts = store.hosts()
    if as_json:
        out_json([json_output.record(line, state=render_hosts.host_state(line)) for line in hosts])
    else:
        out(render_hosts.hosts_table(hosts))


@host.command(epilog=example("kernel-runner host drain node2 --reason 'new fan' --wait && ssh node2 sudo reboot"))
def drain(
    context: typer.Context,
    *,
    name: _Name,
    reason: Annotated[str | None, typer.Option("--reason", metavar="R", help="Shown by `host list`.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until nothing runs there.")] = False,
) -> None:
    """Let a host finish its runs and claim nothing more.

    It lasts until `host undrain`, through restarts too. Ctrl-C ends the waiting, not the draining.
    """
    with session(context).store() as store:
        changed = store.drain(name, reason=reason)
        note(f"host {name} {'claims nothing more' if changed else 'was draining already'}")
        if not wait:
            return
        try:
            with ProgressLine() as line:

                def show(view: HostLine) -> None:
                    line.show(_running(view))

                wait_until(lambda: _host(store, name), lambda view: not view.running, show=show, explain=line.show)
        except KeyboardInterrupt:
            note(
                f"kernel-runner: no longer waiting; host {name} goes on draining. "
                f"End that with `kernel-runner host undrain {name}`."
            )
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        note(f"nothing runs on host {name}")


@host.command(epilog=example("kernel-runner host undrain gpu-07"))
def undrain(context: typer.Context, *, name: _Name) -> None:
    """Let a drained host claim again.

    Its daemon looks at the queue at once.
    """
    with session(context).store() as store:
        changed = store.undrain(name)
    note(f"host {name} {'claims again' if changed else 'was not draining'}")


def _host(store: Store, name: str) -> HostLine:
    host_line = next((line for line in store.hosts() if line.name == name), None)
    if host_line is None:
        raise NotFoundError(f"host {name!r} is gone from the list; `kernel-runner host list` shows those that are left")
    return host_line


def _running(view: HostLine) -> str:
    jobs = "1 job runs" if view.running == 1 else f"{view.running} jobs run"
    state = render_hosts.host_state(view)
    return f"{jobs} on host {view.name}" + ("" if state == "draining" else f", which is {state}")
