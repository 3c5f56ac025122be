"""Numbers that no database takes."""

from __future__ import annotations

import pytest

from runner.cli import main
from runner.cli.app import ExitCode

LARGE = "99999999999999999999"


@pytest.mark.parametrize(
    "arguments",
    [
        ["status", LARGE],
        ["artifact", LARGE],
        ["cancel", LARGE],
        ["rerun", LARGE],
        ["invalidate", LARGE, "--reason", "x"],
        ["status", "--", f"-{LARGE}"],
    ],
)
def test_an_id_is_one_that_the_database_can_look_for(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A larger one is refused before any connection, and the bound is in no help text."""
    assert main(arguments) == ExitCode.USAGE
    assert f"{LARGE}, expected a number from 1 to 9223372036854775807" in capsys.readouterr().err
    assert main([*filter(str.isalpha, arguments), "--help"]) == ExitCode.OK
    assert "9223372036854775807" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "option", "bound"),
    [
        (["submit", __file__, "--priority", "3000000000"], "--priority", 1000),
        (["submit", __file__, "--priority", "-1001"], "--priority", -1000),
        (["rerun", "1", "--priority", "3000000000"], "--priority", 1000),
        (["rerun", "1", "--priority", "-1001"], "--priority", -1000),
        (["failed", "--limit", LARGE], "--limit", 1_000_000),
    ],
)
def test_a_number_is_one_that_the_database_takes(
    arguments: list[str], option: str, bound: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message names the option and its bound."""
    assert main(arguments) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert f"'{option}'" in said
    assert f"equal to {bound} " in said
