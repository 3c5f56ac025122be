-- name: ping
-- A round trip, to find out whether the database is there.
SELECT 1 AS one

-- name: claim
-- Takes the best queued job of the GPU types with free slots; types are tried in the order of their best job, each one
-- walked along job_claim_idx, so that only the row taken is locked and jobs locked by another claimer are passed over.
WITH heads AS MATERIALIZED (
    SELECT t.gpu_type, best.priority, best.id
    FROM unnest(%(gpu_types)s::text[]) AS t (gpu_type)
    CROSS JOIN LATERAL (
        SELECT q.priority, q.id
        FROM runner.job q
        WHERE q.state = 'queued' AND q.gpu_type = t.gpu_type AND (q.not_before IS NULL OR q.not_before <= now())
        ORDER BY q.priority DESC, q.turn, q.id
        LIMIT 1
    ) AS best
    ORDER BY best.priority DESC, best.id
), picked AS MATERIALIZED (
    SELECT j.id
    FROM heads
    CROSS JOIN LATERAL (
        SELECT q.id
        FROM runner.job q
        WHERE q.state = 'queued' AND q.gpu_type = heads.gpu_type AND NOT q.cancel_requested
          AND (q.not_before IS NULL OR q.not_before <= now())
        ORDER BY q.priority DESC, q.turn, q.id
        LIMIT 1
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS j
    LIMIT 1
), claimed AS (
    UPDATE runner.job j
    SET state = 'running', attempt = j.attempt + 1, lease_owner = %(host)s, host = %(host)s,
        lease_expires_at = now() + %(lease_s)s * interval '1 second',
        started_at = now(), not_before = NULL, progress = NULL
    FROM picked
    WHERE j.id = picked.id
    RETURNING j.*
)
SELECT c.id, c.attempt, c.submission_id, l.name AS leaderboard, c.gpu_type, c.mode, c.secret, s.user_id, s.file_name,
       f.code, l.task, b.extra, l.secret_seed, c.failures, c.max_attempts, c.created_at, c.started_at,
       CASE WHEN c.avoid_host = %(host)s THEN c.avoid_slot END AS avoid_slot
FROM claimed c
JOIN leaderboard.submission s ON s.id = c.submission_id
JOIN leaderboard.code_files f ON f.id = s.code_id
JOIN leaderboard.leaderboard l ON l.id = s.leaderboard_id
LEFT JOIN runner.board b ON b.leaderboard_id = l.id

-- name: mark_running
-- A submission's first claim turns its job status to running; every claim counts as a sign of life.
INSERT INTO leaderboard.submission_job_status (submission_id, status, last_heartbeat)
VALUES (%(submission_id)s, 'running', now())
ON CONFLICT (submission_id) DO UPDATE SET status = EXCLUDED.status, last_heartbeat = EXCLUDED.last_heartbeat

-- name: notify
-- One notification, of which nobody needs to hear after a power cut.
SELECT set_config('synchronous_commit', 'off', true), pg_notify(%(channel)s::text, %(payload)s::text)

-- name: claim_flags
-- How a host stands, and whether any lease has run out.
SELECT coalesce(h.draining, false) AS draining, h.drain_reason, h.name IS NOT NULL AND h.stopped_at IS NULL AS registered,
       EXISTS (SELECT FROM runner.job j WHERE j.state = 'running' AND j.lease_expires_at < now()) AS overdue
FROM (SELECT %(host)s::text AS name) asked LEFT JOIN runner.host h ON h.name = asked.name

-- name: held_jobs
-- What runs in the name of a host.
SELECT id, submission_id, attempt FROM runner.job WHERE state = 'running' AND lease_owner = %(host)s ORDER BY submission_id, id

-- name: reserve
-- Keeps devices free for the first job that is due and that no other live host has reserved.
WITH urgent AS MATERIALIZED (
    SELECT coalesce(max(s.priority), 2147483647) AS above
    FROM runner.job s WHERE s.state = 'queued' AND s.gpu_type = ANY (%(smaller)s::text[])
), due AS MATERIALIZED (
    SELECT q.id FROM runner.job q, urgent
    WHERE q.state = 'queued' AND q.gpu_type = ANY (%(gpu_types)s::text[])
      AND (q.not_before IS NULL OR q.not_before <= now())
      AND (q.reserved_by = %(host)s OR q.priority > urgent.above
           OR q.created_at <= now() - %(waited_s)s * interval '1 second')
      AND (q.reserved_by IS NULL OR q.reserved_by = %(host)s OR q.reserved_until <= now())
    ORDER BY q.reserved_by = %(host)s DESC NULLS LAST, q.priority DESC, q.turn, q.id
    LIMIT 1
    FOR NO KEY UPDATE OF q SKIP LOCKED
)
UPDATE runner.job j SET reserved_by = %(host)s, reserved_until = now() + %(hold_s)s * interval '1 second'
FROM due WHERE j.id = due.id
RETURNING j.gpu_type

-- name: heartbeat
-- Renews the leases that are still ours and says which are not.
WITH held AS MATERIALIZED (
    SELECT h.id, h.attempt FROM unnest(%(ids)s::bigint[], %(attempts)s::integer[]) AS h (id, attempt)
), locked AS MATERIALIZED (
    SELECT j.id FROM runner.job j JOIN held h ON h.id = j.id AND h.attempt = j.attempt
    WHERE j.state = 'running' AND j.lease_owner = %(host)s
    ORDER BY j.id FOR NO KEY UPDATE OF j
), renewed AS (
    UPDATE runner.job j SET lease_expires_at = now() + %(lease_s)s * interval '1 second'
    FROM locked WHERE j.id = locked.id
    RETURNING j.id, j.cancel_requested
)
SELECT h.id AS job_id, h.attempt, r.id IS NOT NULL AS ours, coalesce(r.cancel_requested, false) AS cancel_requested
FROM held h LEFT JOIN renewed r ON r.id = h.id
ORDER BY h.id

-- name: touch_submissions
-- KernelBot's sign of life; a row that somebody is writing right now needs none.
UPDATE leaderboard.submission_job_status t SET last_heartbeat = now()
FROM (
    SELECT k.id FROM leaderboard.submission_job_status k
    WHERE k.submission_id IN (SELECT j.submission_id FROM runner.job j WHERE j.id = ANY (%(ids)s::bigint[]))
      AND k.status IN ('pending', 'running')
    FOR NO KEY UPDATE SKIP LOCKED
) AS live
WHERE t.id = live.id

-- name: touch_host
-- The daemon is alive.
UPDATE runner.host SET last_seen = now() WHERE name = %(host)s

-- name: save_progress
-- How far a job is, as long as it is ours.
UPDATE runner.job SET progress = %(progress)s
WHERE id = %(id)s AND attempt = %(attempt)s AND state = 'running'

-- name: lock_submission
-- Serialises everything that can end a submission.
SELECT s.id FROM leaderboard.submission s WHERE s.id = %(submission_id)s FOR NO KEY UPDATE

-- name: finish_job
-- Ends a job with a verdict, if the attempt is still the claimer's.
UPDATE runner.job
SET state = 'done', verdict = %(verdict)s, error = %(error)s, report = %(report)s, build_ms = %(build_ms)s,
    eval_ms = %(eval_ms)s, finished_at = now(), lease_owner = NULL, lease_expires_at = NULL, progress = NULL
WHERE id = %(id)s AND attempt = %(attempt)s AND state = 'running'
RETURNING gpu_type, secret, started_at

-- name: job_now
-- What has become of a job whose result was refused.
SELECT state, attempt, verdict, lease_owner FROM runner.job WHERE id = %(id)s

-- name: insert_run
-- One row of results; times are offsets from the claim.
INSERT INTO leaderboard.runs
    (submission_id, start_time, end_time, mode, secret, runner, score, passed, compilation, meta, result, system_info)
VALUES (%(submission_id)s, %(started_at)s + %(start_us)s * interval '1 microsecond',
        %(started_at)s + %(end_us)s * interval '1 microsecond', %(mode)s, %(secret)s, %(runner)s, %(score)s, %(passed)s,
        %(compilation)s, %(meta)s, %(result)s, %(system_info)s)
RETURNING id

-- name: link_run
-- Remembers which job wrote a row of results.
INSERT INTO runner.job_run (run_id, job_id) VALUES (%(run_id)s, %(job_id)s)

-- name: insert_artifact
-- Keeps a file; the last of a name wins.
INSERT INTO runner.artifact (job_id, name, media_type, data) VALUES (%(job_id)s, %(name)s, %(media_type)s, %(data)s)
ON CONFLICT (job_id, name) DO UPDATE SET media_type = EXCLUDED.media_type, data = EXCLUDED.data

-- name: insert_stale_result
-- Evidence of a result that came too late; nothing if the job is gone.
INSERT INTO runner.stale_result (job_id, attempt, verdict, result)
SELECT j.id, %(attempt)s, %(verdict)s, %(result)s FROM runner.job j WHERE j.id = %(id)s

-- name: settle
-- Writes a submission's final status if no job is left.
SELECT runner.settle(%(submission_id)s) AS done

-- name: fail_job
-- An infrastructure failure: back to the queue after a pause that doubles, or the end.
UPDATE runner.job
SET failures = failures + 1, slot = %(slot)s, error = %(error)s, report = %(report)s, lease_owner = NULL, lease_expires_at = NULL,
    progress = NULL,
    state = CASE WHEN cancel_requested THEN 'cancelled' WHEN failures + 1 < max_attempts THEN 'queued' ELSE 'done' END,
    verdict = CASE WHEN NOT cancel_requested AND failures + 1 >= max_attempts THEN 'internal_error' END,
    finished_at = CASE WHEN cancel_requested OR failures + 1 >= max_attempts THEN now() END,
    not_before = CASE WHEN failures + 1 < max_attempts
        THEN now() + least(%(backoff_s)s * 2 ^ failures, %(backoff_max_s)s) * interval '1 second' END
WHERE id = %(id)s AND attempt = %(attempt)s AND state = 'running'
RETURNING state, gpu_type, secret

-- name: release_job
-- Back to the queue at no cost, or cancelled if that was asked for meanwhile.
UPDATE runner.job
SET state = CASE WHEN cancel_requested THEN 'cancelled' ELSE 'queued' END,
    finished_at = CASE WHEN cancel_requested THEN now() END,
    lease_owner = NULL, lease_expires_at = NULL, progress = NULL, error = %(reason)s
WHERE id = %(id)s AND attempt = %(attempt)s AND state = 'running'
RETURNING state, gpu_type, secret

-- name: cancel_job
-- A running job has stopped because that was asked for.
UPDATE runner.job
SET state = 'cancelled', cancel_requested = true, finished_at = now(), lease_owner = NULL, lease_expires_at = NULL,
    progress = NULL
WHERE id = %(id)s AND attempt = %(attempt)s AND state = 'running'
RETURNING state, gpu_type, secret

-- name: mark_pending
-- A submission of which no job runs any more waits again.
UPDATE leaderboard.submission_job_status t SET status = 'pending'
WHERE t.submission_id = %(submission_id)s AND t.status = 'running'
  AND NOT EXISTS (SELECT FROM runner.job j WHERE j.submission_id = t.submission_id AND j.state = 'running')

-- name: expired_jobs
-- Leases that ran out, oldest first.
SELECT id, submission_id, attempt FROM runner.job
WHERE state = 'running' AND lease_expires_at < now()
ORDER BY lease_expires_at, id

-- name: reclaim_job
-- Takes an expired lease back. It is no failure, but a job whose daemons keep vanishing must end some day.
UPDATE runner.job
SET reclaims = reclaims + 1, lease_owner = NULL, lease_expires_at = NULL, progress = NULL,
    state = CASE WHEN cancel_requested THEN 'cancelled' WHEN reclaims + 1 < %(max_reclaims)s THEN 'queued' ELSE 'done' END,
    verdict = CASE WHEN NOT cancel_requested AND reclaims + 1 >= %(max_reclaims)s THEN 'internal_error' END,
    finished_at = CASE WHEN cancel_requested OR reclaims + 1 >= %(max_reclaims)s THEN now() END,
    error = format('host %%s did not renew its lease', lease_owner)
WHERE id = %(id)s AND attempt = %(attempt)s AND state = 'running' AND lease_expires_at < now()
RETURNING state, gpu_type, secret

-- name: register_host
-- A daemon announces itself, unless another one of that name is alive.
INSERT INTO runner.host AS h (name, version, slots, instance, gpu_types)
VALUES (%(name)s, %(version)s, %(slots)s, %(instance)s, %(gpu_types)s)
ON CONFLICT (name) DO UPDATE
SET version = EXCLUDED.version, slots = EXCLUDED.slots, instance = EXCLUDED.instance, gpu_types = EXCLUDED.gpu_types,
    registered_at = now(), last_seen = now(), stopped_at = NULL
WHERE h.instance IS NULL OR h.instance = EXCLUDED.instance OR h.stopped_at IS NOT NULL
   OR h.last_seen < now() - interval '60 seconds'
RETURNING name

-- name: host_now
-- Who goes by a name.
SELECT instance, extract(epoch FROM now() - last_seen)::float8 AS silent_s FROM runner.host WHERE name = %(name)s

-- name: unregister_host
-- A daemon says goodbye.
UPDATE runner.host SET stopped_at = now(), last_seen = now() WHERE name = %(name)s

-- name: sync_gpu_type
-- What a daemon's registry says of a GPU type; untouched if nothing changed.
INSERT INTO runner.gpu_type AS g (name, vendor, aliases, description)
VALUES (%(name)s, %(vendor)s, %(aliases)s, %(description)s)
ON CONFLICT (name) DO UPDATE
SET vendor = EXCLUDED.vendor, aliases = EXCLUDED.aliases, description = EXCLUDED.description, synced_at = now()
WHERE (g.vendor, g.aliases, g.description) IS DISTINCT FROM (EXCLUDED.vendor, EXCLUDED.aliases, EXCLUDED.description)

-- name: listen_queue
-- Subscribes to the queue's wake-ups.
LISTEN runner_queue

-- name: listen_hosts
-- Subscribes to calls to single hosts.
LISTEN runner_hosts

-- name: submit
-- The one way in.
SELECT runner.submit(
    leaderboard => %(leaderboard)s::text, user_id => %(user_id)s::text, file_name => %(file_name)s::text,
    code => %(code)s::bytea, mode => %(mode)s::text, gpu_types => %(gpu_types)s::text[],
    user_name => %(user_name)s::text, priority => %(priority)s::integer, idempotency_key => %(idempotency_key)s::text
) AS submission_id

-- name: enqueue
-- Jobs for a submission that is already stored.
SELECT runner.enqueue(%(submission_id)s::bigint, %(mode)s::text, %(gpu_types)s::text[], %(priority)s::integer) AS added

-- name: cancel
-- Cancels what waits, asks what runs to stop.
SELECT runner.cancel(%(submission_id)s::bigint, %(user_id)s::text) AS asked

-- name: status
-- One submission's line.
SELECT submission_id, leaderboard, user_id, user_name, file_name, submission_time, modes, gpu_types, priority, state,
       verdict, done, job_status, error, position, progress, score, queue_ms, build_ms, eval_ms, started_at, finished_at,
       phase, attempts, retry_reason, retry_at, reruns, rerunning
FROM runner.status WHERE submission_id = %(submission_id)s

-- name: queue
-- What runs and waits, then the newest of what is over. Each part is the end of an index, whatever else there is.
WITH running AS MATERIALIZED (
    SELECT DISTINCT j.submission_id FROM runner.job j WHERE j.state = 'running' ORDER BY 1 DESC LIMIT %(limit)s
), queued AS MATERIALIZED (
    SELECT DISTINCT j.submission_id FROM runner.job j
    WHERE j.state = 'queued' AND j.submission_id NOT IN (SELECT r.submission_id FROM running r)
    ORDER BY 1 DESC LIMIT %(limit)s
), over AS MATERIALIZED (
    SELECT DISTINCT j.submission_id FROM runner.job j
    WHERE (SELECT count(*) FROM running) + (SELECT count(*) FROM queued) < %(limit)s
      AND NOT EXISTS (SELECT FROM runner.job o
                      WHERE o.submission_id = j.submission_id AND o.state IN ('queued', 'running'))
    ORDER BY 1 DESC LIMIT %(limit)s
)
SELECT submission_id, leaderboard, user_id, user_name, file_name, submission_time, modes, gpu_types, priority, state,
       verdict, done, job_status, error, position, progress, score, queue_ms, build_ms, eval_ms, started_at, finished_at,
       phase, attempts, retry_reason, retry_at, reruns, rerunning
FROM runner.status
WHERE submission_id IN (
    SELECT f.submission_id FROM (
        SELECT r.submission_id, 1 AS part FROM running r
        UNION ALL SELECT q.submission_id, 2 FROM queued q
        UNION ALL SELECT o.submission_id, 3 FROM over o
    ) AS f
    ORDER BY f.part, f.submission_id DESC LIMIT %(limit)s
)
ORDER BY state = 'running' DESC, state = 'queued' DESC, submission_id DESC

-- name: jobs
-- The jobs of a submission, in the order they were made.
SELECT id, gpu_type, mode, secret, state, verdict, attempt, failures, priority, cancel_requested, host, error, progress,
       report, created_at, started_at, finished_at, build_ms, eval_ms, replaces, retired_as, retired_reason, causes
FROM runner.job WHERE submission_id = %(submission_id)s ORDER BY id

-- name: runs
-- The rows of results of a submission, with the job that wrote each; by way of the jobs, because leaderboard.runs has no
-- index on the submission.
SELECT x.job_id, r.id, r.mode, r.secret, r.passed, r.score, r.start_time, r.end_time, r.result, r.compilation, r.meta,
       r.system_info
FROM runner.job j JOIN runner.job_run x ON x.job_id = j.id JOIN leaderboard.runs r ON r.id = x.run_id
WHERE j.submission_id = %(submission_id)s ORDER BY r.id

-- name: artifacts
-- The kept files of a submission, without their bytes.
SELECT a.job_id, a.id, a.name, a.media_type, octet_length(a.data) AS size_bytes, a.expires_at
FROM runner.artifact a JOIN runner.job j ON j.id = a.job_id
WHERE j.submission_id = %(submission_id)s ORDER BY a.id

-- name: artifact
-- One kept file.
SELECT name, media_type, data FROM runner.artifact WHERE id = %(id)s

-- name: ranking
-- The places on a leaderboard.
SELECT rank, leaderboard, gpu_type, user_id, user_name, submission_id, file_name, score, submission_time
FROM runner.ranking
WHERE leaderboard = %(leaderboard)s AND gpu_type = coalesce(%(gpu_type)s::text, gpu_type)
ORDER BY gpu_type, rank

-- name: personal
-- All scores of a user that count, best first per GPU type.
SELECT row_number() OVER (PARTITION BY v.gpu_type ORDER BY v.score, v.submission_id) AS rank, l.name AS leaderboard,
       v.gpu_type, v.user_id, u.user_name, v.submission_id, s.file_name, v.score, v.submission_time
FROM runner.valid_score v
JOIN leaderboard.leaderboard l ON l.id = v.leaderboard_id
JOIN leaderboard.submission s ON s.id = v.submission_id
JOIN leaderboard.user_info u ON u.id = v.user_id
WHERE l.name = %(leaderboard)s AND v.user_id = %(user_id)s
ORDER BY v.gpu_type, rank

-- name: hosts
-- The daemons and what they hold.
SELECT h.name, h.version, h.slots, h.gpu_types, h.draining, h.drain_reason, h.registered_at, h.last_seen, h.stopped_at,
       extract(epoch FROM now() - h.last_seen)::float8 AS silent_s,
       (SELECT count(*) FROM runner.job j WHERE j.state = 'running' AND j.lease_owner = h.name) AS running
FROM runner.host h ORDER BY h.name

-- name: gpu_types
-- The GPU types that registries know, and how many jobs wait for each.
SELECT g.name, g.vendor, g.aliases, g.description,
       (SELECT count(*) FROM runner.job j WHERE j.state = 'queued' AND j.gpu_type = ANY (g.name || g.aliases)) AS queued
FROM runner.gpu_type g ORDER BY g.name

-- name: boards
-- All leaderboards, open ones first.
SELECT l.id, l.name, l.deadline, l.visibility,
       ARRAY(SELECT g.gpu_type FROM leaderboard.gpu_type g WHERE g.leaderboard_id = l.id ORDER BY 1) AS gpus,
       (SELECT count(*) FROM leaderboard.submission s WHERE s.leaderboard_id = l.id) AS submissions
FROM leaderboard.leaderboard l ORDER BY l.deadline < now(), l.name

-- name: board
-- One leaderboard with its task.
SELECT l.id, l.name, l.deadline, l.description, l.visibility, l.creator_id, l.forum_id, l.task, b.extra,
       ARRAY(SELECT g.gpu_type FROM leaderboard.gpu_type g WHERE g.leaderboard_id = l.id ORDER BY 1) AS gpus,
       (SELECT count(*) FROM leaderboard.submission s WHERE s.leaderboard_id = l.id) AS submissions
FROM leaderboard.leaderboard l LEFT JOIN runner.board b ON b.leaderboard_id = l.id
WHERE l.name = %(name)s

-- name: board_templates
-- A leaderboard's templates; the newest of a language.
SELECT DISTINCT ON (lang) lang, code FROM leaderboard.templates WHERE leaderboard_id = %(id)s ORDER BY lang, id DESC

-- name: lock_board
-- One leaderboard's task and use, held until the transaction ends.
SELECT l.id, l.task, (SELECT count(*) FROM leaderboard.submission s WHERE s.leaderboard_id = l.id) AS submissions
FROM leaderboard.leaderboard l WHERE l.name = %(name)s FOR UPDATE

-- name: insert_board
-- A new leaderboard; nothing if the name is taken.
INSERT INTO leaderboard.leaderboard (name, deadline, task, creator_id, forum_id, description)
VALUES (%(name)s, %(deadline)s, %(task)s, %(creator_id)s, %(forum_id)s, %(description)s)
ON CONFLICT (name) DO NOTHING RETURNING id

-- name: update_board
-- A leaderboard's own columns.
UPDATE leaderboard.leaderboard SET deadline = %(deadline)s, task = %(task)s, description = %(description)s
WHERE id = %(id)s

-- name: drop_board_gpus
-- GPU types a leaderboard no longer offers.
DELETE FROM leaderboard.gpu_type WHERE leaderboard_id = %(id)s AND NOT gpu_type = ANY (%(gpus)s::text[])

-- name: insert_board_gpus
-- GPU types a leaderboard offers.
INSERT INTO leaderboard.gpu_type (leaderboard_id, gpu_type)
SELECT %(id)s, g FROM unnest(%(gpus)s::text[]) AS g ON CONFLICT DO NOTHING

-- name: drop_board_templates
-- Makes room for a leaderboard's new templates.
DELETE FROM leaderboard.templates WHERE leaderboard_id = %(id)s

-- name: insert_board_template
-- One template of a leaderboard.
INSERT INTO leaderboard.templates (leaderboard_id, lang, code) VALUES (%(id)s, %(lang)s, %(code)s)

-- name: save_board_extra
-- What only we know of a leaderboard.
INSERT INTO runner.board (leaderboard_id, extra, harness) VALUES (%(id)s, %(extra)s, %(harness)s)
ON CONFLICT (leaderboard_id) DO UPDATE SET extra = EXCLUDED.extra, harness = EXCLUDED.harness

-- name: delete_board_runs
-- The results on a leaderboard (KernelBot's key does not cascade).
DELETE FROM leaderboard.runs r USING leaderboard.submission s WHERE s.id = r.submission_id AND s.leaderboard_id = %(id)s

-- name: delete_board_submissions
-- The submissions of a leaderboard; our jobs and the job status go with them.
DELETE FROM leaderboard.submission WHERE leaderboard_id = %(id)s

-- name: delete_board
-- The leaderboard itself.
DELETE FROM leaderboard.leaderboard WHERE id = %(id)s

-- name: migration_lock
-- One migration at a time per database; the key is arbitrary and only ours. Ends with the transaction.
SELECT pg_advisory_xact_lock(7016325910443210)

-- name: migration_settings
-- A migration may take long, but must not hang behind somebody's forgotten transaction.
SELECT set_config('lock_timeout', '120s', true), set_config('statement_timeout', '0', true)

-- name: create_runner_schema
-- Where our objects live, the migrations' own table among them.
CREATE SCHEMA IF NOT EXISTS runner

-- name: server_encoding
-- Source text is stored and parsed as UTF-8.
SELECT current_setting('server_encoding') AS encoding

-- name: leaderboard_columns
-- What the tables of schema leaderboard look like.
SELECT c.relname AS table_name, a.attname AS column_name, format_type(a.atttypid, NULL) AS data_type,
       a.attnotnull AND NOT a.atthasdef AND a.attidentity = '' AND a.attgenerated = '' AS required
FROM pg_catalog.pg_attribute a
JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'leaderboard' AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND a.attnum > 0 AND NOT a.attisdropped

-- name: leaderboard_keys
-- The unique keys of schema leaderboard, as table and sorted columns.
SELECT c.relname AS table_name,
       ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute a
             WHERE a.attrelid = c.oid AND a.attnum = ANY (i.indkey::smallint[]) ORDER BY 1) AS columns
FROM pg_catalog.pg_index i
JOIN pg_catalog.pg_class c ON c.oid = i.indrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'leaderboard' AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
