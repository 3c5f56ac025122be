"""The drawings of scores and times, and the figures beside them: what they hold and what they leave out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from runner.base.results import cases
from runner.extras.gateway import charts
from runner.extras.gateway.charts import Score
from runner.extras.shown import figures

BEGAN = datetime(2031, 1, 1, tzinfo=UTC)


def scores(*values: float) -> list[Score]:
    """One score an hour, each of another user."""
    return [
        Score(at=BEGAN + timedelta(hours=n), seconds=value, user_id=f"u{n}", user_name=f"U{n}", submission_id=n)
        for n, value in enumerate(values)
    ]


def test_records_are_those_that_were_the_best() -> None:
    """In the order of time, whatever order they come in."""
    made = charts.records(scores(4e-6, 5e-6, 2e-6, 3e-6, 1e-6)[::-1])
    assert [score.seconds for score in made] == [4e-6, 2e-6, 1e-6]


@pytest.mark.parametrize("logarithmic", [True, False])
def test_progression(logarithmic: bool) -> None:
    """A step down at each record, a dot for each score, a line for each leading user; the speed of light below all."""
    made = charts.progression(scores(1e-4, 1e-3, 1e-5), 1e-6, logarithmic=logarithmic)
    assert made is not None
    paths = dict(made.paths)
    assert paths["line"].count("V") == 1
    assert paths["dots"].count("M") == 3
    assert [name for _, name in made.legend] == ["U2", "U0", "U1"]
    # The one score of the last user, too, is seen.
    start, end = paths["user0"].removeprefix("M").split()[0], paths["user0"].partition("H")[2]
    assert charts.WIDTH > float(end) > float(start)
    heights = {name: float(paths[name].split()[1].partition("H")[0]) for name in ("user0", "user1", "light")}
    # Lower is faster.
    assert heights["user1"] < heights["user0"] < heights["light"]
    assert made.words == (
        "3 scores over time. The best fell from 100 µs to 10.0 µs in 1 step. The speed of light is 1.00 µs."
    )
    ticks = [label.text for label in made.labels if label.text.endswith("s")]
    assert {"1 ms"} < set(ticks) <= {"0 ns", "1 µs", "10 µs", "100 µs", "500 µs", "1 ms"}


def test_chosen_users_and_a_part_of_the_time() -> None:
    """Lines of the chosen alone, in their order; a record from before the part begins it."""
    every = scores(4e-4, 3e-4, 2e-4, 1e-4)
    made = charts.progression(every, None, users=("u3", "u1"), since=every[2].at)
    assert made is not None
    paths = dict(made.paths)
    assert [name for _, name in made.legend] == ["U3", "U1"]
    # Of two scores in this time one is of the chosen.
    assert paths["dots"].count("M") == 1
    assert paths["line"].startswith("M52.0 ")
    assert paths["user1"].startswith("M52.0 ")
    assert "user2" not in paths
    assert charts.progression(every, None, since=every[3].at) is None
    slower = charts.progression(scores(1e-4, 2e-4), None)
    assert slower is not None
    assert slower.words == "2 scores over time. The best stayed at 100 µs."


def test_a_case_is_drawn_beside_the_others_of_its_run() -> None:
    """From best to worst, the interval, and the mean, on one axis; a case without a time has none."""
    result = ran(("4", None, None), ("16", None, None))
    result |= {"benchmark.0.best": "2", "benchmark.0.worst": "8", "benchmark.0.runner.mean_ci95": "[3, 5]"}
    result |= {"test-count": "1", "test.0.spec": "n"}
    untimed, first, second = charts.spans(cases(result))
    assert untimed is None
    assert first == ("M14.3 7H57.1", "M21.4 7H35.7", "M28.6 7h0")
    assert second == ("", "", "M114.3 7h0")


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
    assert figures.light_of(result, ranking) == pytest.approx(light_s)
