-- Targets of webhooks: those of the configuration, and those of single leaderboards.
CREATE TABLE runner.webhook (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE CONSTRAINT webhook_name CHECK (name ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
    leaderboard_id integer REFERENCES leaderboard.leaderboard (id) ON DELETE CASCADE,
    url text,
    secret text,
    format text NOT NULL CONSTRAINT webhook_format CHECK (format IN ('discord', 'slack', 'json')),
    events text[] NOT NULL CONSTRAINT webhook_events CHECK (
        events <> '{}' AND events <@ ARRAY['record.new', 'ranking.top3', 'board.opened', 'board.closed', 'board.final',
                                           'host.lost', 'host.back']),
    boards text[],
    told_at timestamptz,
    failing_since timestamptz,
    failures integer NOT NULL DEFAULT 0,
    reason text,
    retry_at timestamptz NOT NULL DEFAULT '-infinity',
    given_up bigint NOT NULL DEFAULT 0,
    ended_at timestamptz,
    sender uuid,
    sending_until timestamptz,
    CONSTRAINT webhook_of_a_board CHECK (num_nonnulls(leaderboard_id, url) IN (0, 2))
);
CREATE INDEX webhook_leaderboard_idx ON runner.webhook (leaderboard_id);
COMMENT ON TABLE runner.webhook IS 'Targets of webhooks, and how each stands.';
COMMENT ON COLUMN runner.webhook.leaderboard_id
    IS 'The one leaderboard that it is of; NULL: it is in the configuration.';
COMMENT ON COLUMN runner.webhook.url IS 'A secret; NULL: the configuration has it, and the secret, too.';
COMMENT ON COLUMN runner.webhook.boards IS 'Names of the leaderboards that it is told of; NULL: all.';
COMMENT ON COLUMN runner.webhook.given_up IS 'How many events it was not told, because it failed for a day.';
COMMENT ON COLUMN runner.webhook.ended_at IS 'When it answered 410: it is told nothing more.';
COMMENT ON COLUMN runner.webhook.sender IS 'Who tells it something, until sending_until at most: one at a time.';
