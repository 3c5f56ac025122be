-- What the events of webhooks were last derived from: leaderboards.
CREATE TABLE runner.webhook_board (
    leaderboard_id integer PRIMARY KEY REFERENCES leaderboard.leaderboard (id) ON DELETE CASCADE,
    open boolean NOT NULL
);
COMMENT ON TABLE runner.webhook_board IS 'Leaderboards as runner.derive_webhooks last saw them.';
COMMENT ON COLUMN runner.webhook_board.open IS 'It was public, and its deadline had not passed.';
