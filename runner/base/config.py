"""The configuration of a host: one TOML file, overridden by the environment, validated once.

Owns every setting's name, default, meaning and example. The string below a field of `Config` is its description.
docs/configuration.md is made of all that (`python -m tests.unit.config.page`).
`runner.base.environment` reads the process's environment. Must not connect to anything.

Pydantic validates; pydantic-settings does not read. It passes over unknown variables, and its errors do not say which
file or variable a value is from. Both would have to be written around it, and so would the credential and the hidden
passwords.

Precedence, highest first: `KERNEL_RUNNER_<KEY>`; `DATABASE_URL` and `DOCKER_HOST`; systemd's credential `database_url`;
the file; what the file's `database_url_file` names; the default.
"""

from __future__ import annotations

import json
import os
import re
import socket
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError, field_validator, model_validator
from pydantic_core.core_schema import ValidationInfo

from runner.base import database_address
from runner.base.environment import PATH_VARIABLE, PREFIX, credential_file, nearest, overrides, process_environment
from runner.base.errors import ConfigError
from runner.base.marks import ENCODING

DEFAULT_PATH: Final = Path("/etc/kernel-runner/config.toml")
#: Ten days. No clock of a thread, a container or the database takes times without an end.
_LONGEST_S: Final = 864_000.0
_EXAMPLE_URL: Final = "postgresql://runner@db.example/kernelbot"
_SECRET: Final = frozenset({"database_url"})
_WEBHOOK_SECRETS: Final = "webhook_secrets"
_WEBHOOK_SECRET: Final = re.compile("whsec_([A-Za-z0-9+/]{4}){8,21}([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
#: The shortest token for the gateway's admin routes.
_TOKEN_CHARS: Final = 16


class SlotConfig(BaseModel):
    """One slot as the operator writes it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    gpu_type: str = Field(min_length=1)
    """Name or alias of the GPU type."""
    devices: tuple[str, ...] = ()
    """UUIDs, PCI addresses or indices, as many as the type's `count`. The CPU type has none."""
    cpus: tuple[Annotated[int, Field(ge=0)], ...] = ()
    """Logical processors of its containers. Without it, an equal share of those that no slot names."""

    @field_validator("devices", mode="before")
    @classmethod
    def _indices(cls, value: object) -> object:
        """Let a device be written as its bare index."""
        if isinstance(value, list | tuple):
            return tuple(str(item) if isinstance(item, int) and not isinstance(item, bool) else item for item in value)
        return value


#: What webhooks tell of leaderboards.
BOARD_EVENTS: Final = ("record.new", "ranking.top3", "board.opened", "board.closed", "board.final")
_WebhookEvent = Literal[
    "record.new", "ranking.top3", "board.opened", "board.closed", "board.final", "host.lost", "host.back"
]


class WebhookConfig(BaseModel):
    """One target of webhooks as the operator writes it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")
    """What commands and logs call it: `a` to `z`, digits, `-` and `_`."""
    format: Literal["discord", "slack", "json"]
    """`"discord"`, `"slack"`, or `"json"`, which is signed."""
    url: str | None = Field(default=None, pattern=r"^https?://[^\s/?#]", repr=False)
    """Its address, unless `webhook_secrets_file` has it."""
    events: tuple[_WebhookEvent, ...] = Field(default=BOARD_EVENTS, min_length=1)
    """The events that it gets. Without it, all but those of hosts."""
    boards: tuple[str, ...] | None = Field(default=None, min_length=1)
    """The leaderboards whose events it gets. Without it, all public ones. `webhook list` says which are not there."""


class WebhookSecret(BaseModel):
    """What the file of secrets holds of one target."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    url: str | None = Field(default=None, pattern=r"^https?://[^\s/?#]", repr=False)
    secret: str | None = Field(default=None, repr=False)

    @field_validator("secret")
    @classmethod
    def _a_key(cls, value: str | None) -> str | None:
        if value is not None and not _WEBHOOK_SECRET.fullmatch(value):
            raise ValueError("expected whsec_ and 24 to 64 bytes in base64")
        return value


def _kind(value: object) -> str:
    """Which branch of `"auto" or ...` the operator meant, so that an error speaks of that one only."""
    return "word" if isinstance(value, str) and not re.fullmatch(r"-?\d+", value) else "value"


@dataclass(frozen=True, kw_only=True)
class HttpAddress:
    """Where health and metrics are served: a TCP address, or the path of a unix socket."""

    host: str | None = None
    port: int = 0
    path: Path | None = None

    @classmethod
    def parse(cls, text: str, *, directory: Path) -> HttpAddress | None:
        """What `http_listen` says; a relative path is below `directory`; None: `off`.

        Raises:
            ValueError: it says nothing of that kind.
        """
        if text == "off":
            return None
        kind, _, path = text.partition(":")
        if kind == "unix" and path:
            return cls(path=directory / path)
        host, colon, port = text.rpartition(":")
        bare = host.removeprefix("[").removesuffix("]")
        bracketed = host != bare
        numbered = port.isascii() and port.isdigit() and int(port) <= 65535
        if not (colon and bare and numbered and bracketed == (":" in bare) and not re.search(r"[\s/\[\]]", bare)):
            raise ValueError(
                '"unix:PATH" (a relative path is below state_dir), "HOST:PORT" with a port from 0 to 65535, '
                '"[IPV6]:PORT", or "off"'
            )
        return cls(host=bare, port=int(port))

    def __str__(self) -> str:
        if self.path is not None:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in (self.host or "") else f"{self.host}:{self.port}"


#: Keys that hold lists of tables.
TABLES: Final[Mapping[str, type[BaseModel]]] = {"slots": SlotConfig, "webhooks": WebhookConfig}
_Word = Annotated[Literal["auto"], Tag("word")]
_Slots = Annotated[_Word | Annotated[tuple[SlotConfig, ...], Tag("value")], Discriminator(_kind)]
_Count = Annotated[_Word | Annotated[int, Field(ge=0, le=1024), Tag("value")], Discriminator(_kind)]


class Config(BaseModel):
    """Every setting. Frozen; its repr holds no password."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, allow_inf_nan=False)

    database_url: str | None = Field(
        default=None,
        repr=False,
        min_length=1,
        examples=["postgresql://runner@db.example/kernelbot?sslmode=verify-full&sslrootcert=/etc/kernel-runner/ca.crt"],
    )
    """
    Connection string of PostgreSQL: a `postgresql://` URL or `key=value` words. It leads to the server itself or to a
    pooler in session mode, because a daemon listens for notifications; for one in transaction mode, see `direct_host`.
    Over a network, ask for encryption as in the
    example ([security.md](security.md#the-database)). With two servers, name both:
    `postgresql://runner@db1,db2/kernelbot`. No output and no log shows its password. Usually the credential,
    `database_url_file` or `DATABASE_URL` sets it.
    """
    database_url_file: Path | None = Field(default=None, examples=["/etc/kernel-runner/credentials/database_url"])
    """
    A file whose one line is `database_url`, so that the configuration holds no secret. Its owner is root, its mode
    0600. It counts where nothing else gives `database_url`. The service cannot read it: systemd reads it at each start
    and hands it over as a credential. So a new password needs a [restart](operations.md#a-new-password).
    """
    direct_host: str | None = Field(default=None, min_length=1, examples=["db.example:5432"])
    """
    Set it where `database_url` leads to a pooler in transaction mode, such as PgBouncer: the server itself, as `HOST`
    or `HOST:PORT` (5432). The daemon's one connection for notifications goes there, with the user, password and
    database of `database_url`, and so do `migrate`, the gateway and data exports. All others go through the pooler,
    prepare no statements and set nothing beyond a transaction.
    """
    docker_host: str | None = Field(default=None, min_length=1, examples=["unix:///run/docker.sock"])
    """
    Where the container engine listens. Without it, at the engine's own default socket. `DOCKER_HOST` sets it, too.
    """
    host_name: str = Field(
        default_factory=socket.gethostname, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$", examples=["gpu-07"]
    )
    """
    The host's name in the database: it owns leases and appears in `kernel-runner host list`. Letters, digits, `.`, `_`
    and `-`. Two daemons must not share it: the second one waits until the first has stopped.
    """
    state_dir: Path = Field(default=Path("/var/lib/kernel-runner"), examples=["/data/kernel-runner"])
    """
    Where the daemon keeps what survives a job: the staged harness, results that wait for the database (`spool/`), and
    the host's id (`instance`) and private key (`receipt.key`). It must be on a disk that survives a restart. One daemon
    per directory. It belongs to the service's user; another one than the default is also named in a drop-in
    (`ReadWritePaths=`, as in `site.conf`).
    """
    eval_python: Path | None = Field(default=None, examples=["/opt/kernel-runner/eval/bin/python"])
    """
    The interpreter of the evaluation environment, in which submissions run: torch, numpy and what your tasks import.
    `kernel-runner serve` needs it. It must not be the daemon's own environment, since submissions can import everything
    in it.
    """
    gpus_dir: Path = Field(default=Path("/etc/kernel-runner/gpus.d"), examples=["/srv/gpu-types"])
    """Directory with your own [GPU types](adding-a-gpu-type.md). It need not exist."""
    slots: _Slots = Field(
        default="auto",
        examples=[
            [
                {"gpu_type": "H100", "devices": ["GPU-5f1b2c3d-0000-0000-0000-000000000001"]},
                {"gpu_type": "MY_H100", "devices": [1], "cpus": [32, 33, 34, 35]},
            ],
            [
                {"gpu_type": "L4x4", "devices": [0, 1, 2, 3]},
                {"gpu_type": "L4", "devices": [4]},
            ],
        ],
    )
    """
    What runs here at the same time. `"auto"` makes one slot per accelerator whose name belongs to a GPU type, plus
    `cpu_slots`. A list makes exactly its slots. The first example below has two H100, one under another board's name
    for it. In the second one, four L4 serve a board of four devices, and one serves boards of one.

    Only a list makes slots of types with several devices (`L4x4`, `MI300x8`) and of types with `detect = false`. No
    device and no core can be in two slots. The variable `KERNEL_RUNNER_SLOTS` takes `auto` or the list as JSON.
    """
    cpu_slots: _Count = Field(default="auto", examples=[4])
    """
    Slots of the CPU type where `slots` is `"auto"`; a list in `slots` overrides it. `"auto"` is half the cores (at
    least one) on a host without accelerator. Beside accelerators it is none, because CPU slots would disturb their
    timings. Each slot takes two cores, if there are as many.
    """
    reserve_cpus: int = Field(default=0, ge=0, examples=[8])
    """
    So many of the lowest-numbered cores belong to no slot, unless a slot names them. They serve the daemon, the engine,
    compilers (`build_workers`), imports for the next jobs (`warm_containers`) and the rest of the system. On a GPU host
    leave some, best as many as a slot has.
    """
    lease_s: float = Field(default=25.0, ge=1.0, le=3600.0, examples=[60.0])
    """
    How long a claimed job stays this host's without a sign of life. After that any daemon puts it back in the queue. So
    jobs of a dead host wait for about `lease_s` plus `poll_s`.
    """
    heartbeat_s: float = Field(default=5.0, gt=0.0, examples=[2.0])
    """
    How often the daemon renews leases while jobs run; at most a third of `lease_s`. It also bounds how late the daemon
    hears of a cancellation whose announcement was lost. If the database does not answer a heartbeat within a fifth of
    `lease_s` (at least 1, at most 15 seconds), the daemon sends it again on another connection.
    """
    poll_s: float = Field(default=2.0, gt=0.0, le=300.0, examples=[5.0])
    """
    The longest time between two looks at the queue. The database announces new jobs at once; polling finds those whose
    announcement was lost. Pauses vary at random between 75 % and 97 % of this value.
    """
    drain_timeout_s: float = Field(default=1800.0, ge=0.0, le=_LONGEST_S, examples=[600.0])
    """
    How long a stopping daemon waits for its current runs. Then it gives them back to the queue, at no cost to the
    submissions. The service manager must wait longer than this.
    """
    max_attempts: int = Field(default=3, ge=1, le=100, examples=[5])
    """
    A job that has failed this often through no fault of its submission ends as `internal_error`. This key and the four
    below hold for the whole queue: each `migrate` and `install --migrate` writes its machine's, and daemons read none.
    """
    retry_pause_s: float = Field(default=5.0, ge=0.0, le=86400.0, examples=[30.0])
    """
    How long a job waits after the first such failure. The pause doubles with each further one.
    """
    retry_pause_max_s: float = Field(default=300.0, ge=0.0, le=86400.0, examples=[60.0])
    """
    The longest of these pauses.
    """
    max_lost_leases: int = Field(default=5, ge=1, le=100, examples=[3])
    """
    A job whose lease was lost this often ends as `internal_error`: it is assumed to kill daemons.
    """
    max_unanswered_claims: int = Field(default=3, ge=0, le=100, examples=[10])
    """
    How many claims of a job may remain without an answer, because the connection broke, before each further one
    counts as a lost lease.
    """
    build_timeout_s: float = Field(default=120.0, gt=0.0, le=_LONGEST_S, examples=[300.0])
    """
    How long nvcc may take, or a submission's first import, which compiles its extensions. It applies once to the build
    and once more to the run. The task's own time limits begin after that.
    """
    max_run_s: float = Field(default=7200.0, gt=0.0, le=_LONGEST_S, examples=[3600.0])
    """
    The longest evaluation of one job, its builds included, whatever limits its task has. If a run has not ended two
    minutes after that, the daemon stops it and counts a failure of the host. If it has not let go five minutes later,
    the daemon leaves the job to another host. The slot stays out of use until the run ends or the daemon restarts.
    """
    warm_containers: int = Field(default=2, ge=0, le=16, examples=[1])
    """
    How many started containers wait per slot, with torch imported, so that submissions start at once; 0 turns it off.
    Each takes about half a GiB of memory. It serves one job; also further groups of its batch, or, on a CPU, the secret
    run after its public one ([how](security.md#between-two-requests)). Else two serve a ranked submission. It fits jobs
    of the GPU type, image, limits and programs that it was started with. Where at least as many cores as a slot has
    belong to no slot (`reserve_cpus`), the next containers import torch on those while a job runs, which shortens the
    slot's waits. Else the daemon starts them while the slot is free, or while its next job would have to wait for one
    anyway. `kernel-runner host list --json` shows the number (`slots[].warm_containers`).
    """
    build_workers: _Count = Field(default="auto", examples=[2])
    """
    How many submissions compile at the same time on cores that no slot uses (`reserve_cpus`), each before its run and
    without its device. `"auto"` is one. Candidates of a group compile side by side, so hosts for trainers gain by more.
    Where every core belongs to a slot, a submission compiles on its own slot's cores before its run, and a candidate in
    its run; with 0, both in the run. Each worker needs as much memory as a run on the host's largest GPU type. While
    slots are busy, a worker also refuses waiting files that are no Python, or that nvcc refuses
    ([how](architecture.md#early-checks)).
    """
    min_free_gib: float = Field(default=2.0, ge=0.0, examples=[10.0])
    """
    How much must be free on the disks of `state_dir` and of the engine's data (`docker info`: Docker Root Dir, and
    /var/lib/containerd where containerd keeps the images), beside a thousand inodes. With less, the daemon is not ready
    and claims nothing; runs go on. It claims again by itself when there is room. `kernel-runner check` shows the
    places. 0 turns it off.
    """
    retention_days: float = Field(default=30.0, ge=1.0, le=36500.0, examples=[90.0])
    """
    How long the database keeps evidence of late results, events, the reports of attempts that count for nothing, and
    results that were replaced. The daemons remove what is older about once an hour
    ([what, exactly](operations.md#what-is-forgotten-and-when)). Results that count and rankings are never removed.
    """
    http_listen: str = Field(default="unix:http.sock", examples=["127.0.0.1:9469"])
    """
    Where the daemon answers `/healthz`, `/readyz` and `/metrics` ([Monitoring](operations.md#monitoring)).
    `"unix:PATH"` is a socket for the daemon's user and group; a relative path is below `state_dir`. `"HOST:PORT"` (for
    IPv6 `"[::1]:PORT"`) has neither encryption nor a password, so put any address but `127.0.0.1` and `::1` behind a
    firewall. `"off"` turns it off. If the address cannot be had, the daemon logs that and goes on without.
    """
    gateway_listen: str = Field(default="127.0.0.1:8000", examples=["0.0.0.0:8000"])
    """
    Where `kernel-runner gateway` serves HTTP ([gateway.md](gateway.md)): `"HOST:PORT"`, `"[IPV6]:PORT"`, or
    `"unix:PATH"` for a proxy on this host (a relative path is below `state_dir`). Under systemd the unit
    `kernel-runner-gateway.socket` says where instead. The gateway has no encryption of its own. The daemon reads none
    of the keys that begin with `gateway_`.
    """
    gateway_admin_token_file: Path | None = Field(
        default=None, examples=["/etc/kernel-runner/credentials/gateway_admin_token"]
    )
    """
    A file whose one line is the token for the gateway's admin routes, at least 16 characters. systemd's credential
    `gateway_admin_token` goes before it. Without either, no admin route is open.
    """
    gateway_trusted_proxies: str = Field(default="127.0.0.1,::1", examples=["10.0.0.5,10.0.1.0/24"])
    """
    Addresses whose `X-Forwarded-For` and `X-Forwarded-Proto` the gateway believes, separated by commas. Limits per
    address need this behind a proxy; `"*"` lets every client forge its address.
    """
    gateway_connections: int = Field(default=8, ge=1, le=100, examples=[16])
    """How many connections to the database the gateway opens at most, beside one that listens for events."""
    gateway_requests_per_minute: int = Field(default=600, ge=1, examples=[1200])
    """
    How many requests of one user the gateway answers in a minute; a waiting popcorn-cli sends twelve. An address
    without a valid login has half as many, and a fiftieth as many attempts to log in.
    """
    gateway_streams: int = Field(default=2000, ge=1, examples=[500])
    """
    How many streams of submissions' events the gateway holds open at most; one user has a tenth of them. As many
    watchers of live pages may be there; half of them from one address.
    """
    gateway_problems_dir: Path | None = Field(default=None, examples=["/srv/reference-kernels/problems"])
    """
    A folder with tasks and competition files, from which the admin routes make leaderboards. The gateway downloads
    nothing: keep the folder up to date yourself.
    """
    gateway_publish_url_file: Path | None = Field(
        default=None, examples=["/etc/kernel-runner/credentials/gateway_publish_url"]
    )
    """
    A file whose one line is the address of the database for a login that may write leaderboards, the owner's: the
    gateway's own may not. systemd's credential `gateway_publish_url` goes before it. Without either, the admin routes
    that make leaderboards answer 501. Set it only where holders of the admin token may also read the hidden cases.
    """
    gateway_public_url: str | None = Field(
        default=None, pattern=r"^https?://[^\s/?#]+(/[^\s?#]*)?$", examples=["https://kernels.example"]
    )
    """
    The address under which people reach the gateway, without a path: links of its pages begin at `/`. Feeds, and what
    chats show of a link, name it. Logins by OAuth come back to it: register `<gateway_public_url>/auth/cli/github` or
    `/auth/cli/discord` with the provider.
    """
    gateway_github_client_id: str | None = Field(default=None, min_length=1, examples=["Ov23liExample"])
    """The client id of your OAuth application at GitHub; with it, people can log in by GitHub."""
    gateway_github_secret_file: Path | None = Field(
        default=None, examples=["/etc/kernel-runner/credentials/gateway_github_secret"]
    )
    """The client secret of that application, one line. systemd's credential `gateway_github_secret` goes before it."""
    gateway_github_url: str = Field(
        default="https://github.com", pattern=r"^https?://", examples=["https://github.example.com"]
    )
    """Where GitHub is; another address is a GitHub Enterprise Server."""
    gateway_discord_client_id: str | None = Field(default=None, min_length=1, examples=["1098765432109876543"])
    """The client id of your OAuth application at Discord; with it, people can log in by Discord."""
    gateway_discord_secret_file: Path | None = Field(
        default=None, examples=["/etc/kernel-runner/credentials/gateway_discord_secret"]
    )
    """The client secret of that application, one line. systemd's credential `gateway_discord_secret` goes before it."""
    gateway_discord_url: str = Field(
        default="https://discord.com", pattern=r"^https?://", examples=["http://127.0.0.1:8001"]
    )
    """Where Discord is; another address is a stand-in for tests."""
    discord_token_file: Path | None = Field(default=None, examples=["/etc/kernel-runner/credentials/discord_token"])
    """
    The token of your bot at Discord, one line; `kernel-runner discord` needs it ([discord.md](discord.md)). systemd's
    credential `discord_token` goes before it.
    """
    discord_guild_id: int | None = Field(default=None, ge=1, examples=[1098765432109876543])
    """
    The server in which the bot offers its commands, and whose roles count. Without it, in all that it is a member of;
    roles then count while it is in one alone.
    """
    discord_channel_id: int | None = Field(default=None, ge=1, examples=[1098765432109876544])
    """The channel for verdicts of ranked submissions. Without it, each goes to the channel of its command."""
    discord_creator_role: str = Field(default="Leaderboard Creator", min_length=1, examples=["Author"])
    """The role of the server whose members may create leaderboards."""
    discord_admin_role: str = Field(default="Leaderboard Admin", min_length=1, examples=["Moderator"])
    """The role of the server whose members may also delete them, stop and start submissions, and ban users."""
    discord_publish_url_file: Path | None = Field(
        default=None, examples=["/etc/kernel-runner/credentials/discord_publish_url"]
    )
    """
    As `gateway_publish_url_file`, for `/leaderboard create`: the address of the database for a login that may write
    leaderboards. systemd's credential `discord_publish_url` goes before it. Without either, that command is refused.
    """
    webhooks: tuple[WebhookConfig, ...] = Field(
        default=(),
        examples=[
            [
                {"name": "news", "format": "discord"},
                {
                    "name": "pager",
                    "format": "json",
                    "events": ["host.lost", "host.back"],
                    "url": "https://ops.example/x",
                },
            ]
        ],
    )
    """
    Where `kernel-runner webhook run` tells what happens ([webhooks.md](webhooks.md)). In the file also as tables at its
    end, `[[webhooks]]`; `KERNEL_RUNNER_WEBHOOKS` takes the list as JSON.
    """
    webhook_secrets_file: Path | None = Field(default=None, examples=["/etc/kernel-runner/credentials/webhook_secrets"])
    """
    A TOML file with the addresses of these webhooks, which are secrets for Discord and Slack (`news.url = "..."`), and
    the secrets that JSON is signed with (`pager.secret = "whsec_..."`). systemd's credential `webhook_secrets` goes
    before it.
    """
    webhook_private_networks: str = Field(default="", examples=["10.1.0.0/16,fd00:1::/32"])
    """
    Networks that webhooks of single leaderboards may reach beside public addresses, separated by commas. Those of the
    configuration may reach any address.
    """
    log_format: Literal["auto", "json", "console"] = Field(default="auto", examples=["json"])
    """
    `"json"` is one object per line, for the journal. `"console"` is for people. `"auto"` is console on a terminal and
    JSON elsewhere.
    """
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", examples=["debug"])
    """The least severe lines to log: `"debug"`, `"info"`, `"warning"` or `"error"`."""

    @field_validator("gateway_public_url")
    @classmethod
    def _without_a_path(cls, value: str | None) -> str | None:
        if urlsplit(value or "").path.strip("/"):
            raise ValueError(
                "an address without a path, since links of the gateway's pages begin at /; let the proxy give it a "
                "name of its own, e.g. https://kernels.example"
            )
        return value

    @field_validator(
        "database_url_file",
        "state_dir",
        "eval_python",
        "gpus_dir",
        "gateway_admin_token_file",
        "gateway_problems_dir",
        "gateway_publish_url_file",
        "gateway_github_secret_file",
        "gateway_discord_secret_file",
        "discord_token_file",
        "discord_publish_url_file",
        "webhook_secrets_file",
    )
    @classmethod
    def _absolute(cls, value: Path | None) -> Path | None:
        if value is not None and not value.is_absolute():
            raise ValueError("an absolute path: a service has no working directory to speak of")
        return value

    @field_validator("*", mode="before")
    @classmethod
    def _no_switch(cls, value: object) -> object:
        if isinstance(value, bool):
            # As a number it would be 0 or 1.
            raise ValueError("a text, a number or a list: no key is true or false")  # noqa: TRY004 pydantic collects it
        return value

    @field_validator("http_listen")
    @classmethod
    def _an_address(cls, value: str) -> str:
        HttpAddress.parse(value, directory=Path("/"))
        return value

    @field_validator("gateway_listen")
    @classmethod
    def _a_place_to_serve(cls, value: str) -> str:
        if HttpAddress.parse(value, directory=Path("/")) is None:
            raise ValueError('"HOST:PORT", "[IPV6]:PORT" or "unix:PATH"')
        return value

    @field_validator("webhooks")
    @classmethod
    def _one_of_each_name(cls, value: tuple[WebhookConfig, ...]) -> tuple[WebhookConfig, ...]:
        if len({webhook.name for webhook in value}) < len(value):
            raise ValueError("each name once")
        return value

    @field_validator("gateway_trusted_proxies", "webhook_private_networks")
    @classmethod
    def _networks(cls, value: str, info: ValidationInfo) -> str:
        if (info.field_name, value) == ("gateway_trusted_proxies", "*"):
            return value
        for network in filter(None, value.split(",")):
            try:
                ip_network(network.strip())
            except ValueError as error:
                raise ValueError(f"addresses and networks, separated by commas: {error}") from None
        return value

    @model_validator(mode="after")
    def _heartbeats_fit_the_lease(self) -> Self:
        if self.heartbeat_s > self.lease_s / 3:
            raise ValueError(
                f"heartbeat_s={self.heartbeat_s:g} and lease_s={self.lease_s:g}: expected heartbeat_s to be at most a "
                "third of lease_s, so that two lost heartbeats do not lose a job"
            )
        return self

    @classmethod
    def load(cls, path: Path | None = None, *, environ: Mapping[str, str] | None = None) -> Config:
        """Read the file (`path`, else $KERNEL_RUNNER_CONFIG, else the default path if it exists) and the environment.

        Raises:
            ConfigError: a named file is missing or does not parse, a key is unknown, or a value is wrong.
        """
        environ = process_environment() if environ is None else environ
        if path is None and environ.get(PATH_VARIABLE):
            path = Path(environ[PATH_VARIABLE])
        file = path or DEFAULT_PATH
        values = _read(file, optional=path is None)
        origin = {key: f"{file}: {key}" for key in values}
        credential = credential_file("database_url", environ)
        # The unit has an empty one for hosts that name the database elsewhere.
        if credential is not None and (address := _secret_file(credential)):
            values["database_url"], origin["database_url"] = address, f"credential {credential}"
        for variable, key, text in overrides(environ, list(cls.model_fields)):
            values[key] = _parse(key, text)
            origin[key] = f"environment: {variable}"
        config = _validate(values, origin)
        if config.database_url is None and config.database_url_file is not None:
            with suppress(ConfigError):
                # Only some users may read it, and only some commands need it: see `require_database_url`.
                config = config.model_copy(update={"database_url": _secret_file(config.database_url_file) or None})
        return config

    @property
    def http_address(self) -> HttpAddress | None:
        """Where health and metrics are served; None: nowhere."""
        return HttpAddress.parse(self.http_listen, directory=self.state_dir)

    @property
    def gateway_address(self) -> HttpAddress:
        """Where the gateway serves HTTP."""
        address = HttpAddress.parse(self.gateway_listen, directory=self.state_dir)
        if address is None:
            raise ConfigError("gateway_listen is off")
        return address

    def gateway_admin_token(self, environ: Mapping[str, str] | None = None) -> str | None:
        """The token for the gateway's admin routes: systemd's credential, else the file; None without one.

        Raises:
            ConfigError: the file cannot be read, or the token is too short.
        """
        token = self.secret("gateway_admin_token", environ)
        if token is None:
            return None
        if len(token) < _TOKEN_CHARS or not token.isascii() or not token.isprintable() or " " in token:
            raise ConfigError(
                f"gateway_admin_token: expected one line of at least {_TOKEN_CHARS} ASCII characters without spaces"
            )
        return token

    def webhook_secrets(self, environ: Mapping[str, str] | None = None) -> Mapping[str, WebhookSecret]:
        """The address of each webhook, and what its JSON is signed with, by name.

        Raises:
            ConfigError: the file cannot be read or does not parse, it names no webhook, or one lacks something.
        """
        file = f"the file of {_WEBHOOK_SECRETS}"
        try:
            tables = tomllib.loads(self.secret(_WEBHOOK_SECRETS, environ) or "")
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{file} is not a TOML file: {error}") from None
        names = [webhook.name for webhook in self.webhooks]
        if others := sorted(tables.keys() - set(names)):
            raise ConfigError(f"{file} has {others[0]!r}, expected names of `webhooks`: {', '.join(names) or 'none'}")
        secrets = {}
        for webhook in self.webhooks:
            if not isinstance(tables.get(webhook.name, {}), dict):
                raise ConfigError(f'{file}: {webhook.name}: found a value, expected {webhook.name}.url = "https://..."')
            try:
                entry = WebhookSecret.model_validate(tables.get(webhook.name, {}))
            except ValidationError as error:
                first = error.errors(include_url=False, include_input=False)[0]
                key = ".".join(map(str, first["loc"]))
                raise ConfigError(
                    f"{file}: {webhook.name}.{key}: {first['msg'].removeprefix('Value error, ')}"
                ) from None
            if (entry.url is None) == (webhook.url is None):
                raise ConfigError(f"webhook {webhook.name!r}: expected one `url`, in `webhooks` or in {file}")
            if (entry.secret is None) == (webhook.format == "json"):
                raise ConfigError(
                    f"webhook {webhook.name!r} has format {webhook.format!r}: expected a `secret` in {file} for json, "
                    'and none for others; make one with: echo "whsec_$(openssl rand -base64 32)"'
                )
            secrets[webhook.name] = WebhookSecret(url=entry.url or webhook.url, secret=entry.secret)
        return secrets

    def secret(self, name: str, environ: Mapping[str, str] | None = None) -> str | None:
        """A secret of a frontend: systemd's credential of this name, else the file of the key `<name>_file`.

        Raises:
            ConfigError: the file cannot be read.
        """
        path = credential_file(name, environ)
        # The unit has an empty one for sites that do not need it.
        if path is None or not path.stat().st_size > 1:
            path = getattr(self, f"{name}_file")
        if path is None:
            return None
        try:
            return path.read_text(encoding=ENCODING).strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: cannot be read: {error}; expected one line, {name}") from None

    def require_database_url(self) -> str:
        """The connection string.

        Raises:
            ConfigError: none was given, or the file that holds it cannot be read.
        """
        if self.database_url is None and self.database_url_file is not None:
            address = _secret_file(self.database_url_file)
            if not address:
                raise ConfigError(f"{self.database_url_file} is empty: expected one line, e.g. {_EXAMPLE_URL}")
            return address
        if self.database_url is None:
            raise ConfigError(
                f"no database: set DATABASE_URL or database_url in the configuration, e.g. {_EXAMPLE_URL}"
            )
        return self.database_url

    def require_eval_python(self) -> Path:
        """The interpreter of the evaluation environment.

        Raises:
            ConfigError: none was given, or it cannot be executed.
        """
        if self.eval_python is None:
            raise ConfigError(
                "eval_python is not set: expected the interpreter of an environment with torch and numpy, which "
                "submissions run in and which is not the daemon's, e.g. eval_python = \"/opt/kernel-runner/eval/bin/"
                'python" (or KERNEL_RUNNER_EVAL_PYTHON)'
            )
        try:
            is_file = self.eval_python.is_file()
        except OSError as error:
            raise ConfigError(
                f"eval_python={str(self.eval_python)!r}: {error.strerror}; this user, and every other, must be able to "
                "read the environment"
            ) from error
        if not is_file:
            raise ConfigError(f"eval_python={str(self.eval_python)!r}: no such file, expected a Python interpreter")
        if not os.access(self.eval_python, os.X_OK):
            raise ConfigError(f"eval_python={str(self.eval_python)!r} is not executable; chmod +x it or name another")
        return self.eval_python

    def public(self) -> dict[str, Any]:
        """Every setting as plain data that may be logged: passwords are masked."""
        shown = self.model_dump(mode="json", exclude={"webhooks": {"__all__": {"url"}}})
        if self.database_url is not None:
            shown["database_url"] = database_address.shown(self.database_url)
        return shown


def _read(path: Path, *, optional: bool) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_text(encoding=ENCODING))
    except FileNotFoundError as error:
        if optional:
            return {}
        raise ConfigError(f"{path}: no such configuration file") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not a TOML file: {error}") from error
    for key in values:
        if key not in Config.model_fields:
            near = nearest(key, Config.model_fields)
            raise ConfigError(f"{path}: key {key!r} is not known, the nearest valid key is {near!r}")
    return values


def _secret_file(path: Path) -> str:
    """The one line of a file that holds a secret."""
    try:
        return path.read_text(encoding=ENCODING).strip()
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: found no text, expected one line with the database's address") from None
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read: {error.strerror}; expected the file with the database's address "
            "(database_url_file). Write it as root, mode 0600; the service gets it from systemd, other users need "
            "DATABASE_URL"
        ) from error


def _parse(key: str, text: str) -> object:
    """A list is JSON; everything else is read by pydantic from the text."""
    if key in TABLES and text.lstrip().startswith("["):
        try:
            return json.loads(text)
        except ValueError:
            # The cause would show the text, and with it an address.
            raise ConfigError(f"environment: {PREFIX}{key.upper()} is not JSON") from None
    return text


def _validate(values: Mapping[str, Any], origin: Mapping[str, str]) -> Config:
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key, *rest = [part for part in first["loc"] if part not in ("word", "value")] or [""]
        if not key:
            raise ConfigError(str(first["ctx"]["error"])) from None
        where = origin.get(str(key), f"default: {key}")
        where += "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in rest)
        if first["type"] == "extra_forbidden":
            near = nearest(str(rest[-1]), TABLES[str(key)].model_fields)
            raise ConfigError(f"{where} is not known, the nearest valid key is {near!r}") from None
        # A table of webhooks may hold an address.
        webhook = key == "webhooks" and (rest[-1:] == ["url"] or not isinstance(first["input"], str))
        shown = "a value that is not shown" if key in _SECRET or webhook else repr(first["input"])
        # The cause would print the input, and with it a password.
        raise ConfigError(f"{where}: found {shown}, expected: {first['msg'].removeprefix('Value error, ')}") from None
