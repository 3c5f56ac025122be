-- name: ping
-- A round trip that shows whether the database answers.
SELECT 1 AS one

-- name: backend
-- The server's process that answers.
SELECT pg_backend_pid()

-- name: claim
-- Takes jobs; returns the host's state, the server's time and each leaderboard's demand. Always returns a row.
SELECT c.*, extract(epoch FROM now())::float8 AS now_s, d.timing, d.tolerance
FROM runner.claim(
    %(host)s::text, %(gpu_types)s::text[], %(free)s::integer[], %(lease_s)s::float8,
    %(instance)s::text) WITH ORDINALITY AS c
-- OFFSET: looked up by name for each job, however many jobs the planner expects from a claim.
LEFT JOIN LATERAL (SELECT o.timing, o.tolerance FROM runner.demand o
    WHERE o.leaderboard = c.leaderboard OFFSET 0) AS d ON true
ORDER BY c.ordinality

-- name: take_check
-- The submission of a job that still waits, for a check that needs no slot; no row where there is none.
SELECT c.*, d.timing, d.tolerance
FROM runner.take_check(%(host)s::text, %(gpu_types)s::text[], %(instance)s::text) AS c
LEFT JOIN runner.demand d ON d.leaderboard = c.leaderboard

-- name: notify
-- Notifies frontends of events, and daemons of work for GPU types (NULL: none). A power cut may lose it.
SELECT set_config('synchronous_commit', 'off', true), count(pg_notify(n.channel, n.payload))
FROM (
    -- As JSON, not jsonb: each reads as it was written.
    SELECT 'runner_events' AS channel, e.value::text AS payload FROM json_array_elements(%(events)s::json) AS e
    UNION ALL
    SELECT 'runner_queue', %(work)s::text WHERE %(work)s::text IS NOT NULL
) AS n
-- As in runner.tell.
WHERE (SELECT pg_notification_queue_usage() < 0.5)

-- name: save_retry
-- Sets how often jobs are tried again.
UPDATE runner.retry
SET max_attempts = %(max_attempts)s, pause_s = %(pause_s)s, pause_max_s = %(pause_max_s)s,
    max_lost_leases = %(max_lost_leases)s, max_unanswered_claims = %(max_unanswered_claims)s

-- name: listen_queue
-- Subscribes to the queue's wake-ups.
LISTEN runner_queue

-- name: listen_hosts
-- Subscribes to notifications for single hosts.
LISTEN runner_hosts

-- name: status
-- The status of one submission.
SELECT submission_id, leaderboard, user_id, user_name, file_name, submission_time, modes, gpu_types, priority, state,
       verdict, done, job_status, error, position, progress, score, queue_ms, build_ms, eval_ms, started_at,
       finished_at,
       phase, attempts, retry_reason, retry_at, reruns, rerunning, timing, correctness, unranked, no_host_since,
       paused
FROM runner.status WHERE submission_id = %(submission_id)s

-- name: queue
-- The submissions that run and wait, then the newest finished ones. Each part is the end of an index, however long that
-- is.
WITH running AS MATERIALIZED (
    SELECT DISTINCT j.submission_id FROM runner.job j
    WHERE j.lease_expires_at IS NOT NULL AND j.submission_id IS NOT NULL
    ORDER BY 1 DESC LIMIT %(limit)s
), queued AS MATERIALIZED (
    SELECT DISTINCT j.submission_id FROM runner.job j
    WHERE j.state = 'queued' AND j.submission_id IS NOT NULL
      AND j.submission_id NOT IN (SELECT r.submission_id FROM running r)
    ORDER BY 1 DESC LIMIT %(limit)s
), over AS MATERIALIZED (
    SELECT s.id AS submission_id FROM leaderboard.submission s
    WHERE (SELECT count(*) FROM running) + (SELECT count(*) FROM queued) < %(limit)s
      AND (SELECT bool_and(j.state IN ('done', 'cancelled')) FROM runner.job j WHERE j.submission_id = s.id)
    ORDER BY s.id DESC LIMIT %(limit)s
)
SELECT submission_id, leaderboard, user_id, user_name, file_name, submission_time, modes, gpu_types, priority, state,
       verdict, done, job_status, error, position, progress, score, queue_ms, build_ms, eval_ms, started_at,
       finished_at,
       phase, attempts, retry_reason, retry_at, reruns, rerunning, timing, correctness, unranked, no_host_since,
       paused
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
-- The results of a submission, with the job that wrote each. Found through the jobs, because leaderboard.runs has no
-- index on the submission.
SELECT x.job_id, r.id, r.mode, r.secret, r.passed, r.score, r.start_time, r.end_time, r.result, r.compilation, r.meta,
       r.system_info
