-- The best valid score of each user on each leaderboard and GPU type.
CREATE OR REPLACE VIEW runner.ranking AS
SELECT l.name AS leaderboard, best.gpu_type,
       row_number() OVER (
           PARTITION BY l.name, best.gpu_type ORDER BY best.score, best.submission_time, best.submission_id
       ) AS rank,
       best.user_id, u.user_name, best.submission_id, s.file_name, best.score, best.submission_time,
       best.timing, best.correctness
FROM (
    SELECT DISTINCT ON (v.leaderboard_id, v.gpu_type, v.user_id)
           v.leaderboard_id, v.gpu_type, v.user_id, v.submission_id, v.score, v.submission_time, v.timing, v.correctness
    FROM runner.valid_score v
    ORDER BY v.leaderboard_id, v.gpu_type, v.user_id, v.score, v.submission_time, v.submission_id
) AS best
JOIN leaderboard.leaderboard l ON l.id = best.leaderboard_id
JOIN leaderboard.submission s ON s.id = best.submission_id
JOIN leaderboard.user_info u ON u.id = best.user_id;
COMMENT ON VIEW runner.ranking IS 'Best valid public score per user, leaderboard and GPU type; seconds, rank 1 is fastest.';
