-- What the Discord frontend sends beside gateway.sql; the same form as queries.sql.


-- name: own_places
-- A user's places in the rankings of a leaderboard, and how many users each has.
SELECT p.gpu_type, p.rank::integer, p.score, p.timing, p.submission_id, p.entries
FROM (SELECT r.*, count(*) OVER (PARTITION BY r.gpu_type)::integer AS entries
      FROM runner.ranking r WHERE r.leaderboard = %(leaderboard)s::text) AS p
WHERE p.user_id = %(user_id)s::text AND p.gpu_type = ANY (%(gpu_types)s::text[])

-- name: own_submissions
-- A user's newest submissions to a leaderboard that ask for any of these GPU types; of the last hundred.
SELECT v.submission_id, v.submission_time, v.file_name, v.modes, v.gpu_types, v.state, v.verdict, v.score
FROM runner.status v
WHERE v.submission_id = ANY (ARRAY(
    SELECT s.id FROM leaderboard.submission s
    WHERE s.user_id = %(user_id)s::text AND s.leaderboard_id = %(board_id)s::integer ORDER BY s.id DESC LIMIT 100))
  AND v.gpu_types && %(gpu_types)s::text[]
ORDER BY v.submission_id DESC LIMIT %(limit)s::integer

-- name: task_files
-- The files of a leaderboard's task.
SELECT CASE jsonb_typeof(l.task -> 'files') WHEN 'object' THEN l.task -> 'files' ELSE '{}' END AS files
FROM leaderboard.leaderboard l WHERE l.id = %(board_id)s::integer

-- name: announced_gpu_types
-- The GPU types that hosts have announced, those of live hosts first.
SELECT g.name FROM runner.gpu_type g
ORDER BY NOT EXISTS (
    SELECT FROM runner.host h
    WHERE g.name = ANY (h.gpu_types) AND h.stopped_at IS NULL AND h.last_seen > now() - interval '60 seconds'), g.name

-- name: count_submissions
-- How many submissions a leaderboard has.
SELECT count(*)::integer AS submissions FROM leaderboard.submission s WHERE s.leaderboard_id = %(board_id)s::integer
