-- What several guests send; the same form as those of the store.

-- name: readiness
-- The version of the schema that is applied.
SELECT version_num AS version FROM runner.migration

-- name: listen_events
-- Subscribes to what happens to jobs.
LISTEN runner_events

-- name: board_by_name
-- A leaderboard by its name; in another case only if no other name fits.
SELECT l.id, l.name, l.deadline, l.description, l.visibility, l.deadline < now() AS over,
       jsonb_typeof(l.task) = 'object' AS sound, d.timing,
       ARRAY(SELECT g.gpu_type FROM leaderboard.gpu_type g WHERE g.leaderboard_id = l.id ORDER BY 1) AS gpus
FROM leaderboard.leaderboard l LEFT JOIN runner.demand d ON d.leaderboard = l.name
WHERE lower(l.name) = lower(%(name)s::text)
ORDER BY l.name = %(name)s::text DESC, l.name LIMIT 2

-- name: board_list
-- All leaderboards without their tasks; of a closed one only that it is there.
SELECT l.id, l.name, l.deadline, l.description, l.visibility, l.creator_id, l.forum_id, l.deadline < now() AS over,
       ARRAY(SELECT g.gpu_type FROM leaderboard.gpu_type g WHERE g.leaderboard_id = l.id ORDER BY 1) AS gpus
FROM leaderboard.leaderboard l ORDER BY l.id

