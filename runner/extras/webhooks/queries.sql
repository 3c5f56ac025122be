-- What the commands about webhooks send.

-- name: webhooks
-- How the targets of webhooks stand.
SELECT w.name, w.leaderboard, w.format, w.events, w.boards, w.state, w.told_at, w.waiting, w.failing_since, w.reason,
       w.retry_at, w.given_up, w.missing_boards
FROM runner.webhook_state w ORDER BY w.name

-- name: webhook_waits
-- Whether an event of webhooks waits for a target still.
SELECT EXISTS (SELECT FROM runner.webhook_delivery d WHERE d.event_id = %(event_id)s::bigint) AS waits
