-- What the gateway sends, and its commands, beside what guests share.

-- name: public_tasks
-- The tasks of these leaderboards as text, so that nobody reads megabytes of JSON on the way; only public ones.
SELECT l.id, CASE WHEN l.visibility = 'public' AND jsonb_typeof(l.task) = 'object'
    THEN l.task ELSE '{}' END::text AS task
FROM leaderboard.leaderboard l WHERE l.id = ANY (%(ids)s::integer[])

-- name: board_scores
-- The newest scores of a leaderboard on a GPU type that count.
SELECT submission_time, score, user_id, coalesce(user_name, user_id) AS user_name, submission_id
FROM runner.board_scores(%(board_id)s::integer, %(gpu_type)s::text, %(limit)s::integer)

-- name: board_standings
-- How many users rank on leaderboards, and the best score, on each GPU type; the one with the most users first.
SELECT r.leaderboard, r.gpu_type, count(*)::integer AS entries, min(r.score) AS best
FROM runner.ranking r WHERE r.leaderboard = ANY (%(names)s::text[]) GROUP BY 1, 2 ORDER BY 1, 3 DESC, 2

-- name: live_board
-- A leaderboard and its public jobs on a GPU type: how many wait, counting the first ten thousand of the type, and
-- those that run.
SELECT l.name, l.deadline, l.visibility, l.deadline < now() AS over,
       (SELECT count(*) FROM (
            SELECT j.submission_id FROM runner.job j
            WHERE j.state = 'queued' AND j.gpu_type = %(gpu_type)s::text AND NOT j.secret LIMIT 10000) AS q
        JOIN leaderboard.submission s ON s.id = q.submission_id WHERE s.leaderboard_id = l.id)::integer AS waiting,
       coalesce((
            SELECT jsonb_agg(jsonb_build_object('mode', j.mode, 'user_name', coalesce(u.user_name, u.id)) ORDER BY j.id)
            FROM runner.job j
            JOIN leaderboard.submission s ON s.id = j.submission_id
            JOIN leaderboard.user_info u ON u.id = s.user_id
            WHERE j.lease_owner IS NOT NULL AND j.state = 'running' AND j.gpu_type = %(gpu_type)s::text
              AND NOT j.secret AND s.leaderboard_id = l.id), '[]') AS running
FROM leaderboard.leaderboard l WHERE l.id = %(board_id)s::integer

-- name: boards_of
-- The leaderboards of these submissions.
SELECT DISTINCT s.leaderboard_id AS id FROM leaderboard.submission s WHERE s.id = ANY (%(ids)s::integer[])

-- name: board_trends
-- The newest scores of leaderboards that count, each on one GPU type.
SELECT b.board_id, v.submission_time, v.score, v.user_id, v.user_name, v.submission_id
FROM unnest(%(ids)s::integer[], %(gpu_types)s::text[]) AS b (board_id, gpu_type)
CROSS JOIN LATERAL runner.board_scores(b.board_id, b.gpu_type, %(limit)s::integer) AS v

-- name: ranked_times
-- The times of submissions' public ranked runs on a GPU type, without all else that their results hold; of none that an
-- eval program made very large.
SELECT r.submission_id, (
    SELECT jsonb_object_agg(e.key, e.value) FROM jsonb_each(r.result) AS e
    WHERE e.key ~ '^benchmark(-count|\.\d+\.(mean|err|sol|runner\.mean_ci95))$') AS result
FROM runner.result r
WHERE r.submission_id = ANY (%(ids)s::bigint[]) AND r.gpu_type = %(gpu_type)s::text AND r.mode = 'leaderboard'
  AND NOT r.secret AND pg_column_size(r.result) < 100000 AND jsonb_typeof(r.result) = 'object' ORDER BY r.run_id

-- name: count_waiting
-- How many logins wait for approval.
SELECT count(*)::integer AS waiting FROM leaderboard.user_info u WHERE u.id ~ '^temp_[0-9a-f]{8}$'