FROM leaderboard.submission s
CROSS JOIN LATERAL (SELECT o.id FROM runner.job o WHERE o.submission_id = s.id OFFSET 0) AS j
CROSS JOIN LATERAL (SELECT * FROM runner.job_run o WHERE o.job_id = j.id OFFSET 0) AS x
CROSS JOIN LATERAL (SELECT * FROM leaderboard.runs o WHERE o.id = x.run_id OFFSET 0) AS r
WHERE s.id = %(submission_id)s ORDER BY r.id

-- name: may_read_results
-- Whether this login may read jobs and results as they are, those of secret runs too.
SELECT has_table_privilege('runner.job', 'SELECT') AND has_table_privilege('leaderboard.runs', 'SELECT') AS may

-- name: shown_jobs
-- The jobs of a submission as a frontend sees them.
SELECT j.id, j.gpu_type, j.mode, j.secret, j.state, j.verdict, j.attempt, j.host, j.error, j.replaces,
       j.retired AS retired_as, j.retired_reason,
       (SELECT p FROM jsonb_array_elements(s.progress) AS p
        WHERE j.state = 'running' AND NOT j.secret AND p ->> 'gpu_type' = j.gpu_type LIMIT 1) AS progress
FROM runner.status s
CROSS JOIN LATERAL jsonb_to_recordset(s.jobs) AS j (
    id bigint, gpu_type text, mode text, secret boolean, state text, verdict text, attempt integer, host text, error text,
    replaces bigint, retired text, retired_reason text)
WHERE s.submission_id = %(submission_id)s ORDER BY j.id

-- name: shown_runs
-- The results of a submission as a frontend sees them.
SELECT job_id, run_id AS id, mode, secret, passed, score, start_time, end_time, result, compilation, meta,
       coalesce(system_info, '{}') AS system_info
FROM runner.result WHERE submission_id = %(submission_id)s AND job_id IS NOT NULL ORDER BY run_id

-- name: artifacts
-- The artifacts of a submission, without their bytes.
SELECT a.job_id, a.id, a.name, a.media_type, octet_length(a.data) AS size_bytes, a.expires_at
FROM runner.artifact a JOIN runner.job j ON j.id = a.job_id
WHERE j.submission_id = %(submission_id)s ORDER BY a.id

-- name: artifact
-- One artifact.
SELECT name, media_type, data FROM runner.artifact WHERE id = %(id)s

-- name: hosts
-- The daemons and the jobs they hold.
SELECT h.name, h.version, h.slots, h.gpu_types, h.draining, h.drain_reason, h.registered_at, h.last_seen, h.stopped_at,
       (SELECT coalesce(jsonb_agg(k ORDER BY k.registered_at), '[]') FROM runner.host_key k
           WHERE k.host = h.name) AS keys,
       extract(epoch FROM now() - h.last_seen)::float8 AS silent_s,
       (SELECT count(*) FROM runner.job j WHERE j.lease_expires_at IS NOT NULL AND j.lease_owner = h.name) AS running
FROM runner.host h ORDER BY h.name

-- name: gpu_types
-- The GPU types that registries know, and how many jobs wait for each.
SELECT g.name, g.vendor, g.aliases, g.description,
       (SELECT count(*) FROM runner.job j WHERE j.state = 'queued' AND j.gpu_type = ANY (g.name || g.aliases)) AS queued
FROM runner.gpu_type g ORDER BY g.name

-- name: queue_depths
-- How many jobs that may begin wait for each GPU type, and since when.
SELECT j.gpu_type, count(*) AS jobs,
       greatest(0, extract(epoch FROM now() - min(greatest(j.created_at, j.not_before))))::float8 AS oldest_s
FROM runner.job j WHERE j.state = 'queued' AND j.ready GROUP BY j.gpu_type ORDER BY j.gpu_type

-- name: board_name
-- The name of a leaderboard that is named by it, or by its number where none has that name.
SELECT l.name FROM leaderboard.leaderboard l WHERE l.name = %(given)s OR l.id::text = %(given)s
ORDER BY l.name = %(given)s DESC LIMIT 1

-- name: may_read_tasks
-- Whether this login may read the tasks of leaderboards. Without the right to a schema the questions would fail.
SELECT CASE WHEN has_schema_privilege('leaderboard', 'USAGE') AND has_schema_privilege('runner', 'USAGE')
            THEN has_column_privilege('leaderboard.leaderboard', 'task', 'SELECT')
                 AND has_table_privilege('runner.board', 'SELECT')
            ELSE false END AS may

