"""The drawings of a leaderboard: what they hold, what they leave out, and the words beside them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from runner.base.results import cases
from runner.extras.gateway import charts
from runner.extras.gateway.charts import Score

BEGAN = datetime(2031, 1, 1, tzinfo=UTC)


def scores(*values: float) -> list[Score]:
    """One score an hour, each of another user."""
    return [
        Score(
            at=BEGAN + timedelta(hours=hour),
            seconds=value,
            user_id=f"u{hour}",
            user_name=f"U{hour}",
            submission_id=hour,
        )
        for hour, value in enumerate(values)
    ]


def test_records_are_those_that_were_the_best() -> None:
    """In the order of time, whatever order they come in."""
    made = charts.records(scores(4e-6, 5e-6, 2e-6, 3e-6, 1e-6)[::-1])
    assert [score.seconds for score in made] == [4e-6, 2e-6, 1e-6]


def test_progression() -> None:
    """A step down at each record, a dot for each score, and the speed of light below all."""
    made = charts.progression(scores(1e-4, 1e-3, 1e-5), 1e-6)
    assert made is not None
    assert made.line.count("V") == 1
    assert made.dots.count("M") == 3
    # Lower is faster; the speed of light is the lowest of all.
    assert made.light == f"M70 {charts.HEIGHT - 28:.1f}H630"
    assert made.words == (
        "3 scores over time. The best fell from 100 µs to 10.0 µs in 2 steps. The speed of light is 1.00 µs."
    )
    assert [label.text for label in made.labels][:2] == ["1.00 ms", "1.00 µs"]


@pytest.mark.parametrize("few", [[], [1e-6]])
def test_a_few_scores_make_no_drawing(few: list[float]) -> None:
    """Two are needed."""
    assert charts.progression(scores(*few), None) is None
    assert charts.distribution(scores(*few), None) is None


def test_distribution_counts_each_user_once() -> None:
    """By the best score; the tallest bar fills the plot."""
    found = scores(1e-6, 1.01e-6, 1e-3)
    found.append(Score(at=BEGAN, seconds=1.0, user_id="u0", user_name="U0", submission_id=9))
    made = charts.distribution(found, None)
    assert made is not None
    assert [bar[3] for bar in made.bars] == [180.0, 90.0]
    assert made.words == "The best scores of 3 users: from 1.00 µs to 1.00 ms, the middle one 1.01 µs."


def ran(*cases: tuple[str, str | None, str | None]) -> dict[str, str]:
    """The result of a run, as an eval program writes it."""
    made = {"benchmark-count": str(len(cases))}
    for index, (mean, sol, limit) in enumerate(cases):
        words = {"mean": mean, "sol": sol, "sol_limit": limit}
        made.update({f"benchmark.{index}.{key}": value for key, value in words.items() if value is not None})
    return made


@pytest.mark.parametrize(("ranking", "light_s"), [("last", 8e-9), ("mean", 5e-9), ("geom", 4e-9), (None, 4e-9)])
def test_the_speed_of_light_of_a_score(ranking: str | None, light_s: float) -> None:
    """As the leaderboard makes a score of the cases."""
    result = ran(("4", "0.5", "math"), ("16", "0.5", "memory"))
    assert charts.light_of(result, ranking) == pytest.approx(light_s)


@pytest.mark.parametrize(
    "result",
    [
        None,
        [],
        {},
        {"benchmark-count": "x"},
        ran(("4", None, None)),
        ran(("4", "0.5", None), ("4", None, None)),
        ran(("nan", "0.5", None)),
        ran(("4", "-1", None)),
        ran(("4", "0", None)),
        ran(("1e299", "1e299", None)),
    ],
)
def test_no_speed_of_light_is_made_of_nonsense(result: object) -> None:
    """Of other programs' rows, and of cases that do not all state it."""
    assert charts.light_of(result, "geom") is None
    assert isinstance(charts.roofline(cases(result)), str)


def test_the_roofline_in_words() -> None:
    """How near a run comes, and what binds a perfect kernel."""
    told = charts.roofline(cases(ran(("4", "0.5", "memory"), ("4", "0.5", "math"), ("4", "0.5", "memory"))))
    assert told == (
        "Roofline: 50 % of the speed of light (geometric mean of the cases). A perfect kernel would take 50 % of the "
        "time. A perfect kernel is bound by memory in 2, by math in 1 of 3 cases."
    )
    assert "seldom honest" in charts.roofline(cases(ran(("4", "1.5", "math"))))
    assert charts.roofline(cases(ran(("4", None, None)))) == ""
