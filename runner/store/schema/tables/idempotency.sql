-- The submission that each idempotency key of a user has made.
CREATE TABLE runner.idempotency (
    user_id text NOT NULL,
    key text NOT NULL,
    payload_hash text NOT NULL,
    submission_id integer NOT NULL REFERENCES leaderboard.submission (id) ON DELETE CASCADE,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (user_id, key)
);
CREATE INDEX idempotency_submission_idx ON runner.idempotency (submission_id);
