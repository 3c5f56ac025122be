-- Renews the leases that the host still holds and says which it has lost. One row holds the lease of a host on all jobs
-- that the heartbeat names. A job's own row is written once, by the first heartbeat that names it, and once more if a
-- later one does not name it: then its lease ends like that of a job just claimed. A job that another transaction is
-- writing is taken in by the next heartbeat. A host whose name belongs to another daemon, or to another login, has no
-- leases.
CREATE OR REPLACE FUNCTION runner.heartbeat(
    host text, lease_s double precision, ids bigint[], attempts integer[], instance text DEFAULT NULL
) RETURNS TABLE (job_id bigint, attempt integer, ours boolean, cancel_requested boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_until timestamptz := now() + heartbeat.lease_s * interval '1 second';
    v_before bigint[];
    v_held bigint[];
    v_free boolean;
    v_submission_ids integer[];
BEGIN
    IF NOT runner.is_ours(heartbeat.host, heartbeat.instance) THEN
        RETURN QUERY
        SELECT h.id, h.attempt, false, false FROM unnest(heartbeat.ids, heartbeat.attempts) AS h (id, attempt)
        ORDER BY h.id;
        RETURN;
    END IF;

    -- A transaction that is reclaiming the host's jobs holds this row: nothing is renewed then.
    SELECT l.job_ids INTO v_before FROM runner.lease l WHERE l.host = heartbeat.host FOR NO KEY UPDATE SKIP LOCKED;
    v_free := FOUND;
    -- ON CONFLICT alone would wait for that transaction.
    IF NOT v_free AND NOT EXISTS (SELECT FROM runner.lease l WHERE l.host = heartbeat.host) THEN
        INSERT INTO runner.lease (host, expires_at, job_ids) VALUES (heartbeat.host, v_until, '{}')
        ON CONFLICT DO NOTHING;
        v_free := FOUND;
    END IF;

    IF v_free THEN
        WITH locked AS MATERIALIZED (
            SELECT h.id
            FROM unnest(heartbeat.ids, heartbeat.attempts) AS h (id, attempt)
            -- Read first: a job that has been taken in is not locked.
            CROSS JOIN LATERAL (SELECT o.lease_expires_at FROM runner.job o WHERE o.id = h.id OFFSET 0) AS seen
            CROSS JOIN LATERAL (
                SELECT j.attempt, j.state, j.lease_owner FROM runner.job j
                WHERE j.id = h.id AND seen.lease_expires_at < 'infinity' FOR NO KEY UPDATE SKIP LOCKED
            ) AS j
            WHERE j.attempt = h.attempt AND j.state = 'running' AND j.lease_owner = heartbeat.host
        )
        UPDATE runner.job j SET lease_expires_at = 'infinity'
        FROM locked k WHERE j.id = k.id AND j.id = ANY (heartbeat.ids);
        -- Those of the host's lease, and no others, have an infinite one.
        SELECT coalesce(array_agg(h.id ORDER BY h.id), '{}') INTO v_held
        FROM unnest(heartbeat.ids, heartbeat.attempts) AS h (id, attempt)
        CROSS JOIN LATERAL (SELECT * FROM runner.job o WHERE o.id = h.id OFFSET 0) AS j
        WHERE j.attempt = h.attempt AND j.state = 'running' AND j.lease_owner = heartbeat.host
          AND j.lease_expires_at = 'infinity';
        IF NOT coalesce(v_before, '{}') <@ v_held THEN
            UPDATE runner.job j SET lease_expires_at = v_until
            FROM unnest(v_before) AS b (id)
            CROSS JOIN LATERAL (
                SELECT o.state, o.lease_owner, o.lease_expires_at FROM runner.job o WHERE o.id = b.id
                FOR NO KEY UPDATE SKIP LOCKED
            ) AS o
            WHERE j.id = b.id AND j.id = ANY (v_before) AND NOT b.id = ANY (v_held)
              AND o.state = 'running' AND o.lease_owner = heartbeat.host AND o.lease_expires_at = 'infinity';
            -- One that another transaction is writing stays in the host's lease.
            SELECT array_agg(u.id ORDER BY u.id) INTO v_held
            FROM (SELECT unnest(v_held) AS id
                  UNION
                  SELECT b.id FROM unnest(v_before) AS b (id)
                  CROSS JOIN LATERAL (SELECT * FROM runner.job o WHERE o.id = b.id OFFSET 0) AS o
                  WHERE o.state = 'running' AND o.lease_owner = heartbeat.host
                      AND o.lease_expires_at = 'infinity') AS u;
        END IF;
        UPDATE runner.lease l SET expires_at = v_until, job_ids = coalesce(v_held, '{}') WHERE l.host = heartbeat.host;
    END IF;

    RETURN QUERY
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
          WHERE h.name = heartbeat.host AND h.last_seen NOT BETWEEN now() - interval '15 seconds' AND now()
          FOR NO KEY UPDATE SKIP LOCKED) AS free
    WHERE t.name = free.name;
END
$$;
