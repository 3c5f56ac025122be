-- The submissions whose code is public: a row per score that counts, on a leaderboard of runner.open_board. To be asked
-- for some submissions, or for a user's on one leaderboard: it looks at each one's runs.
CREATE OR REPLACE VIEW runner.open_code AS
SELECT s.id AS submission_id, b.leaderboard_id, b.leaderboard, s.user_id, u.user_name, s.code_id, s.file_name,
       s.submission_time, v.run_id, v.gpu_type, v.score, v.timing, v.correctness
FROM runner.open_board b
JOIN leaderboard.submission s ON s.leaderboard_id = b.leaderboard_id
JOIN leaderboard.user_info u ON u.id = s.user_id
CROSS JOIN LATERAL (
    SELECT r.id FROM leaderboard.runs r
    WHERE r.submission_id = s.id AND NOT r.secret AND r.score IS NOT NULL AND r.passed OFFSET 0
) AS r
CROSS JOIN LATERAL (SELECT * FROM runner.counting_score c WHERE c.run_id = r.id OFFSET 0) AS v;
COMMENT ON VIEW runner.open_code IS 'Submissions whose code is public, a row per score that counts; seconds.';
