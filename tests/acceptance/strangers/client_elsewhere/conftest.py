"""A daemon that evaluates candidates by looking at their text."""

from tests.integration.daemon.conftest import make_rig, rig, served

__all__ = ["make_rig", "rig", "served"]
