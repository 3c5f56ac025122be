"""The container engine is checked while nothing runs."""

from __future__ import annotations

from runner.daemon.monitoring.engine_probe import EngineProbe
from tests.integration.daemon.rig import Engine


def test_an_engine_that_goes_away_is_noticed_while_nothing_runs() -> None:
    """A run notices by itself, and is not disturbed."""
    engine = Engine()
    engine.up.set()
    idle, troubles = [True], []
    probe = EngineProbe(engine, idle=lambda: idle[-1], on_trouble=lambda: troubles.append("engine"))
    probe.probe()
    assert (engine.checks, len(troubles)) == (1, 0)
    engine.up.clear()
    probe.probe()
    assert (engine.checks, len(troubles)) == (2, 1)
    idle.append(False)
    probe.probe()
    assert (engine.checks, len(troubles)) == (2, 1)
