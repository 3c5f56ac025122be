"""The configuration's keys of guests, beside those of the core (`runner.base.config`, which also reads the file)."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import ClassVar, Final, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core.core_schema import ValidationInfo

from runner.base.config import AbsolutePath, Config, HttpAddress
from runner.base.environment import credential_file
from runner.base.errors import ConfigError
from runner.base.expectations import expectation
from runner.base.marks import ENCODING

_WEBHOOK_SECRETS: Final = "webhook_secrets"
_WEBHOOK_SECRET: Final = re.compile("whsec_([A-Za-z0-9+/]{4}){8,21}([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
#: The shortest token for the gateway's admin routes.
_TOKEN_CHARS: Final = 16

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
    url: str | None = Field(default=None, pattern=r"^https?://[^\s/?#]", repr=False, exclude=True)
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
            raise ValueError("whsec_ and 24 to 64 bytes in base64")
        return value


class SiteConfig(Config):
    """The keys of the core and of all guests: what commands load, so that a wrong key of any is an error in each."""

    tables: ClassVar[Mapping[str, type[BaseModel]]] = {**Config.tables, "webhooks": WebhookConfig}

    gateway_listen: str = Field(default="127.0.0.1:8000", examples=["0.0.0.0:8000"])
    """
    Where `kernel-runner gateway` serves HTTP ([gateway.md](gateway.md)): `"HOST:PORT"`, `"[IPV6]:PORT"`, or
    `"unix:PATH"` for a proxy on this host (a relative path is below `state_dir`). Under systemd the unit
    `kernel-runner-gateway.socket` says where instead. The gateway has no encryption of its own.
    """
    gateway_admin_token_file: AbsolutePath | None = Field(
        default=None, examples=["/etc/kernel-runner/credentials/gateway_admin_token"]
    )
    """
    The token for the gateway's admin routes, at least 16 characters. Without it, no admin route is open.
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
    gateway_problems_dir: AbsolutePath | None = Field(default=None, examples=["/srv/reference-kernels/problems"])
    """
    A folder with tasks and competition files, from which the admin routes make leaderboards. The gateway downloads
    nothing: keep the folder up to date yourself.
    """
    gateway_publish_url_file: AbsolutePath | None = Field(
        default=None, examples=["/etc/kernel-runner/credentials/gateway_publish_url"]
    )
    """
    The address of the database for a login that may write leaderboards, the owner's. Without it, the admin routes that
    make leaderboards answer 501. Set it only where holders of the admin token may also read the hidden cases.
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
    gateway_github_secret_file: AbsolutePath | None = Field(
        default=None, examples=["/etc/kernel-runner/credentials/gateway_github_secret"]
    )
    """The client secret of that application."""
    gateway_github_url: str = Field(
        default="https://github.com", pattern=r"^https?://", examples=["https://github.example.com"]
    )
    """Where GitHub is; another address is a GitHub Enterprise Server."""
    gateway_discord_client_id: str | None = Field(default=None, min_length=1, examples=["1098765432109876543"])
    """The client id of your OAuth application at Discord; with it, people can log in by Discord."""
    gateway_discord_secret_file: AbsolutePath | None = Field(
        default=None, examples=["/etc/kernel-runner/credentials/gateway_discord_secret"]
    )
    """The client secret of that application."""
    gateway_discord_url: str = Field(
        default="https://discord.com", pattern=r"^https?://", examples=["http://127.0.0.1:8001"]
    )
    """Where Discord is; another address is a stand-in for tests."""
    discord_token_file: AbsolutePath | None = Field(
        default=None, examples=["/etc/kernel-runner/credentials/discord_token"]
    )
    """
    The token of your bot at Discord; `kernel-runner discord` needs it ([discord.md](discord.md)).
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
    discord_publish_url_file: AbsolutePath | None = Field(
        default=None, examples=["/etc/kernel-runner/credentials/discord_publish_url"]
    )
    """
    As `gateway_publish_url_file`, for `/leaderboard create`. Without it, that command is refused.
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
    webhook_secrets_file: AbsolutePath | None = Field(
        default=None, examples=["/etc/kernel-runner/credentials/webhook_secrets"]
    )
    """
    A TOML file with the addresses of these webhooks, which are secrets for Discord and Slack (`news.url = "..."`), and
    the secrets that JSON is signed with (`pager.secret = "whsec_..."`).
    """
    webhook_private_networks: str = Field(default="", examples=["10.1.0.0/16,fd00:1::/32"])
    """
    Networks that webhooks of single leaderboards may reach beside public addresses, separated by commas. Those of the
    configuration may reach any address.
    """

    @field_validator("gateway_public_url")
    @classmethod
    def _without_a_path(cls, value: str | None) -> str | None:
        if urlsplit(value or "").path.strip("/"):
            raise ValueError(
                "an address without a path, since links of the gateway's pages begin at /; let the proxy give it a "
                "name of its own, e.g. https://kernels.example"
            )
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
        except (ValueError, RecursionError) as error:
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
                raise ConfigError(f"{file}: {webhook.name}.{key}: expected {expectation(first)}") from None
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
