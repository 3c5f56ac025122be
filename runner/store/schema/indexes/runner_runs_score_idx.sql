-- The newest public scores: those that runner.score may not have yet.
CREATE INDEX CONCURRENTLY runner_runs_score_idx ON leaderboard.runs (id) WHERE NOT secret AND score IS NOT NULL AND passed;
