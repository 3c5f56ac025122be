-- The rows of a data export, without code: the best of each user, code and runner. No runner is a runner of its own.
CREATE OR REPLACE VIEW runner.dataset_submissions AS
SELECT DISTINCT ON (a.leaderboard_id, a.user_id, a.code_id, a.runner) a.*
FROM runner.entry a
ORDER BY a.leaderboard_id, a.user_id, a.code_id, a.runner, a.score, a.submission_time, a.submission_id, a.run_id;
COMMENT ON VIEW runner.dataset_submissions IS
    'One row per user, code and runner; score, in seconds, is set exactly where it ranks. submission_id alone '
    'is no key.';
