-- The leaderboards whose ranked code is public: visible to everyone, ended, and the owner agrees. Pages, the HTTP API
-- and public data exports all ask this view.
CREATE OR REPLACE VIEW runner.open_board AS
SELECT l.id AS leaderboard_id, l.name AS leaderboard
FROM leaderboard.leaderboard l
LEFT JOIN runner.board b ON b.leaderboard_id = l.id
WHERE l.visibility = 'public' AND l.deadline < now() AND coalesce(b.open_code, true);
COMMENT ON VIEW runner.open_board IS 'Leaderboards whose ranked code is public.';
