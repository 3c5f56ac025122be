-- Each request of popcorn-cli looks its user up.
CREATE INDEX CONCURRENTLY runner_user_cli_idx ON leaderboard.user_info (cli_id) WHERE cli_id IS NOT NULL;
