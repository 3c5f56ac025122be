-- Each request of a website for a user looks that user up.
CREATE INDEX CONCURRENTLY runner_user_web_idx ON leaderboard.user_info (web_auth_id) WHERE web_auth_id IS NOT NULL;
