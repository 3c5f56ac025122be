"""The data export: parquet files of what competitions produced, and their checks. Between the store and the commands.

Importing this package alone needs nothing; its modules need the extra `data` (`require`). The daemon imports none.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from runner.errors import ConfigError
from runner.extras import missing

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


class _Hidden:
    """Hides pandas from imports."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """As a finder of modules that does not know one; for pandas, an error.

        Raises:
            ModuleNotFoundError: pandas is asked for.
        """
        del path, target
        if name == "pandas":
            raise ModuleNotFoundError(name)


def without_pandas() -> None:
    """Have pyarrow work without pandas in this process: an export does not use it, and it is half of the start.

    pyarrow looks for pandas once, when it makes its first array. `to_pandas` looks again. Where pyarrow is not loaded
    yet, it also takes its memory from the C library: the writers of parquet files ask for no other, and its own holds
    a third of what an export may.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    if "pandas" in sys.modules:
        return
    sys.meta_path.insert(0, _Hidden)
    try:
        import pyarrow as pa

        pa.array([])
    finally:
        sys.meta_path.remove(_Hidden)


__all__ = ["Progress", "on_one_line", "require", "without_pandas"]
