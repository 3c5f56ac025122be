-- The results of a submission: for the ranking, and for the foreign key when a submission is deleted.
CREATE INDEX CONCURRENTLY runner_runs_submission_idx ON leaderboard.runs (submission_id);