-- name: open_tasks
-- The tasks of the leaderboards that take submissions.
SELECT l.name, l.task, b.extra FROM leaderboard.leaderboard l LEFT JOIN runner.board b ON b.leaderboard_id = l.id
WHERE l.deadline > now() ORDER BY l.name

-- name: reap
-- Deletes one batch of old rows, and finishes submissions without an open job.
SELECT artifacts, stale_results, events, hosts, shares, settled, reports, superseded, code, keys, scores, batches
FROM runner.reap(keep => %(keep_s)s * interval '1 second', at_most => %(limit)s::integer)

-- name: moment
-- The time that a text such as `2 hours ago` means.
SELECT now() + %(span)s::text::interval AS moment

-- name: server_facts
-- The server's version, its connections and the limits of them, the database's name, and whether migrations have
-- recorded a version.
SELECT current_setting('server_version') AS server_version, current_database()::text AS database,
       (SELECT nullif(d.datconnlimit, -1) FROM pg_catalog.pg_database d
        WHERE d.datname = current_database() AND NOT r.rolsuper) AS database_limit,
       CASE WHEN NOT r.rolsuper THEN nullif(r.rolconnlimit, -1) END AS login_limit,
       current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer
           - coalesce(current_setting('reserved_connections', true), '0')::integer AS connections,
       (SELECT sum(d.numbackends)::integer FROM pg_catalog.pg_stat_database d) AS connected,
       -- The transactions that have written: those of other logins have no start, unless the login may read it. Then
       -- the number of transactions since says how old the oldest is.
       (SELECT extract(epoch FROM now() - min(w.start))::float8
        FROM (SELECT a.xact_start AS start FROM pg_catalog.pg_stat_activity a WHERE a.backend_xid IS NOT NULL
              UNION ALL SELECT p.prepared FROM pg_catalog.pg_prepared_xacts p) AS w) AS write_open_s,
       (pg_snapshot_xmax(pg_current_snapshot())::text::bigint - pg_snapshot_xmin(pg_current_snapshot())::text::bigint)
           AS transactions_since_write,
       to_regclass('runner.migration') IS NOT NULL AS has_versions
FROM pg_catalog.pg_roles r WHERE r.rolname = session_user

-- name: hidden_tables
-- Our tables with row security and without a policy: only their owner sees rows. And whether this login sees none.
SELECT c.oid::regclass::text AS name, row_security_active(c.oid) AS from_this_login
FROM pg_catalog.pg_class c
WHERE c.relnamespace IN (to_regnamespace('leaderboard'), to_regnamespace('runner')) AND c.relkind = 'r'
  AND c.relrowsecurity AND NOT EXISTS (SELECT FROM pg_catalog.pg_policy p WHERE p.polrelid = c.oid)
ORDER BY 1

-- name: unpinned_triggers
-- Triggers of others on our tables whose functions have no search_path of their own: they run with that of our functions,
-- in which a name without a schema is one of PostgreSQL's.
SELECT format('%I on %s calls %s', t.tgname, t.tgrelid::regclass, t.tgfoid::regprocedure) AS text
FROM pg_catalog.pg_trigger t
JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid
JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
JOIN pg_catalog.pg_language l ON l.oid = p.prolang
WHERE c.relnamespace IN (to_regnamespace('leaderboard'), to_regnamespace('runner')) AND NOT t.tgisinternal
  AND t.tgenabled <> 'D' AND l.lanname NOT IN ('internal', 'c')
  AND NOT EXISTS (SELECT FROM unnest(p.proconfig) AS s (text) WHERE s.text LIKE 'search\_path=%')
ORDER BY 1

-- name: session_settings
-- The settings of a session by name, as JSON text: each is a text, however the session writes other types.
SELECT json_object_agg(s.name, current_setting(s.name, true)) AS values
FROM unnest(%(names)s::text[]) AS s (name) WHERE current_setting(s.name, true) IS NOT NULL

-- name: has_version
-- Whether the database has our tables.
SELECT to_regclass('runner.migration') IS NOT NULL AS has_version

-- name: applied_version
-- The last migration applied.
SELECT version_num::text AS version FROM runner.migration

-- name: store_version
-- The last migration applied, in place of the one before.
WITH last AS (DELETE FROM runner.migration)
INSERT INTO runner.migration (version_num) VALUES (%(version)s)

-- name: login_facts
-- The login, whether it may act for every host because it has the owner's rights, and the hosts that are bound to it.
SELECT session_user::text AS login, runner.is_owner() AS owner,
       ARRAY(SELECT h.name FROM runner.host h WHERE h.login = session_user ORDER BY h.name) AS hosts,
       (SELECT count(o.name)::integer FROM runner.host o) AS all_hosts

