"""Modules are judged in one thread."""

from __future__ import annotations

from tests.plugins.torch_threads import one_thread

__all__ = ["one_thread"]
