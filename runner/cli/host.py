"""`host`: the daemons that have registered, and which of them shall claim nothing more."""

from __future__ import annotations

from typing import Annotated

import typer

from runner.cli import documents, render
from runner.cli.app import ExitCode, app, example, note, out, out_json, session
from runner.cli.progress import ProgressLine
from runner.cli.wait import wait_until
from runner.errors import NotFoundError
from runner.store import HostLine, Store

host = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Hosts: where the daemons run.")
app.add_typer(host, name="host")

_Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the host, as `host list` shows it.")]


@host.command("list", epilog=example("kernel-runner host list", "kernel-runner host list --json"))
def list_hosts(
    context: typer.Context,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the hosts.

    With their state, version, slots and when each was last heard of. A host is up, draining (it finishes what runs and
    claims nothing), silent (not heard of for a minute: it is down, or cannot reach the database) or stopped.
    """
    with session(context).store() as store:
        hosts = store.hosts()
    if as_json:
        out_json(documents.hosts(hosts))
    else:
        out(render.hosts_table(hosts))


@host.command(
    epilog=example(
        "kernel-runner host drain node7 --reason 'new fan'", "kernel-runner host drain node7 --wait && ssh node7 reboot"
    )
)
def drain(
    context: typer.Context,
    *,
    name: _Name,
    reason: Annotated[str | None, typer.Option("--reason", metavar="R", help="Shown in the list of hosts.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until nothing runs there any more.")] = False,
) -> None:
    """Let a host finish what runs and claim nothing more.

    It stays so, through restarts of its daemon too, until `host undrain`. With --wait, the command ends when nothing
    runs there. Ctrl-C ends the waiting, not the draining.
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


@host.command(epilog=example("kernel-runner host undrain node7"))
def undrain(context: typer.Context, *, name: _Name) -> None:
    """Let a drained host claim again.

    Its daemon is called and looks at the queue at once.
    """
    with session(context).store() as store:
        changed = store.undrain(name)
    note(f"host {name} {'claims again' if changed else 'was not draining'}")


def _host(store: Store, name: str) -> HostLine:
    found = next((line for line in store.hosts() if line.name == name), None)
    if found is None:
        raise NotFoundError(f"host {name!r} is gone from the list; `kernel-runner host list` shows those that are left")
    return found


def _running(view: HostLine) -> str:
    jobs = "1 job runs" if view.running == 1 else f"{view.running} jobs run"
    state = render.host_state(view)
    return f"{jobs} on host {view.name}" + ("" if state == "draining" else f", which is {state}")
