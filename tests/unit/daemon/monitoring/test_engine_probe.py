"""What is noticed while nothing runs."""

from __future__ import annotations

from structlog.testing import capture_logs

from runner.daemon.monitoring.engine_probe import SET_S, EngineProbe
from tests.integration.daemon.rig import Engine


class World:
    """A host that can be told what happens to it."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.engine.up.set()
        self.idle = True
        self.troubles = 0
        self.clock_s = 1e9
        self.steady_s = 100.0
        self.engine_probe = EngineProbe(
            self.engine,
            idle=lambda: self.idle,
            on_trouble=self.trouble,
            clock=lambda: self.clock_s,
            steady=lambda: self.steady_s,
        )

    def trouble(self) -> None:
        """The engine does not answer."""
        self.troubles += 1

    def look_after(self, clock_s: float, steady_s: float) -> None:
        """Look when the two clocks have gone on by so much."""
        self.clock_s += clock_s
        self.steady_s += steady_s
        self.engine_probe.probe()


def test_an_engine_that_goes_away_is_noticed_while_nothing_runs() -> None:
    """A run notices by itself, and is not disturbed."""
    world = World()
    world.look_after(5, 5)
    assert (world.engine.checks, world.troubles) == (1, 0)
    world.engine.up.clear()
    world.look_after(5, 5)
    assert (world.engine.checks, world.troubles) == (2, 1)
    world.idle = False
    world.look_after(5, 5)
    assert (world.engine.checks, world.troubles) == (2, 1)


def test_a_clock_that_is_set_is_said_once() -> None:
    """Forwards or backwards; what a time server does step by step is not."""
    world = World()
    with capture_logs() as logs:
        world.look_after(5, 5)
        world.look_after(3605, 5)
        world.look_after(5, 5)
        world.look_after(-3595, 5)
        world.look_after(5 + SET_S, 5)
    assert [line["by_s"] for line in logs] == [3600.0, -3600.0]
