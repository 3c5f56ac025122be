-- Ends what is still without a result in these groups, which are over: as `verdict`, or as cancelled if that is NULL.
-- Does nothing for jobs of submissions. The caller holds the locks on the batches of the jobs.
CREATE OR REPLACE FUNCTION runner.end_items(job_ids bigint[], verdict text, message text) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_ended bigint;
BEGIN
    INSERT INTO runner.item_result (item_id, batch_id, seq, owner_id, payload, verdict, attempt, host, result)
    SELECT e.id, e.batch_id, coalesce(e.seq, 0) + row_number() OVER (PARTITION BY e.batch_id ORDER BY e.id), e.owner_id,
           e.payload, end_items.verdict, nullif(e.attempt, 0), e.host,
           runner.empty_result(coalesce(end_items.verdict, 'cancelled'), 'reference', end_items.message)
    FROM (
        SELECT i.id, i.batch_id, i.owner_id, i.payload, j.attempt, j.host,
               (SELECT r.seq FROM runner.item_result r WHERE r.batch_id = i.batch_id ORDER BY r.seq DESC LIMIT 1) AS seq
        FROM unnest(end_items.job_ids) AS u (id)
        CROSS JOIN LATERAL (
            SELECT o.id, o.attempt, o.host FROM runner.job o WHERE o.id = u.id AND o.batch_id IS NOT NULL OFFSET 0
        ) AS j
        CROSS JOIN LATERAL (SELECT * FROM runner.item o WHERE o.job_id = j.id OFFSET 0) AS i
        WHERE (SELECT r.item_id FROM runner.item_result r WHERE r.item_id = i.id) IS NULL
    ) AS e;
    GET DIAGNOSTICS v_ended = ROW_COUNT;
    RETURN v_ended;
END
$$;
