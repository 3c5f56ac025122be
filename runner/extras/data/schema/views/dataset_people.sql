-- Submissions by user: a data export counts them, and looks up banned users in them.
CREATE OR REPLACE VIEW runner.dataset_people AS
SELECT s.leaderboard_id, s.id AS submission_id, s.user_id, u.is_banned IS TRUE AS user_banned, s.code_id
FROM leaderboard.submission s
LEFT JOIN leaderboard.user_info u ON u.id = s.user_id;
COMMENT ON VIEW runner.dataset_people IS 'A row per submission with its user.';
