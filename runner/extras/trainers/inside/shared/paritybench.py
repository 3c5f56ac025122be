"""What `from _paritybench_helpers import ...` finds: rows of KernelBook import from that module, which they lack.

Written from how its names are used, not from its source. Both sides install it before they run a file.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace

NAME = "_paritybench_helpers"


class Config(SimpleNamespace):
    """A bag of attributes, as configurations of models are: read by attribute, by key or by `get`."""

    def get(self, name: str, default: object = None) -> object:
        """The value of a name, or the default."""
        return self.__dict__.get(name, default)

    def keys(self) -> Iterator[str]:
        """The names, so that `**config` works."""
        return iter(self.__dict__)

    def __getitem__(self, name: str) -> object:
        """The value of a name."""
        return self.__dict__[name]

    def __contains__(self, name: object) -> bool:
        """Whether there is a value of that name."""
        return name in self.__dict__

    def __iter__(self) -> Iterator[str]:
        """The names."""
        return iter(self.__dict__)

    __hash__ = object.__hash__  # type: ignore[assignment]  # a namespace has none

    def __repr__(self) -> str:
        """As it was made."""
        return f"_mock_config({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


def install() -> None:
    """Make the module importable in this process."""
    module = ModuleType(NAME)
    module.__dict__["_mock_config"] = Config
    sys.modules.setdefault(NAME, module)