-- name: submit
-- Stores a submission and its jobs. The key makes a repetition harmless.
SELECT s.id AS submission_id
FROM runner.submit(
    leaderboard => %(leaderboard)s::text, user_id => %(user_id)s::text, file_name => %(file_name)s::text,
    code => %(code)s::bytea, mode => %(mode)s::text, gpu_types => %(gpu_types)s::text[],
    idempotency_key => %(key)s::text, options => %(options)s::jsonb) AS s (id)

-- name: submit_late
-- As submit, by an operator for a user, after the deadline too.
SELECT s.id AS submission_id
FROM runner.submit_late(
    leaderboard => %(leaderboard)s::text, user_id => %(user_id)s::text, file_name => %(file_name)s::text,
    code => %(code)s::bytea, mode => %(mode)s::text, gpu_types => %(gpu_types)s::text[],
    idempotency_key => %(key)s::text) AS s (id)

-- name: job_status_id
-- The id of a submission's job status.
SELECT t.id FROM leaderboard.submission_job_status t WHERE t.submission_id = %(submission_id)s::integer

-- name: gpu_queue
-- How busy a GPU type is, under the name that leaderboards use and its other names, in any case. Counting ends at ten
-- thousand.
WITH asked AS MATERIALIZED (
    SELECT coalesce(
        (SELECT b.gpu_type FROM leaderboard.gpu_type b WHERE lower(b.gpu_type) = lower(%(gpu_type)s::text)
         ORDER BY b.gpu_type = %(gpu_type)s::text DESC LIMIT 1),
        (SELECT n FROM runner.gpu_type g CROSS JOIN unnest(g.name || g.aliases) AS n
         WHERE lower(n) = lower(%(gpu_type)s::text) LIMIT 1)) AS name
)
SELECT
    a.name IS NOT NULL AS known,
    (SELECT count(*) FROM (
        SELECT FROM runner.job j WHERE j.state = 'queued' AND j.gpu_type = a.name LIMIT 10000) AS q)::integer AS queued,
    (SELECT count(*) FROM (
        SELECT FROM runner.job j WHERE j.lease_owner IS NOT NULL AND j.state = 'running' AND j.gpu_type = a.name
        LIMIT 10000) AS q)::integer AS running,
    (SELECT count(*) FROM runner.host h
     CROSS JOIN LATERAL jsonb_array_elements(CASE jsonb_typeof(h.slots) WHEN 'array' THEN h.slots ELSE '[]' END) AS t
     LEFT JOIN runner.gpu_type g ON g.name = t ->> 'gpu_type'
     WHERE h.stopped_at IS NULL AND NOT h.draining AND h.last_seen > now() - interval '60 seconds'
       AND t ->> 'quarantined' IS NULL AND (t ->> 'gpu_type' = a.name OR a.name = ANY (g.aliases)))::integer AS slots
FROM asked a

-- name: verdicts
-- How far each of these submissions is.
SELECT submission_id, state, phase, verdict FROM runner.status WHERE submission_id = ANY (%(ids)s::bigint[])

-- name: finished
-- Those of these submissions that are over or gone.
SELECT u.id FROM unnest(%(ids)s::bigint[]) AS u (id)
LEFT JOIN leaderboard.submission s ON s.id = u.id WHERE s.id IS NULL OR s.done

-- name: profile_files
-- The files of a submission's profile runs, without their content.
SELECT gpu_type, name, octet_length(data) AS bytes FROM runner.public_profile
WHERE submission_id = %(submission_id)s::bigint ORDER BY gpu_type, name

-- name: profile_file
-- One of these files.
SELECT media_type, data FROM runner.public_profile
WHERE submission_id = %(submission_id)s::bigint AND gpu_type = %(gpu_type)s::text AND name = %(name)s::text

