-- The Discord frontend may do what a frontend may, and what administrators order there. It shows tasks, and authors
-- their code. It sees no secret seed and no credential, and nothing of a secret run but mode and verdict.
GRANT EXECUTE ON FUNCTION runner.before_submit, runner.delete_board, runner.hold_discord, runner.is_odd TO runner_discord;
GRANT SELECT (task) ON leaderboard.leaderboard TO runner_discord;
GRANT SELECT ON leaderboard.submission, leaderboard.submission_job_status, leaderboard.code_files,
    leaderboard.rate_limit,
    leaderboard.leaderboard_invite, leaderboard.leaderboard_invite_scope TO runner_discord;
GRANT SELECT (id, user_name, is_banned), UPDATE (is_banned) ON leaderboard.user_info TO runner_discord;
GRANT SELECT ON runner.migration, runner.seen_run, runner.public_profile TO runner_discord;
GRANT SELECT, INSERT, DELETE ON runner.intake_stop TO runner_discord;
GRANT SELECT, INSERT, UPDATE ON runner.discord_submission TO runner_discord;
