-- What each leaderboard demands of a time before it ranks; the defaults where none was set.
CREATE OR REPLACE VIEW runner.demand AS
SELECT l.name AS leaderboard, coalesce(b.timing, 'claimed') AS timing, coalesce(b.tolerance, 0.1) AS tolerance
FROM leaderboard.leaderboard l LEFT JOIN runner.board b ON b.leaderboard_id = l.id;
COMMENT ON VIEW runner.demand IS 'What each leaderboard demands of a time before it ranks.';