-- name: my_submissions
-- A user's submissions, the newest first, with the public runs that passed once the secret run has passed too; all, or
-- those to a leaderboard, on a GPU type, or with a verdict. Verdicts are made one by one: only where a job has it.
SELECT f.*,
       (SELECT jsonb_agg(jsonb_build_object('gpu_type', r.runner, 'score', r.score::text) ORDER BY r.id)
        FROM runner.seen_run r
        WHERE r.submission_id = f.id AND NOT r.secret AND r.passed
          AND (SELECT bool_and(k.passed) FROM runner.seen_run k
               WHERE k.submission_id = f.id AND k.runner = r.runner AND k.secret)) AS runs
FROM (
    SELECT s.id, l.name AS leaderboard_name, s.file_name, s.submission_time, coalesce(s.done, false) AS done,
           t.status, s.mode_category
    FROM leaderboard.submission s
    JOIN leaderboard.leaderboard l ON l.id = s.leaderboard_id
    LEFT JOIN leaderboard.submission_job_status t ON t.submission_id = s.id
    WHERE s.user_id = %(user_id)s::text
      AND (%(leaderboard)s::text IS NULL OR lower(l.name) = lower(%(leaderboard)s::text))
      AND (%(gpu_type)s::text IS NULL OR EXISTS (
          SELECT FROM runner.job j WHERE j.submission_id = s.id AND j.gpu_type = %(gpu_type)s::text))
      AND CASE WHEN %(verdict)s::text IS NULL THEN true
               WHEN EXISTS (SELECT FROM runner.job j WHERE j.submission_id = s.id AND j.verdict = %(verdict)s::text)
               THEN (SELECT v.verdict FROM runner.status v WHERE v.submission_id = s.id) = %(verdict)s::text END
    ORDER BY s.submission_time DESC, s.id DESC LIMIT %(limit)s::integer OFFSET %(offset)s::bigint
) AS f ORDER BY f.submission_time DESC, f.id DESC

-- name: my_places
-- The leaderboards and GPU types that a user has submitted to.
SELECT DISTINCT l.name AS leaderboard, j.gpu_type
FROM leaderboard.submission s
JOIN leaderboard.leaderboard l ON l.id = s.leaderboard_id
CROSS JOIN LATERAL (SELECT o.gpu_type FROM runner.job o WHERE o.submission_id = s.id OFFSET 0) AS j
WHERE s.user_id = %(user_id)s::text ORDER BY 1, 2 LIMIT 200

-- name: open_sources
-- Submissions whose code is public, with the code where it is not too long.
SELECT o.submission_id, o.leaderboard_id, o.leaderboard, o.user_id, coalesce(o.user_name, o.user_id) AS user_name,
       o.file_name,
       o.submission_time, l.task ->> 'ranking_by' AS ranking_by, c.bytes,
       CASE WHEN c.bytes <= %(most_bytes)s::integer THEN c.code END AS code
FROM (SELECT DISTINCT p.submission_id, p.leaderboard_id, p.leaderboard, p.user_id, p.user_name, p.file_name,
    p.submission_time,
             p.code_id
      FROM runner.open_code p WHERE p.submission_id = ANY (%(ids)s::integer[])) AS o
JOIN leaderboard.leaderboard l ON l.id = o.leaderboard_id
CROSS JOIN LATERAL (
    SELECT coalesce(convert_to(f.old_code, 'UTF8'), f.code) AS code,
           coalesce(octet_length(f.old_code), octet_length(f.code)) AS bytes
    FROM leaderboard.code_files f WHERE f.id = o.code_id) AS c
ORDER BY o.submission_id

-- name: open_lines
-- How many lines the code of those of these submissions has whose code is public.
SELECT o.submission_id, length(c.code) - length(replace(c.code, E'\n', '')) + (c.code !~ '(^|\n)$')::integer AS lines
FROM (SELECT DISTINCT p.submission_id, p.code_id FROM runner.open_code p
      WHERE p.submission_id = ANY (%(ids)s::integer[])) AS o
