-- Which job wrote which row of leaderboard.runs.
CREATE TABLE runner.job_run (
    run_id integer PRIMARY KEY REFERENCES leaderboard.runs (id) ON DELETE CASCADE,
    job_id bigint NOT NULL REFERENCES runner.job (id) ON DELETE CASCADE
);
CREATE INDEX job_run_job_idx ON runner.job_run (job_id);
COMMENT ON TABLE runner.job_run IS 'Which job wrote which row of leaderboard.runs.';
