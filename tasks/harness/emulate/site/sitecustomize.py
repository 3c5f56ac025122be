"""Run by every interpreter that has this folder on its path, before anything else: see the package two levels up."""

import importlib.util
import sys
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
_NAME = "_kernel_runner_emulate"


def _start() -> None:
    # By its file: a program's own folder may well hold something called `tasks`.
    spec = importlib.util.spec_from_file_location(
        _NAME, _PACKAGE / "__init__.py", submodule_search_locations=[str(_PACKAGE)]
    )
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules[_NAME] = module
        spec.loader.exec_module(module)
        module.install_with_torch()


_start()