CROSS JOIN LATERAL (
    -- Bytes may be no text; this form keeps the ends of lines.
    SELECT coalesce(f.old_code, encode(f.code, 'escape')) AS code FROM leaderboard.code_files f
    WHERE f.id = o.code_id OFFSET 0) AS c

-- name: open_by_author
-- The scores whose code is public of a submission and of its author's newest on the same leaderboard.
SELECT o.submission_id, o.submission_time, o.file_name, o.gpu_type, o.score::float8 AS score, o.timing, o.correctness,
       o.user_id, coalesce(o.user_name, o.user_id) AS user_name
FROM runner.open_code o
WHERE o.submission_id = ANY (ARRAY(
    SELECT s.id FROM leaderboard.submission s
    WHERE s.leaderboard_id = %(board_id)s::integer AND s.user_id = %(user_id)s::text
    ORDER BY s.id = %(submission_id)s::integer DESC, s.submission_time DESC, s.id DESC LIMIT %(limit)s::integer))
ORDER BY o.submission_time DESC, o.submission_id DESC, o.gpu_type

-- name: winners
-- The first three of each GPU type of a leaderboard, those whose code is public.
SELECT w.gpu_type, w.rank::integer, w.entries, w.submission_id, w.user_id,
       coalesce(w.user_name, w.user_id) AS user_name, w.file_name,
       w.submission_time, w.score::float8 AS score, w.timing, w.correctness, w.late, w.best::float8 AS best,
       w.ahead::float8 AS ahead
FROM (
    SELECT r.*, row_number() OVER w AS line, count(*) OVER (PARTITION BY r.gpu_type)::integer AS entries,
           first_value(r.score) OVER w AS best, lag(r.score) OVER w AS ahead
    FROM runner.ranking r WHERE r.leaderboard = %(leaderboard)s::text
    WINDOW w AS (PARTITION BY r.gpu_type ORDER BY r.score, r.submission_time, r.submission_id)
) AS w
WHERE w.line <= 3
  AND (SELECT count(*) FROM runner.open_code o WHERE o.submission_id = w.submission_id AND o.gpu_type = w.gpu_type) > 0
ORDER BY w.gpu_type, w.line

-- name: open_board
-- Whether a leaderboard's ranked code is public.
SELECT count(*) > 0 AS open FROM runner.open_board b WHERE b.leaderboard_id = %(board_id)s::integer

-- name: records
-- The newest records of a public leaderboard; without one, of all that are open or ended in the last 30 days.
SELECT b.id AS board_id, b.name AS leaderboard, b.gpu_type, r.submission_id, r.submission_time, r.user_id,
       coalesce(r.user_name, r.user_id) AS user_name, r.score, r.before
FROM (
    SELECT l.id, l.name, g.gpu_type FROM leaderboard.leaderboard l
    JOIN leaderboard.gpu_type g ON g.leaderboard_id = l.id
    WHERE l.visibility = 'public'
      AND CASE WHEN %(board_id)s::integer IS NULL THEN l.deadline > now() - interval '30 days'
               ELSE l.id = %(board_id)s::integer END
) AS b
CROSS JOIN LATERAL runner.board_records(b.id, b.gpu_type, %(limit)s::integer) AS r
ORDER BY r.submission_time DESC, r.submission_id DESC, b.gpu_type LIMIT %(limit)s::integer

-- name: count_places
-- How many users a ranking has.
SELECT count(*)::integer AS count FROM runner.ranking r
WHERE r.leaderboard = %(leaderboard)s::text AND r.gpu_type = %(gpu_type)s::text

-- name: count_runs
-- How many runs a user has on a leaderboard and GPU type.
SELECT count(*)::integer AS count
FROM leaderboard.submission s
JOIN runner.seen_run r ON r.submission_id = s.id
WHERE s.leaderboard_id = %(board_id)s::integer AND s.user_id = %(user_id)s::text AND r.runner = %(gpu_type)s::text
  AND NOT r.secret AND r.passed AND r.score IS NOT NULL

