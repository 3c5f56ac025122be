-- Every attempt of every user in the order of time, with the best score so far per user, leaderboard and runner.
CREATE OR REPLACE VIEW runner.dataset_progression AS
SELECT a.leaderboard_id, a.problem_name, a.user_id, a.user_name, a.submission_id, a.submission_time, a.runner, a.score,
       a.passed,
       min(a.score) OVER (PARTITION BY a.leaderboard_id, a.user_id, a.runner
                          ORDER BY a.submission_time, a.submission_id) AS best_so_far
FROM runner.entry_plain a;
COMMENT ON VIEW runner.dataset_progression IS 'Attempts in the order of time; score and best so far in seconds.';
