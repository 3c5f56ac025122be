-- Rows are moved here whole. So every reader of leaderboard.runs, KernelBot's own tools too, sees only what counts.
CREATE TABLE runner.superseded_run (
    run_id integer PRIMARY KEY,
    submission_id integer NOT NULL REFERENCES leaderboard.submission (id) ON DELETE CASCADE,
    job_id bigint REFERENCES runner.job (id) ON DELETE CASCADE,
    run jsonb NOT NULL,
    reason text NOT NULL,
    superseded_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX superseded_run_submission_idx ON runner.superseded_run (submission_id);
CREATE INDEX superseded_run_job_idx ON runner.superseded_run (job_id);
COMMENT ON TABLE runner.superseded_run IS 'Rows of leaderboard.runs that no longer count, whole, with the reason.';
