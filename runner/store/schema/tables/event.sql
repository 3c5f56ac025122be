-- What happened out of the ordinary, for operators; removed after a while.
CREATE TABLE runner.event (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT now(),
    kind text NOT NULL CHECK (kind IN (
        'failed', 'reclaimed', 'released', 'stale', 'superseded', 'invalidated', 'rerun', 'drained', 'undrained')),
    submission_id integer REFERENCES leaderboard.submission (id) ON DELETE CASCADE,
    job_id bigint REFERENCES runner.job (id) ON DELETE CASCADE,
    attempt integer,
    host text,
    detail jsonb NOT NULL DEFAULT '{}'
);
CREATE INDEX event_submission_idx ON runner.event (submission_id, id);
CREATE INDEX event_job_idx ON runner.event (job_id);
CREATE INDEX event_at_idx ON runner.event (at);
COMMENT ON TABLE runner.event IS 'What happened out of the ordinary, for operators; removed after a while.';