-- name: board_reference
-- The reference and the benchmarks of a leaderboard's task, how it ranks, and its newest template of each language.
SELECT CASE WHEN jsonb_typeof(l.task #> '{files,reference.py}') = 'string' THEN l.task #>> '{files,reference.py}' END
           AS reference,
       l.task ->> 'ranking_by' AS ranking_by, l.task ->> 'lang' AS lang,
       jsonb_path_query_array(l.task, '$.benchmarks[0 to 39]') AS benchmarks,
       ARRAY(SELECT jsonb_build_array(t.lang, t.code) FROM (
           SELECT DISTINCT ON (p.lang) p.lang, p.code FROM leaderboard.templates p
           WHERE p.leaderboard_id = l.id ORDER BY p.lang, p.id DESC) AS t) AS templates
FROM leaderboard.leaderboard l WHERE l.id = %(board_id)s::integer

-- name: may_see
-- Whether a user has an invitation to a leaderboard.
SELECT EXISTS (
    SELECT FROM leaderboard.leaderboard_invite i
    JOIN leaderboard.leaderboard_invite_scope s ON s.invite_id = i.id
    WHERE i.user_id = %(user_id)s::text AND s.leaderboard_id = %(board_id)s::integer
) AS invited

-- name: limit_wait
-- After how many seconds the hourly limit admits this user again.
SELECT r.max_submissions_per_hour AS most,
       ceil(extract(epoch FROM (
           SELECT f.submission_time FROM (
               SELECT s.submission_time FROM leaderboard.submission s
               WHERE s.leaderboard_id = r.leaderboard_id AND s.user_id = %(user_id)s::text
                 AND s.mode_category = r.mode_category AND s.submission_time > now() - interval '1 hour'
               ORDER BY s.submission_time DESC LIMIT greatest(r.max_submissions_per_hour, 1)
           ) AS f ORDER BY f.submission_time LIMIT 1
       ) + interval '1 hour' - now()))::integer AS wait_s
FROM leaderboard.rate_limit r
WHERE r.leaderboard_id = %(board_id)s::integer AND r.mode_category = %(category)s::text

-- name: submission
-- One submission with its state for clients, its code, and its runs as the author may see them, which are large: as
-- text.
SELECT s.id, s.leaderboard_id, l.name AS leaderboard_name, s.file_name, s.user_id, s.submission_time,
       coalesce(s.done, false) AS done, s.status AS mark,
       CASE WHEN %(with_code)s::boolean THEN coalesce(convert_to(c.old_code, 'UTF8'), c.code) END AS code,
       -- Written when the secret run begins and when it ends: to the second only, as in runner.status.
       t.status, t.error, date_trunc('second', t.last_heartbeat) AS last_heartbeat,
       CASE WHEN %(with_runs)s::boolean THEN
           (SELECT jsonb_agg(to_jsonb(r) - 'submission_id' - 'job_id' || jsonb_build_object('score', r.score::text)
                             ORDER BY r.secret, r.run_id)::text
            FROM runner.result r WHERE r.submission_id = s.id) END AS runs
FROM leaderboard.submission s
JOIN leaderboard.leaderboard l ON l.id = s.leaderboard_id
LEFT JOIN leaderboard.code_files c ON c.id = s.code_id
LEFT JOIN leaderboard.submission_job_status t ON t.submission_id = s.id
WHERE s.id = %(submission_id)s::bigint

-- name: submission_status
-- How far a submission is.
SELECT submission_id, leaderboard, user_id, user_name, file_name, submission_time, modes, gpu_types, state,
       verdict, done,
       job_status, error, position, progress, score, phase, timing, correctness, unranked, no_host_since, paused,
       finished_at, queue_ms, build_ms, eval_ms, retry_reason
FROM runner.status WHERE submission_id = %(submission_id)s::bigint

-- name: profiles
-- The files of a submission's profile runs.
SELECT gpu_type, name, media_type, data FROM runner.public_profile WHERE submission_id = %(submission_id)s::bigint
ORDER BY gpu_type, name

-- name: places
-- A page of a ranking. Each row has the best score of all, and that of the row before it.
SELECT r.submission_id, r.rank::integer, r.file_name, r.submission_time, r.score, r.leaderboard,
       r.user_id, r.user_name, r.gpu_type, r.timing, r.correctness, r.late, min(r.score) OVER () AS best,
       lag(r.score) OVER (ORDER BY r.score, r.submission_time, r.submission_id) AS ahead
FROM runner.ranking r WHERE r.leaderboard = %(leaderboard)s::text AND r.gpu_type = %(gpu_type)s::text
ORDER BY r.score, r.submission_time, r.submission_id LIMIT %(limit)s::integer OFFSET %(offset)s::bigint

-- name: place_of
-- The place of a submission in a ranking, with the score and the submission of the one ahead and of the best.
SELECT p.rank, p.entries, p.best, p.best_id, p.ahead, p.ahead_id, p.late
FROM (
    SELECT r.submission_id, r.rank::integer, count(*) OVER ()::integer AS entries, r.late,
           first_value(r.score) OVER w AS best, first_value(r.submission_id) OVER w AS best_id,
           lag(r.score) OVER w AS ahead, lag(r.submission_id) OVER w AS ahead_id
    FROM runner.ranking r WHERE r.leaderboard = %(leaderboard)s::text AND r.gpu_type = %(gpu_type)s::text
    WINDOW w AS (ORDER BY r.score, r.submission_time, r.submission_id)
) AS p WHERE p.submission_id = %(submission_id)s::integer

-- name: stop_intake
-- From now on nothing may be submitted.
INSERT INTO runner.intake_stop (reason) VALUES (%(reason)s::text) ON CONFLICT DO NOTHING

-- name: start_intake
-- From now on submissions are accepted again.
DELETE FROM runner.intake_stop

-- name: ban
-- Bans a user, or lifts that; no row: there is no such user.
UPDATE leaderboard.user_info SET is_banned = %(banned)s::boolean WHERE id = %(user_id)s::text RETURNING id

-- name: stats
-- How much has been submitted and run.
SELECT count(DISTINCT s.id)::integer AS num_submissions,
       count(DISTINCT s.id) FILTER (WHERE NOT coalesce(s.done, false))::integer AS sub_waiting,
       count(DISTINCT s.user_id)::integer AS num_users, count(DISTINCT s.code_id)::integer AS num_unique_codes
FROM leaderboard.submission s
WHERE (%(board_id)s::integer IS NULL OR s.leaderboard_id = %(board_id)s::integer)
  AND (NOT %(last_day)s::boolean OR s.submission_time > now() - interval '1 day')

-- name: stats_runs
-- Runs per GPU type.
SELECT r.runner, count(*)::integer AS runs, count(*) FILTER (WHERE r.passed)::integer AS passed,
       count(*) FILTER (WHERE r.scored)::integer AS scored, count(*) FILTER (WHERE r.secret)::integer AS secret,
       max(r.start_time - s.submission_time) FILTER (WHERE NOT r.secret) AS max_delay,
       avg(r.start_time - s.submission_time) FILTER (WHERE NOT r.secret) AS avg_delay,
       sum(r.end_time - r.start_time) FILTER (WHERE NOT r.secret) AS total_runtime,
       count(r.start_time) FILTER (WHERE NOT r.secret)::integer AS timed
FROM runner.seen_run r JOIN leaderboard.submission s ON s.id = r.submission_id
WHERE (%(board_id)s::integer IS NULL OR s.leaderboard_id = %(board_id)s::integer)
  AND (NOT %(last_day)s::boolean OR s.submission_time > now() - interval '1 day')
GROUP BY r.runner ORDER BY r.runner

-- name: host_keys
-- The public keys that hosts have registered.
SELECT k.host, k.key, k.registered_at, k.replaced_at, k.revoked_from, k.revoked_reason
FROM runner.host_key k ORDER BY k.registered_at, k.host, k.key

-- name: signed_result
-- A receipt, and what the database says of its result.
SELECT * FROM runner.signed_result c WHERE c.job_id = %(job_id)s::bigint

-- name: final_progress
-- How far the newest final of a leaderboard is, on one GPU type or on any.
SELECT final_id, gpu_type, status, rounds, round, finalists, hosts, evaluations, ordered_at, ended_at
FROM runner.final_progress
WHERE leaderboard = %(leaderboard)s AND lower(gpu_type) = lower(coalesce(%(gpu_type)s::text, gpu_type))
ORDER BY final_id DESC LIMIT 1
