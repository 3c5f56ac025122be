-- Gives a host the submission of a waiting job, to see whether it is a file that can be evaluated at all; no row: there
-- is none. Each job is given once, and the job goes on waiting: what the host sees is told by runner.complete_waiting,
-- or never. Only jobs that have waited for a second are given, in the order of claims, and only the first 200 of a class
-- (GPU type, priority) are looked at; no secret jobs of ranked submissions, whose public job has run. A class of which no
-- job was ever claimed has none. Waits for no lock.
CREATE OR REPLACE FUNCTION runner.take_check(host text, gpu_types text[], instance text)
RETURNS TABLE (
    id bigint, attempt integer, submission_id integer, leaderboard text, gpu_type text, mode text, secret boolean,
    options jsonb, user_id text, file_name text, code bytea, task jsonb, extra jsonb, secret_seed bigint,
    failures integer, created_at timestamptz, started_at timestamptz, avoid_slot text
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_id bigint;
BEGIN
    IF NOT runner.is_ours(take_check.host, take_check.instance) OR EXISTS (
        SELECT FROM runner.host h WHERE h.name = take_check.host AND (h.draining OR h.stopped_at IS NOT NULL)) THEN
        RETURN;
    END IF;
    WITH RECURSIVE class AS (
        SELECT t.gpu_type, 1001 AS priority, NULL::bigint AS floor FROM unnest(take_check.gpu_types) AS t (gpu_type)
        WHERE NOT EXISTS (SELECT FROM runner.pause p WHERE p.gpu_type = lower(t.gpu_type))
        UNION ALL
        SELECT c.gpu_type, k.priority, k.floor FROM class c
        CROSS JOIN LATERAL (
            SELECT o.priority, o.floor FROM runner.clock o WHERE o.gpu_type = c.gpu_type AND o.priority < c.priority
            ORDER BY o.gpu_type DESC, o.priority DESC, o.seq DESC LIMIT 1
        ) AS k
    )
    SELECT j.id INTO v_id
    FROM (
        SELECT f.id FROM class c
        CROSS JOIN LATERAL (
            SELECT q.* FROM runner.job q
            WHERE q.state = 'queued' AND q.ready AND q.gpu_type = c.gpu_type AND q.priority = c.priority
              AND q.turn >= c.floor
            ORDER BY q.turn, q.id LIMIT 200
        ) AS f
        WHERE NOT f.checked AND f.submission_id IS NOT NULL AND f.created_at < now() - interval '1 second'
          AND NOT (f.secret AND f.mode = 'leaderboard') AND runner.may_take(f, take_check.host)
        ORDER BY f.priority DESC, f.turn, f.id LIMIT 20
    ) AS n
    CROSS JOIN LATERAL (
        SELECT o.id FROM runner.job o WHERE o.id = n.id AND o.state = 'queued' AND NOT o.checked
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS j
    LIMIT 1;
    RETURN QUERY
    WITH given AS (UPDATE runner.job j SET checked = true WHERE j.id = v_id RETURNING j.*)
    SELECT g.id, g.attempt + 1, g.submission_id, l.name, g.gpu_type, g.mode, g.secret, g.options, s.user_id,
           s.file_name, f.code, l.task, b.extra, l.secret_seed, g.failures, g.created_at, now(), NULL::text
    FROM given g
    JOIN leaderboard.submission s ON s.id = g.submission_id
    JOIN leaderboard.code_files f ON f.id = s.code_id
    JOIN leaderboard.leaderboard l ON l.id = s.leaderboard_id
    LEFT JOIN runner.board b ON b.leaderboard_id = l.id;
END
$$;
