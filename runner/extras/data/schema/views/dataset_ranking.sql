-- The best score of each user per leaderboard and runner, by the rule of the data export. Equal scores share a rank.
CREATE OR REPLACE VIEW runner.dataset_ranking AS
SELECT b.leaderboard_id, b.problem_name, b.runner,
       rank() OVER (PARTITION BY b.leaderboard_id, b.runner ORDER BY b.score) AS rank,
       b.user_id, coalesce(u.user_name, '') AS user_name, b.score, b.submission_id, b.submission_time, b.submissions
FROM (
    SELECT DISTINCT ON (p.leaderboard_id, p.runner, p.user_id)
           p.leaderboard_id, p.problem_name, p.runner, p.user_id, p.score_raw AS score, p.submission_id,
           p.submission_time,
           count(*) OVER (PARTITION BY p.leaderboard_id, p.runner, p.user_id) AS submissions
    FROM runner.public_run p
    WHERE p.score_raw IS NOT NULL AND p.score_invalid_reason IS NULL
    ORDER BY p.leaderboard_id, p.runner, p.user_id, p.score_raw, p.submission_time, p.submission_id
) AS b
LEFT JOIN runner.dataset_users u ON u.user_id = b.user_id;
COMMENT ON VIEW runner.dataset_ranking IS 'Best score per user, leaderboard and runner, in seconds; rank 1 is fastest.';
