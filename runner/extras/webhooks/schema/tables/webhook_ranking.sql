-- What the events of webhooks were last derived from: rankings.
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
