"""The configuration of a host: one TOML file, overridden by the environment, validated once.

Owns the name, default, meaning and example of every key of the core; those of guests are in `SiteConfig`
(runner/extras/config.py), which commands load. The string below a field is its description. docs/configuration.md is
made of all that (`python -m tests.unit.config.page`).
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
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    field_validator,
    model_validator,
)

from runner.base import database_address
from runner.base.environment import PATH_VARIABLE, PREFIX, credential_file, nearest, overrides, process_environment
from runner.base.errors import ConfigError
from runner.base.expectations import expectation
from runner.base.marks import ENCODING

DEFAULT_PATH: Final = Path("/etc/kernel-runner/config.toml")
#: Ten days. No clock of a thread, a container or the database takes times without an end.
_LONGEST_S: Final = 864_000.0
_EXAMPLE_URL: Final = "postgresql://runner@db.example/kernelbot"


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


def _absolute(value: Path) -> Path:
    if not value.is_absolute():
        raise ValueError("an absolute path: a service has no working directory to speak of")
    return value


AbsolutePath = Annotated[Path, AfterValidator(_absolute)]
_Word = Annotated[Literal["auto"], Tag("word")]
_Slots = Annotated[_Word | Annotated[tuple[SlotConfig, ...], Tag("value")], Discriminator(_kind)]
_Count = Annotated[_Word | Annotated[int, Field(ge=0, le=1024), Tag("value")], Discriminator(_kind)]


class Config(BaseModel):
    """Every setting of the core. Frozen; its repr holds no password."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, allow_inf_nan=False)
    #: Keys that hold lists of tables.
    tables: ClassVar[Mapping[str, type[BaseModel]]] = {"slots": SlotConfig}

    database_url: str | None = Field(
        default=None,
        repr=False,
        min_length=1,
        examples=["postgresql://runner@db.example/kernelbot?sslmode=verify-full&sslrootcert=/etc/kernel-runner/ca.crt"],
    )
    """
    Connection string of PostgreSQL: a `postgresql://` URL or `key=value` words, of the server itself or of a pooler in
    session mode; for one in transaction mode, see `direct_host`. Over a network, ask for encryption as in the example
    ([security.md](security.md#the-database)). With two servers, name both: `postgresql://runner@db1,db2/kernelbot`. No
    output and no log shows its password.
    """
    database_url_file: AbsolutePath | None = Field(
        default=None, examples=["/etc/kernel-runner/credentials/database_url"]
    )
    """
    A file whose one line is `database_url`, so that the configuration holds no secret. Its owner is root, its mode
    0600. systemd reads it at each start: a new password needs a [restart](operations.md#a-new-password).
    """
    direct_host: str | None = Field(default=None, min_length=1, examples=["db.example:5432"])
    """
    Set it where `database_url` leads to a pooler in transaction mode, such as PgBouncer: the server itself, as `HOST`
    or `HOST:PORT` (5432). The daemon's one connection for notifications goes there, with the user, password and
    database of `database_url`, and so do `migrate`, the gateway and data exports. All others go through the pooler.
    """
    docker_host: str | None = Field(default=None, min_length=1, examples=["unix:///run/docker.sock"])
    """
    Where the container engine listens. Without it, at the engine's own default socket.
    """
    host_name: str = Field(
        default_factory=socket.gethostname, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$", examples=["gpu-07"]
    )
    """
    The host's name in the database: letters, digits, `.`, `_` and `-`. Of two daemons that share it, the second one
    waits until the first has stopped.
    """
    state_dir: AbsolutePath = Field(default=Path("/var/lib/kernel-runner"), examples=["/data/kernel-runner"])
    """
    Where the daemon keeps the staged harness, results that wait for the database (`spool/`), and the host's id
    (`instance`) and private key (`receipt.key`), on a disk that survives a restart. One daemon per directory. It
    belongs to the service's user; another one than the default is also named in a drop-in (`ReadWritePaths=`, as in
    `site.conf`).
    """
    eval_python: AbsolutePath | None = Field(default=None, examples=["/opt/kernel-runner/eval/bin/python"])
    """
    The interpreter of the evaluation environment, in which submissions run: torch, numpy and what your tasks import. It
    must not be the daemon's own environment, since submissions can import everything in it.
    """
    gpus_dir: AbsolutePath = Field(default=Path("/etc/kernel-runner/gpus.d"), examples=["/srv/gpu-types"])
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
    `cpu_slots`. A list makes exactly its slots; only it makes those of types with several devices (`L4x4`, `MI300x8`)
    and of types with `detect = false`. No device and no core can be in two slots. The variable `KERNEL_RUNNER_SLOTS`
    takes `auto` or the list as JSON.
    """
    cpu_slots: _Count = Field(default="auto", examples=[4])
    """
    Slots of the CPU type where `slots` is `"auto"`. `"auto"` is half the cores (at least one) on a host without
    accelerator. Beside accelerators it is none, because CPU slots would disturb their timings. Where a vendor's driver
    does not work, the daemon starts when it does. Each slot takes two cores, if there are as many.
    """
    reserve_cpus: int = Field(default=0, ge=0, examples=[8])
    """
    How many of the lowest-numbered cores belong to no slot, unless a slot names them. They serve the daemon, the
    engine, compilers (`build_workers`), imports for the next jobs (`warm_containers`) and the rest of the system. On a
    GPU host leave some, best as many as a slot has.
    """
    lease_s: float = Field(default=25.0, ge=1.0, le=3600.0, examples=[60.0])
    """
    How long a claimed job stays this host's without a sign of life. Jobs of a dead host wait again after about
    `lease_s` plus `poll_s`.
    """
    heartbeat_s: float = Field(default=5.0, gt=0.0, examples=[2.0])
    """
    How often the daemon renews leases while jobs run; at most a third of `lease_s`. It also bounds how late the daemon
    hears of a cancellation whose announcement was lost.
    """
    poll_s: float = Field(default=2.0, gt=0.0, le=300.0, examples=[5.0])
    """
    The longest time between two looks at the queue. The database announces new jobs at once; polling finds those whose
    announcement was lost.
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
    How many claims of a job may remain unanswered, because the connection broke, before each further one counts as a
    lost lease.
    """
    build_timeout_s: float = Field(default=120.0, gt=0.0, le=_LONGEST_S, examples=[300.0])
    """
    How long nvcc may take, or a submission's first import, which compiles its extensions. It applies once to the build
    and once more to the run. The task's own time limits begin after that.
    """
    max_run_s: float = Field(default=7200.0, gt=0.0, le=_LONGEST_S, examples=[3600.0])
    """
    The longest evaluation of one job, its builds included, whatever limits its task has. Two minutes after that the
    daemon stops a run and counts a failure of the host. Five minutes later it leaves the job to another host; the slot
    stays out of use until the run ends or the daemon restarts.
    """
    warm_containers: int = Field(default=2, ge=0, le=16, examples=[1])
    """
    How many started containers wait per slot, with torch imported, so that submissions start at once; 0 turns it off.
    Each takes about half a GiB of memory, and serves [one job or more of its owner](security.md#between-two-requests).
    Where at least as many cores as a slot has belong to no slot (`reserve_cpus`), the next containers import torch on
    those while a job runs, which shortens the slot's waits. `kernel-runner host list --json` shows the number
    (`slots[].warm_containers`).
    """
    build_workers: _Count = Field(default="auto", examples=[2])
    """
    How many submissions compile at the same time on cores that no slot uses (`reserve_cpus`), each before its run and
    without its device. `"auto"` is one. Candidates of a group compile side by side, so hosts for trainers gain by more.
    Where every core belongs to a slot, a submission compiles on its own slot's cores before its run, and a candidate in
    its run; with 0, both in the run. Each worker needs as much memory as a run on the host's largest GPU type. While
    slots are busy, it also does [early checks](architecture.md#early-checks).
    """
    min_free_gib: float = Field(default=2.0, ge=0.0, examples=[10.0])
    """
    How much must be free on the disks of `state_dir` and of the engine's data, beside a thousand inodes. With less, the
    daemon is [not ready](operations.md#not-ready) until there is room. `kernel-runner check` shows the places. 0 turns
    it off.
    """
    retention_days: float = Field(default=30.0, ge=1.0, le=36500.0, examples=[90.0])
    """
    How long the database keeps evidence of late results, events, the reports of attempts that count for nothing, and
    results that were replaced ([exactly](operations.md#what-is-forgotten-and-when)). Results that count and rankings
    are never removed.
    """
    http_listen: str = Field(default="unix:http.sock", examples=["127.0.0.1:9469"])
    """
    Where the daemon answers `/healthz`, `/readyz` and `/metrics` ([Monitoring](operations.md#monitoring)).
    `"unix:PATH"` is a socket for the daemon's user and group; a relative path is below `state_dir`. `"HOST:PORT"` (for
    IPv6 `"[::1]:PORT"`) has neither encryption nor a password: put any address but `127.0.0.1` and `::1` behind a
    firewall. `"off"` turns it off.
    """
    log_format: Literal["auto", "json", "console"] = Field(default="auto", examples=["json"])
    """
    `"json"` is one object per line, for the journal. `"console"` is for people. `"auto"` is console on a terminal and
    JSON elsewhere.
    """
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", examples=["debug"])
    """The least severe lines to log: `"debug"`, `"info"`, `"warning"` or `"error"`."""

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

    @model_validator(mode="after")
    def _heartbeats_fit_the_lease(self) -> Self:
        if self.heartbeat_s > self.lease_s / 3:
            raise ValueError(
                f"heartbeat_s={self.heartbeat_s:g} and lease_s={self.lease_s:g}: expected heartbeat_s to be at most a "
                "third of lease_s, so that two lost heartbeats do not lose a job"
            )
        return self

    @classmethod
    def load(cls, path: Path | None = None, *, environ: Mapping[str, str] | None = None) -> Self:
        """Read the file (`path`, else $KERNEL_RUNNER_CONFIG, else the default path if it exists) and the environment.

        Raises:
            ConfigError: a named file is missing or does not parse, a key is unknown, or a value is wrong.
        """
        environ = process_environment() if environ is None else environ
        if path is None and environ.get(PATH_VARIABLE):
            path = Path(environ[PATH_VARIABLE])
        file = path or DEFAULT_PATH
        values = cls._read(file, optional=path is None)
        origin = {key: f"{file}: {key}" for key in values}
        credential = credential_file("database_url", environ)
        # The unit has an empty one for hosts that name the database elsewhere.
        if credential is not None and (address := _secret_file(credential)):
            values["database_url"], origin["database_url"] = address, f"credential {credential}"
        for variable, key, text in overrides(environ, list(cls.model_fields)):
            values[key] = cls._parse(key, text)
            origin[key] = f"environment: {variable}"
        config = cls._validate(values, origin)
        if config.database_url is None and config.database_url_file is not None:
            with suppress(ConfigError):
                # Only some users may read it, and only some commands need it: see `require_database_url`.
                config = config.model_copy(update={"database_url": _secret_file(config.database_url_file) or None})
        return config

    @property
    def http_address(self) -> HttpAddress | None:
        """Where health and metrics are served; None: nowhere."""
        return HttpAddress.parse(self.http_listen, directory=self.state_dir)

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
        shown = self.model_dump(mode="json")
        if self.database_url is not None:
            shown["database_url"] = database_address.shown(self.database_url)
        return shown

    @classmethod
    def _read(cls, path: Path, *, optional: bool) -> dict[str, Any]:
        try:
            values = tomllib.loads(path.read_text(encoding=ENCODING))
        except FileNotFoundError as error:
            if optional:
                return {}
            raise ConfigError(f"{path}: no such configuration file") from error
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{path}: not a TOML file: {error}") from error
        for key in values:
            if key not in cls.model_fields:
                near = nearest(key, cls.model_fields)
                raise ConfigError(f"{path}: key {key!r} is not known, the nearest valid key is {near!r}")
        return values

    @classmethod
    def _parse(cls, key: str, text: str) -> object:
        """A list is JSON; everything else is read by pydantic from the text."""
        if key in cls.tables and text.lstrip().startswith("["):
            try:
                return json.loads(text)
            except ValueError:
                # The cause would show the text, and with it an address.
                raise ConfigError(f"environment: {PREFIX}{key.upper()} is not JSON") from None
        return text

    @classmethod
    def _validate(cls, values: Mapping[str, Any], origin: Mapping[str, str]) -> Self:
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            key, *rest = [part for part in first["loc"] if part not in ("word", "value")] or [""]
            if not key:
                raise ConfigError(str(first["ctx"]["error"])) from None
            where = origin.get(str(key), f"default: {key}")
            where += "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in rest)
            if first["type"] == "extra_forbidden":
                near = nearest(str(rest[-1]), cls.tables[str(key)].model_fields)
                raise ConfigError(f"{where} is not known, the nearest valid key is {near!r}") from None
            table = cls.tables.get(str(key))
            secrets = {name for name, field in (table or cls).model_fields.items() if not field.repr}
            names = [part for part in rest if isinstance(part, str)]
            # Where tables may have a secret, all but the text of another key may be one, or have one in it.
            secret = not secrets.isdisjoint((key, *names)) or (
                table is not None and bool(secrets) and not (names and isinstance(first["input"], str))
            )
            shown = "nothing" if first["type"] == "missing" else repr(first["input"])
            shown = "a value that is not shown" if secret else shown
            # The cause would print the input, and with it a password.
            raise ConfigError(f"{where}: found {shown}, expected: {expectation(first)}") from None


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
