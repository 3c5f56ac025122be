-- Public runs with a score, and the best score of the same author and of the leaderboard before each.
CREATE OR REPLACE VIEW runner.run_scored AS
SELECT w.run_id, w.submission_id, w.leaderboard_id, w.problem_name, w.user_id, w.code_id, w.submission_time, w.runner,
       w.mode, w.score_raw, w.reason, w.score,
       min(w.score) OVER (PARTITION BY w.leaderboard_id, w.runner, w.user_id ORDER BY w.submission_time, w.run_id
                          ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS own_best,
       min(w.score) OVER (PARTITION BY w.leaderboard_id, w.runner ORDER BY w.submission_time, w.run_id
                          ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS record
FROM (
    SELECT p.run_id, p.submission_id, p.leaderboard_id, p.problem_name, p.user_id, p.code_id, p.submission_time,
           p.runner, p.mode, p.score_raw, p.score_invalid_reason AS reason,
           CASE WHEN p.score_invalid_reason IS NULL THEN p.score_raw END AS score
    FROM runner.public_run p
    WHERE p.score_raw IS NOT NULL
) AS w;
COMMENT ON VIEW runner.run_scored IS 'Public runs with a score, and the best before each; seconds.';