-- name: board_submission_ids
-- A page of a leaderboard's submissions, the newest first.
SELECT s.id FROM leaderboard.submission s WHERE s.leaderboard_id = %(board_id)s::integer
ORDER BY s.id DESC LIMIT %(limit)s::integer OFFSET %(offset)s::bigint

-- name: user_submission_ids
-- A user's submissions to a leaderboard, with their numbers of jobs and runs; by the user's name, which another may have.
SELECT s.id, min(s.user_id) OVER () <> max(s.user_id) OVER () AS several, (SELECT count(*) FROM leaderboard.submission_job_status t
    WHERE t.submission_id = s.id)::integer AS statuses,
       (SELECT count(*) FROM runner.seen_run r WHERE r.submission_id = s.id)::integer AS runs
FROM leaderboard.submission s JOIN leaderboard.user_info u ON u.id = s.user_id
WHERE s.leaderboard_id = %(board_id)s::integer AND u.user_name = %(user_name)s::text ORDER BY s.id LIMIT 1000

-- name: add_invites
-- Makes invitations to leaderboards.
WITH made AS (
    INSERT INTO leaderboard.leaderboard_invite (code) SELECT c FROM unnest(%(codes)s::text[]) AS c RETURNING id
)
INSERT INTO leaderboard.leaderboard_invite_scope (invite_id, leaderboard_id)
SELECT m.id, b FROM made m CROSS JOIN unnest(%(boards)s::integer[]) AS b

-- name: invites
-- The invitations to a leaderboard.
SELECT i.code, i.user_id, u.user_name, i.claimed_at, i.created_at
FROM leaderboard.leaderboard_invite i
JOIN leaderboard.leaderboard_invite_scope s ON s.invite_id = i.id
LEFT JOIN leaderboard.user_info u ON u.id = i.user_id
WHERE s.leaderboard_id = %(board_id)s::integer ORDER BY i.id

-- name: revoke_invite
-- Removes an invitation.
DELETE FROM leaderboard.leaderboard_invite WHERE code = %(code)s::text RETURNING claimed_at IS NOT NULL AS claimed

-- name: set_visibility
-- Opens a leaderboard to everyone, or closes it to all without an invitation.
UPDATE leaderboard.leaderboard SET visibility = %(visibility)s::text WHERE id = %(board_id)s::integer

-- name: set_limit
-- Sets the hourly limit of a leaderboard.
INSERT INTO leaderboard.rate_limit AS r (leaderboard_id, mode_category, max_submissions_per_hour)
VALUES (%(board_id)s::integer, %(category)s::text, %(most)s::integer)
ON CONFLICT (leaderboard_id, mode_category) DO UPDATE SET max_submissions_per_hour = EXCLUDED.max_submissions_per_hour
RETURNING id, mode_category, max_submissions_per_hour

-- name: limits
-- The hourly limits of a leaderboard.
SELECT id, mode_category, max_submissions_per_hour FROM leaderboard.rate_limit
WHERE leaderboard_id = %(board_id)s::integer ORDER BY mode_category

-- name: drop_limit
-- Removes an hourly limit.
DELETE FROM leaderboard.rate_limit WHERE leaderboard_id = %(board_id)s::integer AND mode_category = %(category)s::text
RETURNING id

-- name: stats_users
-- Submissions per user of a leaderboard, by name; those who share one with their ids.
SELECT f.name || CASE WHEN count(*) OVER (PARTITION BY f.name) > 1 THEN ' (' || f.id || ')' ELSE '' END AS name,
       f.submissions
FROM (
    SELECT u.id, coalesce(u.user_name, u.id) AS name, count(*)::integer AS submissions
    FROM leaderboard.submission s JOIN leaderboard.user_info u ON u.id = s.user_id
    WHERE s.leaderboard_id = %(board_id)s::integer
      AND (NOT %(last_day)s::boolean OR s.submission_time > now() - interval '1 day')
    GROUP BY u.id
) AS f ORDER BY 2 DESC, 1 LIMIT 1000

