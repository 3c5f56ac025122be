"""What a process is given beside its arguments: environment variables, and what a service manager passes.

The only module of the runner that reads the process's environment. Knows the names of variables, not the keys of the
configuration (`runner.base.config`).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from runner.base.errors import ConfigError

#: Of the variables that set a key of the configuration.
PREFIX: Final = "KERNEL_RUNNER_"
#: Names the configuration file; no key of the file itself.
PATH_VARIABLE: Final = "KERNEL_RUNNER_CONFIG"
#: Settings of the test suite, which a daemon under test inherits.
_TEST_PREFIX: Final = "KERNEL_RUNNER_TEST_"
#: What Kubernetes and Docker's links set in each container for a service of our name, such as KERNEL_RUNNER_PORT.
_SERVICE_LINK: Final = re.compile(
    r".*_((SERVICE_(HOST|PORT(_\w+)?)|PORT_\d+_[A-Z]+_\w+)=|PORT(_\d+_[A-Z]+)?=[a-z]+://).*"
)
#: Where systemd puts the credentials of a unit (`LoadCredential=`).
_CREDENTIALS: Final = "CREDENTIALS_DIRECTORY"
#: Names that other tools share with us, and the key each one sets.
_SHARED_VARIABLES: Final = {"DATABASE_URL": "database_url", "DOCKER_HOST": "docker_host"}


def process_environment() -> Mapping[str, str]:
    """The environment of this process."""
    return os.environ


def forget(variable: str) -> None:
    """Hide a variable from libraries that are imported next."""
    os.environ.pop(variable, None)


def restart_in_utf8() -> None:
    """Where the locale says that all text is ASCII, begin this process again with UTF-8. Returns where it does not.

    In the locale C, and with PYTHONUTF8=0, names of users and files would be halves of characters.
    """
    if sys.getfilesystemencoding() == "ascii":
        os.execve(  # noqa: S606 - the interpreter that runs, and what it was given
            sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]], {**os.environ, "PYTHONUTF8": "1"}
        )


def overrides(environ: Mapping[str, str], keys: Collection[str]) -> Iterator[tuple[str, str, str]]:
    """The variables that set keys, as (variable, key, text) in rising precedence; empty variables count as absent.

    The text has no blanks around it, such as the line ends of Windows in a file of variables.

    Raises:
        ConfigError: a variable with our prefix names no key.
    """
    pairs = [(name, key) for name, key in _SHARED_VARIABLES.items() if name in environ]
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name.startswith(_TEST_PREFIX) or name == PATH_VARIABLE:
            continue
        key = name.removeprefix(PREFIX).lower()
        if key not in keys:
            if _SERVICE_LINK.fullmatch(f"{name}={environ[name]}"):
                continue
            near = PREFIX + nearest(key, keys).upper()
            raise ConfigError(f"environment variable {name} is not known, the nearest valid one is {near}")
        pairs.append((name, key))
    return ((name, key, text) for name, key in pairs if (text := environ[name].strip()))


def credential_file(name: str, environ: Mapping[str, str] | None = None) -> Path | None:
    """The file with a credential of this name from systemd; None without one."""
    directory = (os.environ if environ is None else environ).get(_CREDENTIALS)
    path = Path(directory) / name if directory else None
    # `Path.is_file` raises where another user's are.
    return path if path is not None and os.path.isfile(path) else None  # noqa: PTH113


def nearest(word: str, words: Collection[str]) -> str:
    """The most similar of these words, for a message about one that is not known."""
    return get_close_matches(word.lower(), words, n=1, cutoff=0)[0]


def notify_socket(environ: Mapping[str, str] | None = None) -> str | None:
    """Where the service manager listens for readiness (`sd_notify`), or None when there is no service manager."""
    return (os.environ if environ is None else environ).get("NOTIFY_SOCKET") or None


def listening_sockets() -> Sequence[int]:
    """The file descriptors of the sockets that the service manager listens on for us (`sd_listen_fds`)."""
    count = os.environ.get("LISTEN_FDS", "") if os.environ.get("LISTEN_PID") == str(os.getpid()) else ""
    return range(3, 3 + int(count)) if count.isdecimal() else ()


def watchdog_s(environ: Mapping[str, str] | None = None) -> float | None:
    """How long the service manager waits for a sign of life, in seconds, or None where it does not."""
    variables = os.environ if environ is None else environ
    period = variables.get("WATCHDOG_USEC", "")
    # A process that another one started inherits the variables; they are meant for that one.
    if not period.isdigit() or int(period) == 0 or variables.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    return int(period) / 1e6
