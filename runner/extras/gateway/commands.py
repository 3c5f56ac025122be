"""`gateway`: serve HTTP, for popcorn-cli, kernelboard and people; `user`: who may submit there without OAuth."""

from __future__ import annotations

import secrets
from hashlib import sha256
from typing import Annotated

import typer
from rich.text import Text

from runner.base.errors import ConfigError, NotFoundError
from runner.base.safe import one_line, printable
from runner.cli.app import app, example, note, out, out_json, session
from runner.cli.render import make_table
from runner.extras.config import SiteConfig
from runner.extras.gateway.queries import QUERIES
from runner.extras.optional import missing

_NEEDED = ("starlette", "uvicorn", "jinja2", "markdown_it", "python_multipart", "httpx2")

user = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Users of the gateway: approve, list, revoke.")
app.add_typer(user, name="user")

_User = Annotated[str, typer.Argument(metavar="USER", help="The user's id.")]
_Name = Annotated[str | None, typer.Option("--name", metavar="N", help="The name that rankings show.")]


@app.command(epilog=example("kernel-runner gateway"))
def gateway(context: typer.Context) -> None:
    """Serve KernelBot's HTTP API and pages for people, in the foreground (docs/gateway.md).

    It connects as the login of DATABASE_URL, which needs the role `runner_gateway`, and listens at `gateway_listen`.
    SIGTERM or Ctrl-C ends it; a submission that was accepted goes on.
    """
    absent = missing(*_NEEDED)
    if absent:
        raise ConfigError(
            f"the gateway needs {', '.join(absent)}, which this environment has not: install kernel-runner[gateway]"
        )
    from runner.extras.gateway.server import serve

    serve(SiteConfig.load(session(context).config_path))


@user.command(epilog=example("kernel-runner user approve 1b9d6bcd ada --name 'Ada L.'"))
def approve(
    context: typer.Context,
    *,
    code: Annotated[str, typer.Argument(metavar="CODE", help="The first 8 characters of cli_id in ~/.popcorn.yaml.")],
    user_id: _User,
    name: _Name = None,
    existing: Annotated[
        bool, typer.Option("--existing", help="The user exists: this login takes the place of the one before.")
    ] = False,
) -> None:
    """Approve a login that `popcorn register` began.

    Ask the person for the code over a channel that proves who asks. It waits for twelve hours.
    """
    with session(context).store() as store:
        store.all(QUERIES["approve_login"], code=code, user_id=user_id, user_name=name, existing=existing)
    note(f"user {printable(user_id)} is logged in")


@user.command(epilog=example("kernel-runner user token ada"))
def token(context: typer.Context, *, user_id: _User, name: _Name = None) -> None:
    """Make a token for a user and print it, once.

    The user is made if there is none. The token before ends. It goes into ~/.popcorn.yaml as `cli_id`, into the header
    X-Popcorn-Cli-Id, or into the login page. Only a digest of it is stored.
    """
    secret = secrets.token_urlsafe(24)
    digest = f"sha256:{sha256(secret.encode()).hexdigest()}"
    with session(context).store() as store:
        store.all(QUERIES["set_token"], user_id=user_id, user_name=name, digest=digest)
    typer.echo(f"cli_id: {secret}")


@user.command("list", epilog=example("kernel-runner user list"))
def list_users(
    context: typer.Context, *, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
) -> None:
    """List the users, those who wait for approval first.

    A user `waits` for approval, is `valid`, has `no login`, or is `banned`.
    """
    with session(context).store() as store:
        users = store.all(QUERIES["users"])
    if as_json:
        out_json(users)
        return
    table = make_table("user", "name", "state", "login by", "since")
    for line in users:
        since = "" if line["created_at"] is None else f"{line['created_at']:%Y-%m-%d %H:%M}"
        cells = (line["user_id"], line["user_name"] or "", line["state"], line["provider"] or "", since)
        table.add_row(*(Text(one_line(cell)) for cell in cells))
    out(table)


@user.command(epilog=example("kernel-runner user revoke ada"))
def revoke(context: typer.Context, *, user_id: _User) -> None:
    """End all logins of a user, in browsers too.

    Submissions and invitations stay. `user token` lets the user in again.
    """
    with session(context).store() as store:
        if not store.all(QUERIES["revoke_login"], user_id=user_id)[0]["revoked"]:
            raise NotFoundError(f"user {user_id!r} does not exist; `kernel-runner user list` shows those that do")
    note(f"user {printable(user_id)} is logged out")
