"""Which readings of the server's clock say that it was put forward."""

from __future__ import annotations

import pytest

from runner.daemon.recovery import ServerClock


@pytest.mark.parametrize(
    ("readings", "expected"),
    [
        pytest.param([(5000.0, 10.0, 10.1)], 0.0, id="the first says nothing"),
        pytest.param([(5000.0, 10.0, 10.1), (5002.0, 12.0, 12.1)], 0.0, id="both go on"),
        pytest.param([(5000.0, 10.0, 10.0), (5040.0, 10.0, 50.0)], 0.0, id="an answer that took long"),
        pytest.param([(5040.0, 10.0, 50.0), (5041.0, 50.5, 51.0)], 0.0, id="after an answer that took long"),
        pytest.param([(5000.0, 10.0, 10.0), (8602.0, 12.0, 12.0)], 3600.0, id="an hour forward"),
        pytest.param([(5000.0, 10.0, 10.0), (1402.0, 12.0, 12.0)], 0.0, id="an hour back"),
        pytest.param([(5000.0, 1.0, 1.0), (8602.0, 3.0, 3.0), (8604.0, 5.0, 5.0)], 0.0, id="said once"),
    ],
)
def test_a_jump_is_what_no_pause_between_the_readings_explains(
    readings: list[tuple[float, float, float]], expected: float
) -> None:
    """Each reading: the server's clock, and this host's when it asked and when it was answered."""
    clock = ServerClock()
    found = [
        clock.jump_s(server_s, asked_s=asked_s, answered_s=answered_s) for server_s, asked_s, answered_s in readings
    ]
    assert found[-1] == pytest.approx(expected)
