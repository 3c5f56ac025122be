-- Keeps devices free for the best job of these GPU types that is due. A job is due if its priority is above that of all
-- jobs waiting for the smaller types, which would run on its devices meanwhile. It is also due if its priority is not
-- below theirs and it has waited long enough. A job for which another live host keeps devices free is passed over. The
-- host's own reservation is renewed first. Paused types have no jobs here. Returns the job's GPU type.
CREATE OR REPLACE FUNCTION runner.reserve(
    host text, gpu_types text[], smaller text[], waited_s double precision, hold_s double precision
) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_above integer;
    v_job record;
    v_state text;
    v_paused text[] := ARRAY(SELECT t.name FROM unnest(reserve.gpu_types || reserve.smaller) AS t (name)
                             JOIN runner.pause p ON p.gpu_type = lower(t.name));
BEGIN
    IF NOT runner.acts_for(reserve.host) THEN
        RETURN NULL;
    END IF;
    SELECT max(best.priority) INTO v_above
    FROM unnest(reserve.smaller) AS t (gpu_type)
    CROSS JOIN LATERAL (
        SELECT q.priority FROM runner.job q WHERE q.state = 'queued' AND q.ready AND q.gpu_type = t.gpu_type
        ORDER BY q.priority DESC, q.turn, q.id LIMIT 1
    ) AS best
    WHERE NOT t.gpu_type = ANY (v_paused);

    FOR v_job IN
        SELECT own.id, own.gpu_type, true AS own, own.priority
        FROM (
            SELECT q.id, q.gpu_type, q.priority FROM runner.job q
            WHERE q.state = 'queued' AND q.ready AND q.reserved_by = reserve.host AND q.gpu_type = ANY (reserve.gpu_types)
              AND NOT q.gpu_type = ANY (v_paused)
              AND (v_above IS NULL OR q.priority >= v_above)
        ) AS own
        UNION ALL
        SELECT w.id, w.gpu_type, false, w.priority
        FROM unnest(reserve.gpu_types) AS t (gpu_type)
        CROSS JOIN LATERAL (
            SELECT q.id, q.gpu_type, q.priority, q.created_at, q.reserved_by, q.reserved_until
            FROM runner.job q
            WHERE q.state = 'queued' AND q.ready AND q.gpu_type = t.gpu_type
              AND runner.may_take(q, reserve.host)
            ORDER BY q.priority DESC, q.turn, q.id
            -- No job further down is due before these.
            LIMIT 100
        ) AS w
        WHERE (w.priority > v_above OR (v_above IS NULL OR w.priority = v_above)
                                       AND w.created_at <= now() - reserve.waited_s * interval '1 second')
          AND w.reserved_by IS DISTINCT FROM reserve.host AND NOT w.gpu_type = ANY (v_paused)
          AND NOT EXISTS (
              SELECT FROM runner.host h
              WHERE h.name = w.reserved_by AND w.reserved_until > now() AND h.stopped_at IS NULL AND NOT h.draining
                AND h.last_seen > now() - interval '60 seconds')
        ORDER BY 3 DESC, 4 DESC, 1
    LOOP
        SELECT q.state INTO v_state FROM runner.job q WHERE q.id = v_job.id FOR NO KEY UPDATE SKIP LOCKED;
        IF v_state = 'queued' THEN
            UPDATE runner.job j
            SET reserved_by = reserve.host, reserved_until = now() + reserve.hold_s * interval '1 second'
            WHERE j.id = v_job.id;
            RETURN v_job.gpu_type;
        END IF;
    END LOOP;
    RETURN NULL;
END
$$;
