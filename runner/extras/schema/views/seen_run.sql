-- The rows of leaderboard.runs for the gateway, which shows them to anybody: of a secret run the verdict, no score and
-- no time.
CREATE OR REPLACE VIEW runner.seen_run AS
SELECT r.id, r.submission_id, r.runner, r.mode, r.secret, r.passed, r.score IS NOT NULL AS scored,
       CASE WHEN NOT r.secret THEN r.score END AS score,
       CASE WHEN NOT r.secret THEN r.start_time END AS start_time,
       CASE WHEN NOT r.secret THEN r.end_time END AS end_time
FROM leaderboard.runs r;
COMMENT ON VIEW runner.seen_run IS 'The rows of leaderboard.runs without what secret runs found.';
