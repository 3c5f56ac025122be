-- Webhooks: targets, events that wait for them, and what events were last derived from.
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
COMMENT ON COLUMN runner.webhook.leaderboard_id IS 'The one leaderboard that it is of; NULL: it is in the configuration.';
COMMENT ON COLUMN runner.webhook.url IS 'A secret; NULL: the configuration has it, and the secret, too.';
COMMENT ON COLUMN runner.webhook.boards IS 'Names of the leaderboards that it is told of; NULL: all.';
COMMENT ON COLUMN runner.webhook.given_up IS 'How many events it was not told, because it failed for a day.';
COMMENT ON COLUMN runner.webhook.ended_at IS 'When it answered 410: it is told nothing more.';
COMMENT ON COLUMN runner.webhook.sender IS 'Who tells it something, until sending_until at most: one at a time.';
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
COMMENT ON COLUMN runner.webhook_event.data IS 'What is told; `places` are results, which are left out once they do not count.';
CREATE TABLE runner.webhook_delivery (
    webhook_id bigint REFERENCES runner.webhook (id) ON DELETE CASCADE,
    event_id bigint REFERENCES runner.webhook_event (id) ON DELETE CASCADE,
    PRIMARY KEY (webhook_id, event_id)
);
CREATE INDEX webhook_delivery_event_idx ON runner.webhook_delivery (event_id);
COMMENT ON TABLE runner.webhook_delivery IS 'Which events wait for which target of webhooks.';
CREATE TABLE runner.webhook_board (
    leaderboard_id integer PRIMARY KEY REFERENCES leaderboard.leaderboard (id) ON DELETE CASCADE,
    open boolean NOT NULL
);
COMMENT ON TABLE runner.webhook_board IS 'Leaderboards as runner.derive_webhooks last saw them.';
COMMENT ON COLUMN runner.webhook_board.open IS 'It was public, and its deadline had not passed.';
CREATE TABLE runner.webhook_ranking (
    leaderboard_id integer REFERENCES leaderboard.leaderboard (id) ON DELETE CASCADE,
    gpu_type text,
    leaders integer[] NOT NULL DEFAULT '{}',
    records integer[] NOT NULL DEFAULT '{}',
    final_id bigint,
    PRIMARY KEY (leaderboard_id, gpu_type)
);
COMMENT ON TABLE runner.webhook_ranking IS 'Rankings as runner.derive_webhooks last saw them.';
COMMENT ON COLUMN runner.webhook_ranking.leaders IS 'The submissions of the first three places.';
COMMENT ON COLUMN runner.webhook_ranking.records IS 'The submissions that have led, each of which is told once.';
COMMENT ON COLUMN runner.webhook_ranking.final_id IS 'The last final.';
CREATE TABLE runner.webhook_host (
    name text PRIMARY KEY,
    noted_at timestamptz NOT NULL DEFAULT now(),
    told boolean NOT NULL
);
COMMENT ON TABLE runner.webhook_host IS 'Hosts that were silent when runner.derive_webhooks last saw them.';
COMMENT ON COLUMN runner.webhook_host.told IS 'Whether its loss was told, or is older than all events.';
CREATE TABLE runner.webhook_clock (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    begun_at timestamptz
);
COMMENT ON TABLE runner.webhook_clock IS 'Since when events are derived for webhooks; NULL: they never were.';
INSERT INTO runner.webhook_clock DEFAULT VALUES;