-- name: operator_hosts
-- The daemons.
SELECT h.name, h.version, h.slots, h.draining, h.drain_reason, h.last_seen, h.stopped_at,
       extract(epoch FROM now() - h.last_seen)::float8 AS silent_s
FROM runner.host h ORDER BY h.name

-- name: receipts_of
-- The jobs of a submission that have a receipt.
SELECT j.id AS job_id, j.gpu_type, j.secret FROM runner.job j
WHERE j.submission_id = %(submission_id)s::integer AND EXISTS (SELECT FROM runner.receipt c WHERE c.job_id = j.id)
ORDER BY j.id LIMIT 20

-- name: operator_queue
-- How many jobs wait and run for each GPU type.
SELECT j.gpu_type, count(*) FILTER (WHERE j.state = 'queued')::integer AS queued,
       count(*) FILTER (WHERE j.state = 'running')::integer AS running,
       extract(epoch FROM now() - min(j.created_at) FILTER (WHERE j.state = 'queued'))::float8 AS oldest_s
FROM runner.job j WHERE j.state IN ('queued', 'running') GROUP BY j.gpu_type ORDER BY j.gpu_type

-- name: operator_batches
-- The batches that wait for results, the oldest first.
SELECT batch, user_id, items, finished, created_at FROM runner.open_batch ORDER BY id LIMIT 20

-- name: operator_latest
-- The newest verdicts.
SELECT f.submission_id, l.name AS leaderboard, s.user_id, u.user_name, f.gpu_type, f.mode, f.secret, f.host, f.verdict,
       f.finished_at
FROM runner.host h
CROSS JOIN LATERAL (
    SELECT j.submission_id, j.gpu_type, j.mode, j.secret, j.host, j.verdict, j.finished_at
    FROM runner.job j WHERE j.state = 'done' AND j.host = h.name ORDER BY j.finished_at DESC LIMIT 20
) AS f
JOIN leaderboard.submission s ON s.id = f.submission_id
JOIN leaderboard.leaderboard l ON l.id = s.leaderboard_id
JOIN leaderboard.user_info u ON u.id = s.user_id
ORDER BY f.finished_at DESC LIMIT 20

-- name: finals_held
-- The GPU types on which a leaderboard had a final.
SELECT DISTINCT gpu_type FROM runner.final_progress
WHERE leaderboard = %(leaderboard)s::text AND status = 'completed'

-- name: final_ranking
-- The order of the last final.
SELECT rank, user_id, user_name, score, score_low, score_high, evaluations, hosts, spread_hosts, spread_rounds, fault,
       final_id, ended_at
FROM runner.final_ranking WHERE leaderboard = %(leaderboard)s::text AND gpu_type = %(gpu_type)s::text
ORDER BY rank NULLS LAST, score, rank_before

-- name: final_control
-- How the control of a final came out.
SELECT n, wins, told_apart FROM runner.final_pair WHERE final_id = %(final_id)s::bigint AND control

-- name: validations_of_board
-- What the validations of these submissions to a leaderboard said, on one GPU type.
SELECT v.* FROM runner.validations(leaderboard => %(leaderboard)s::text) AS v
WHERE v.submission_id = ANY (%(ids)s::integer[]) AND v.gpu_type = %(gpu_type)s::text

-- name: users
-- All users; those who wait for approval first.
SELECT u.id AS user_id, u.user_name,
       CASE WHEN u.is_banned THEN 'banned' WHEN u.cli_valid THEN 'valid' WHEN u.id ~ '^temp_' THEN 'waits'
            ELSE 'no login' END AS state,
       u.cli_auth_provider AS provider, u.created_at
FROM leaderboard.user_info u ORDER BY u.id ~ '^temp_' DESC, u.created_at DESC NULLS LAST, u.id
