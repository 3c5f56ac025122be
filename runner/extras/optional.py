"""Which optional dependencies are installed."""

from __future__ import annotations

from importlib.util import find_spec


def missing(*modules: str) -> list[str]:
    """Those of these modules that are not installed, once each; none of them is imported, but packages around them."""
    return [name for name in dict.fromkeys(modules) if not _is_there(name)]


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        # A package around it is not there.
        return False
