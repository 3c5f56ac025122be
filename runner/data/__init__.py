"""The data export: parquet files of what competitions produced, and their checks. Between the store and the commands.

Importing this package alone needs nothing; its modules need the extra `data` (`require`). The daemon imports none.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

from runner.errors import ConfigError

#: Told a stage, how much of it is done, and how much there is (0: not known).
Progress = Callable[[str, int, int], None]
#: What the modules of this package import beyond the daemon's own dependencies.
_NEEDED = ("pyarrow", "pandas")


def require(*modules: str) -> None:
    """Make sure that what the commands `data` need is installed; `modules` are needed beyond the usual.

    Raises:
        ConfigError: it is not. The message says how to install it.
    """
    missing = [name for name in dict.fromkeys((*_NEEDED, *modules)) if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"the data commands need {' and '.join(missing)}; install the extra with "
            "`pip install 'kernel-runner[data]'`"
        )


__all__ = ["Progress", "require"]