-- name: listen_check
-- Subscribes to the notifications of checks.
LISTEN runner_check

-- name: notify_check
-- Notifies every check that listens.
SELECT pg_notify('runner_check', %(payload)s::text)

-- name: migration_lock
-- Allows one migration at a time per database, until the transaction ends. Not an advisory lock, which every login may
-- take: this one only the schema's owner can hold.
COMMENT ON SCHEMA runner IS 'The queue of kernel-runner.'

-- name: migration_settings
-- Lets a migration take long, but wait for a lock no longer than frontends may wait behind it.
SELECT set_config('lock_timeout', '2s', true), set_config('statement_timeout', '0', true)

-- name: lock_views
-- Locks our views alone. A reader holds a view before its tables, so they come first, and a view before those that it
-- reads. LOCK TABLE would also lock the tables; this changes nothing but takes the lock.
DO $$
DECLARE
    v_view record;
BEGIN
    FOR v_view IN
        WITH RECURSIVE ours AS (
            SELECT c.oid FROM pg_catalog.pg_class c
            WHERE c.relnamespace = to_regnamespace('runner') AND c.relkind = 'v'
        ), read AS (
            SELECT DISTINCT r.ev_class AS reader, o.oid FROM pg_catalog.pg_depend d
            JOIN pg_catalog.pg_rewrite r ON r.oid = d.objid AND d.classid = 'pg_rewrite'::regclass
            JOIN ours o ON o.oid = d.refobjid AND o.oid <> r.ev_class
        ), depth AS (
            SELECT o.oid, 0 AS level FROM ours o
            UNION ALL SELECT r.oid, d.level + 1 FROM depth d JOIN read r ON r.reader = d.oid
        )
        SELECT d.oid::regclass AS name, a.attname FROM depth d
        JOIN pg_catalog.pg_attribute a ON a.attrelid = d.oid AND a.attnum = 1
        GROUP BY d.oid, a.attname ORDER BY max(d.level), d.oid
    LOOP
        EXECUTE format('ALTER VIEW %s ALTER COLUMN %I DROP DEFAULT', v_view.name, v_view.attname);
    END LOOP;
END
$$

-- name: lock_tables
-- Locks all tables that functions write, in their order, before a version changes one. KernelBot's stay readable.
DO $$
DECLARE
    v_name text;
BEGIN
    FOREACH v_name IN ARRAY ARRAY['user_info', 'submission', 'runs'] LOOP
        IF to_regclass('leaderboard.' || v_name) IS NOT NULL THEN
            EXECUTE format('LOCK TABLE leaderboard.%I IN SHARE ROW EXCLUSIVE MODE', v_name);
        END IF;
    END LOOP;
    FOREACH v_name IN ARRAY ARRAY['runner.job', 'leaderboard.submission_job_status', 'runner.share', 'runner.clock',
                                  'runner.host', 'runner.gpu_type', 'runner.board', 'runner.final_score',
                                  'runner.score_mark', 'runner.applied'] LOOP
        IF to_regclass(v_name) IS NOT NULL THEN
            EXECUTE format('LOCK TABLE %s IN %s MODE', v_name,
                CASE WHEN v_name LIKE 'runner.%' THEN 'ACCESS EXCLUSIVE' ELSE 'SHARE ROW EXCLUSIVE' END);
        END IF;
    END LOOP;
END
$$

-- name: raise_sequences
-- Puts each sequence that is behind its table to the last number there.
DO $$
DECLARE
    v_of record;
BEGIN
    FOR v_of IN
        SELECT s.oid::regclass AS sequence, c.oid::regclass AS name, a.attname
        FROM pg_catalog.pg_class s
        JOIN pg_catalog.pg_depend d ON d.objid = s.oid AND d.classid = 'pg_class'::regclass AND d.deptype IN ('a', 'i')
        JOIN pg_catalog.pg_class c ON c.oid = d.refobjid
            AND c.relnamespace IN (to_regnamespace('leaderboard'), to_regnamespace('runner'))
        JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = d.refobjsubid
        WHERE s.relkind = 'S' AND pg_has_role(s.relowner, 'USAGE') AND pg_has_role(c.relowner, 'USAGE')
    LOOP
        EXECUTE format('SELECT setval(%L, t.last) FROM (SELECT max(%I) AS last FROM %s) AS t, %s AS s
            WHERE t.last >= s.last_value + s.is_called::integer',
            v_of.sequence, v_of.attname, v_of.name, v_of.sequence);
    END LOOP;
END
$$

