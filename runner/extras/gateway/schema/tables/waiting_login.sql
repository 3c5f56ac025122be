-- Logins that wait for approval, by the address that asked.
CREATE TABLE runner.waiting_login (
    id text PRIMARY KEY REFERENCES leaderboard.user_info (id) ON DELETE CASCADE,
    origin text NOT NULL,
    since timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE runner.waiting_login IS 'Logins that nobody has approved yet.';
COMMENT ON COLUMN runner.waiting_login.origin IS
    'A digest of the address that asked, with a key that the gateway''s process alone has and forgets.';
