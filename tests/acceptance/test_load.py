"""Wrong and uncompilable ranked submissions through real containers, by the short form of the benchmark under load."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import psycopg

from tests.benchmarks.load import kinds, publish, run_load
from tests.plugins.live import live_runner


def test_what_fails_costs_one_container_and_its_time_is_accounted_for(
    create_database: Callable[[str | None], str], migrated_template: str, tmp_path: Path
) -> None:
    """No secret job begins, each submission ends once, and what the benchmark says of a slot adds up to its time."""
    mix = kinds(["tiny"], ["wrong-early", "uncompilable"])
    with live_runner(create_database(migrated_template), cpu_slots=1) as live:
        publish(live, tmp_path, mix)
        found = run_load(live, mix, users=2, seconds=3.0)
        with psycopg.connect(live.database_url) as connection:
            rows = connection.execute(
                "SELECT j.secret, j.state, j.attempt, j.verdict, p.verdict, s.done"
                " FROM runner.job j JOIN runner.job p ON p.submission_id = j.submission_id AND NOT p.secret"
                " JOIN leaderboard.submission s ON s.id = j.submission_id"
            ).fetchall()
    assert found.done >= 2
    assert found.secret_s == 0.0
    assert len(rows) == 2 * found.done
    for secret, state, attempt, verdict, public, done in rows:
        assert (state, attempt, verdict, done) == ("done", 0 if secret else 1, public, True)
    assert {verdict for _, _, _, verdict, _, _ in rows} == {"wrong_answer", "compile_error"}
    assert math.isclose(sum(found.slots.values()), found.seconds, rel_tol=1e-6)
    assert found.slots["between jobs, or idle"] >= 0.0
    assert min(found.cores.values()) >= 0.0
    assert found.cores["containers that ran a job"] > 0.0
    for name, took in found.took_s.items():
        assert all(0.0 < beside_s < took_s for beside_s, took_s in zip(found.beside_s[name], took, strict=True))
