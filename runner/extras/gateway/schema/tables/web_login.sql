-- Users who have logged in by OAuth.
CREATE TABLE runner.web_login (
    user_id text PRIMARY KEY REFERENCES leaderboard.user_info (id) ON DELETE CASCADE,
    provider text NOT NULL,
    key uuid NOT NULL DEFAULT gen_random_uuid(),
    since timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE runner.web_login IS
    'Users who have logged in by OAuth; sessions of a browser are signed with a digest of key, among other '
    'credentials.';
