"""Groups run on the evaluator of the other kinds' tests."""

from __future__ import annotations

from tests.integration.evaluation.conftest import evaluator, settings, shared_evaluator, shared_settings

__all__ = ["evaluator", "settings", "shared_evaluator", "shared_settings"]
