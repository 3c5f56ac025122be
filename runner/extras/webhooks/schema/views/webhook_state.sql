-- How the targets of webhooks stand, without their addresses.
CREATE OR REPLACE VIEW runner.webhook_state AS
SELECT w.name, l.name AS leaderboard, w.format, w.events, w.boards,
       CASE WHEN w.ended_at IS NOT NULL THEN 'ended' WHEN w.failing_since IS NOT NULL
           THEN 'failing' ELSE 'up' END AS state,
       w.told_at, (SELECT count(*) FROM runner.webhook_delivery d WHERE d.webhook_id = w.id) AS waiting,
       w.failing_since, w.reason, CASE WHEN w.retry_at > now() THEN w.retry_at END AS retry_at, w.given_up,
       -- One may be made later, so nothing is refused.
       ARRAY(SELECT b.board FROM unnest(w.boards) AS b (board)
             WHERE NOT EXISTS (SELECT FROM leaderboard.leaderboard o WHERE o.name = b.board) ORDER BY 1) AS missing_boards
FROM runner.webhook w
LEFT JOIN leaderboard.leaderboard l ON l.id = w.leaderboard_id;
COMMENT ON VIEW runner.webhook_state IS 'Targets of webhooks: what waits for them, since when they fail, and why.';
