-- What webhooks tell, in this order. Removed after seven days.
CREATE TABLE runner.webhook_event (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key uuid NOT NULL DEFAULT gen_random_uuid(),
    at timestamptz NOT NULL DEFAULT now(),
    kind text NOT NULL,
    leaderboard_id integer REFERENCES leaderboard.leaderboard (id) ON DELETE CASCADE,
    gpu_type text,
    data jsonb NOT NULL
);
CREATE INDEX webhook_event_leaderboard_idx ON runner.webhook_event (leaderboard_id);
COMMENT ON TABLE runner.webhook_event IS 'What webhooks tell, in this order; kept for seven days.';
COMMENT ON COLUMN runner.webhook_event.key IS 'The header webhook-id, the same at each attempt and for each target.';
COMMENT ON COLUMN runner.webhook_event.data
    IS 'What is told; `places` are results, which are left out once they do not count.';
