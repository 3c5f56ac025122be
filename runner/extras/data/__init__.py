"""The data export: parquet files of what competitions produced, and their checks. Between the store and the commands.

Importing this package alone needs nothing; its modules need the extra `data` (`require`). The daemon imports none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from runner.base.errors import ConfigError
from runner.extras.optional import missing

#: Told a stage, how much of it is done, and how much there is (0: not known).
Progress = Callable[[str, int, int], None]
#: What the modules of this package import beyond the daemon's own dependencies.
_NEEDED = ("pyarrow", "pandas")


def require(*modules: str) -> None:
    """Make sure that what the commands `data` need is installed; `modules` are needed beyond the usual.

    Raises:
        ConfigError: it is not. The message says how to install it.
    """
    absent = missing(*_NEEDED, *modules)
    if absent:
        raise ConfigError(
            f"the data commands need {' and '.join(absent)}; install the extra with `pip install 'kernel-runner[data]'`"
        )


def on_one_line(error: Exception) -> str:
    """What an error of a library says, for a sentence of ours."""
    return " ".join(str(error).split())


def listed(names: Sequence[str], *, most: int) -> str:
    """The first `most` names, and how many more there are."""
    more = len(names) - most
    first = ", ".join(names[:most])
    return f"{first} and {more} more" if more > 0 else first
