-- Renews the leases that the host still holds and says which it has lost. A job that another transaction is writing
-- keeps its lease unchanged until the next heartbeat. A host whose name belongs to another daemon, or to
-- another login, has no leases.
CREATE OR REPLACE FUNCTION runner.heartbeat(
    host text, lease_s double precision, ids bigint[], attempts integer[], instance text DEFAULT NULL
) RETURNS TABLE (job_id bigint, attempt integer, ours boolean, cancel_requested boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_submission_ids integer[];
BEGIN
    IF NOT runner.is_ours(heartbeat.host, heartbeat.instance) THEN
        RETURN QUERY
        SELECT h.id, h.attempt, false, false FROM unnest(heartbeat.ids, heartbeat.attempts) AS h (id, attempt)
        ORDER BY h.id;
        RETURN;
    END IF;

    RETURN QUERY
    WITH locked AS MATERIALIZED (
        SELECT h.id
        FROM unnest(heartbeat.ids, heartbeat.attempts) AS h (id, attempt)
        CROSS JOIN LATERAL (
            SELECT j.attempt, j.state, j.lease_owner FROM runner.job j WHERE j.id = h.id FOR NO KEY UPDATE SKIP LOCKED
        ) AS j
        WHERE j.attempt = h.attempt AND j.state = 'running' AND j.lease_owner = heartbeat.host
    ), renewed AS (
        UPDATE runner.job j SET lease_expires_at = now() + heartbeat.lease_s * interval '1 second'
        FROM locked k WHERE j.id = k.id AND j.id = ANY (heartbeat.ids)
    )
    SELECT h.id, h.attempt, coalesce(j.ours, false), coalesce(j.ours AND j.cancel_requested, false)
    FROM unnest(heartbeat.ids, heartbeat.attempts) AS h (id, attempt)
    -- As the statement found it, locked or not: a cancellation counts once it is committed.
    LEFT JOIN LATERAL (
        SELECT j.attempt = h.attempt AND j.state = 'running' AND j.lease_owner = heartbeat.host AS ours,
               j.cancel_requested
        FROM runner.job j WHERE j.id = h.id OFFSET 0
    ) AS j ON true
    ORDER BY h.id;

    SELECT array_agg(j.submission_id) INTO v_submission_ids FROM runner.job j
    WHERE j.id = ANY (heartbeat.ids) AND j.lease_owner = heartbeat.host;
    PERFORM runner.show_running(v_submission_ids);

    -- A claim does it every ten seconds, unless the daemon's loop stands still.
    UPDATE runner.host t SET last_seen = now()
    FROM (SELECT h.name FROM runner.host h
          WHERE h.name = heartbeat.host AND h.last_seen < now() - interval '15 seconds'
          FOR NO KEY UPDATE SKIP LOCKED) AS free
    WHERE t.name = free.name;
END
$$;
