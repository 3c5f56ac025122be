"""The KernelBook pipeline: from evaluations of generated kernels to training sets, one module per step.

Importing this package alone needs nothing; its modules need the extra `kernelbook` (`require`). The daemon imports
none.
The published scripts that these steps stand for, their variables, file names and outputs:
https://github.com/S1ro1/dp-data-pipeline.
"""

from __future__ import annotations

from runner.base.errors import ConfigError
from runner.extras.optional import missing

#: What the modules of this package import beyond the daemon's own dependencies.
_NEEDED = ("pyarrow",)


def require(*modules: str) -> None:
    """Make sure that what a step needs is installed; `modules` are needed beyond the usual.

    Raises:
        ConfigError: it is not. The message says how to install it.
    """
    absent = missing(*_NEEDED, *modules)
    if absent:
        raise ConfigError(
            f"this step needs {' and '.join(absent)}; install it with `pip install 'kernel-runner[kernelbook]'`"
        )


__all__ = ["require"]
