"""The command of the storm, without a storm."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.chaos import __main__ as command
from tests.chaos.storm import Settings

_SEED, _SUBMISSIONS, _STORM_S = (f"KERNEL_RUNNER_TEST_{name}" for name in ("SEED", "SUBMISSIONS", "STORM_S"))


@pytest.fixture(autouse=True)
def stormed(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """The settings of the storms that would have run; no variable is set."""
    storms: list[Settings] = []

    def storm(settings: Settings, **_: object) -> SimpleNamespace:
        storms.append(settings)
        return SimpleNamespace(run=lambda: SimpleNamespace(violations=[], table=lambda: ""))

    monkeypatch.setattr(command, "Storm", storm)
    for name in (_SEED, _SUBMISSIONS, _STORM_S):
        monkeypatch.delenv(name, raising=False)
    return storms


def test_help_starts_no_storm(stormed: list[Settings], capsys: pytest.CaptureFixture[str]) -> None:
    """It names the variables."""
    with pytest.raises(SystemExit, match="0"):
        command.main(["--help"])
    assert _STORM_S in capsys.readouterr().out
    assert stormed == []


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, (4800, 600.0)),
        ({_STORM_S: "", _SUBMISSIONS: ""}, (4800, 600.0)),
        ({_STORM_S: "1.5"}, (12, 1.5)),
        ({_STORM_S: "1", _SUBMISSIONS: "3"}, (3, 1.0)),
    ],
)
def test_variables_that_are_empty_count_as_not_set(
    monkeypatch: pytest.MonkeyPatch,
    stormed: list[Settings],
    variables: dict[str, str],
    expected: tuple[int, float],
) -> None:
    """Ten minutes then, and as many submissions as hosts can work off."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert command.main([]) == 0
    assert [(settings.submissions, settings.storm_s) for settings in stormed] == [expected]


@pytest.mark.parametrize(
    ("name", "value"),
    [(_STORM_S, "abc"), (_STORM_S, "nan"), (_STORM_S, "inf"), (_SEED, "1.5"), (_SUBMISSIONS, "-3")],
)
def test_a_variable_that_is_no_number_is_named(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    stormed: list[Settings],
    name: str,
    value: str,
) -> None:
    """Exit code 2, and no storm."""
    monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit, match="2"):
        command.main([])
    assert f"error: {name} is {value!r}, expected a number from 0 on, such as" in capsys.readouterr().err
    assert stormed == []