-- name: strays
-- The statements that give what is of ours, by its name, to the owner of the first table, where another owns it.
WITH ours AS (
    SELECT CASE c.relkind WHEN 'c' THEN 'TYPE' ELSE 'TABLE' END AS kind, c.oid::regclass::text AS object,
           c.relname AS name, c.relowner AS owner
    FROM pg_catalog.pg_class c
    WHERE c.relnamespace = to_regnamespace('runner') AND c.relkind IN ('r', 'v', 'c')
    UNION ALL
    SELECT 'FUNCTION', p.oid::regprocedure::text, p.proname, p.proowner
    FROM pg_catalog.pg_proc p WHERE p.pronamespace = to_regnamespace('runner') AND p.prokind = 'f'
)
SELECT format('ALTER %%s %%s OWNER TO %%I', o.kind, o.object, pg_get_userbyid(j.relowner)) AS statement
FROM ours o JOIN pg_catalog.pg_class j ON j.oid = to_regclass('runner.job') AND j.relowner <> o.owner
WHERE o.name = ANY (%(names)s::text[]) ORDER BY o.kind DESC, o.object

-- name: index_settings
-- For one connection that builds indexes. Each waits for the transactions that are open, but not without end.
SELECT set_config('lock_timeout', '60s', false), set_config('statement_timeout', '0', false)

-- name: try_index_lock
-- Allows one builder of indexes per database, until this transaction ends, which is not the builder's. It is tried, not
-- waited for: a session that waits in a statement holds a snapshot, and building an index waits for those. As for
-- migration_lock, only the owner can hold it; it stops neither a migration nor a reader.
DO $$
BEGIN
    PERFORM set_config('idle_in_transaction_session_timeout', '0', true);
    LOCK TABLE runner.migration IN SHARE UPDATE EXCLUSIVE MODE NOWAIT;
END
$$

-- name: built_indexes
-- The indexes of both schemas; one that could not be finished is there, but not valid.
SELECT c.relname AS name, c.oid::regclass::text AS full_name, i.indisvalid AS valid
FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
WHERE c.relnamespace IN (to_regnamespace('leaderboard'), to_regnamespace('runner'))

-- name: applied_objects
-- A hash of all our functions and views as they are, with their rights and comments.
SELECT md5(string_agg(o.text, ' ' ORDER BY o.text COLLATE "C")) AS objects
FROM (
    SELECT concat_ws(' ', pg_get_functiondef(p.oid), p.proacl, p.proowner, obj_description(p.oid, 'pg_proc')) AS text
    FROM pg_catalog.pg_proc p WHERE p.pronamespace = to_regnamespace('runner') AND p.prokind = 'f'
    UNION ALL
    SELECT concat_ws(' ', c.relname, pg_get_viewdef(c.oid), c.reloptions, c.relowner,
        obj_description(c.oid, 'pg_class'))
    FROM pg_catalog.pg_class c WHERE c.relnamespace = to_regnamespace('runner') AND c.relkind = 'v'
) AS o

-- name: applied_files
-- The hashes that the last migration stored, as one text.
SELECT concat_ws(' ', a.files, a.objects) AS stored FROM runner.applied a

-- name: store_applied
-- The hashes that the next migration compares, in place of the last.
INSERT INTO runner.applied (files, objects) VALUES (%(files)s, %(objects)s)
ON CONFLICT (only_row) DO UPDATE SET files = EXCLUDED.files, objects = EXCLUDED.objects

-- name: create_runner_schema
-- Makes the schema of our objects; the table of versions is one of them.
CREATE SCHEMA IF NOT EXISTS runner

-- name: text_settings
-- The database's encoding, since source text is stored and parsed as UTF-8; whether names fold as in Python.
SELECT current_setting('server_encoding') AS encoding, lower('I') = 'i' AS folds

-- name: leaderboard_columns
-- The columns of the tables in schema leaderboard.
SELECT c.relname AS "table", a.attname AS name, format_type(a.atttypid, NULL) AS data_type,
       a.attnotnull AND NOT a.atthasdef AND a.attidentity = '' AND a.attgenerated = '' AS required
FROM pg_catalog.pg_attribute a
JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'leaderboard' AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND a.attnum > 0 AND NOT a.attisdropped

-- name: leaderboard_keys
-- The unique keys of schema leaderboard, as table and sorted columns.
SELECT c.relname AS "table",
       ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute a
             WHERE a.attrelid = c.oid AND a.attnum = ANY (i.indkey::smallint[]) ORDER BY 1) AS columns
FROM pg_catalog.pg_index i
JOIN pg_catalog.pg_class c ON c.oid = i.indrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'leaderboard' AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
