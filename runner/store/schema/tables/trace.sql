-- The trace contexts that frontends give with submissions.
CREATE TABLE runner.trace (
    submission_id integer PRIMARY KEY REFERENCES leaderboard.submission (id) ON DELETE CASCADE,
    traceparent text NOT NULL
);
COMMENT ON TABLE runner.trace IS
    'W3C trace context of submissions: the span of a frontend below which their jobs are shown.';
