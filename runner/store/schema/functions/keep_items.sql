-- Writes the results of items of running groups, part of runner.complete, and returns the groups that are to be
-- evaluated again, because items have no result or one that is our fault, and attempts are left. In the last attempt
-- such items end as internal_error. A result counts only for an item of the group. The caller holds the locks on
-- batches and jobs. Whether an item has a result is asked in a subquery of one value: as NOT EXISTS it might become a
-- join that walks all.
CREATE OR REPLACE FUNCTION runner.keep_items(job_ids bigint[], results jsonb) RETURNS bigint[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_again bigint[];
    v_job record;
BEGIN
    INSERT INTO runner.item_result (item_id, batch_id, seq, owner_id, payload, verdict, attempt, host, result)
    SELECT f.id, f.batch_id, coalesce(f.seq, 0)
           + row_number() OVER (PARTITION BY f.batch_id ORDER BY f.number, f.place),
           f.owner_id, f.payload, f.verdict, f.attempt, f.host, f.result
    FROM (
        SELECT DISTINCT ON (i.id) i.id, i.batch_id, i.owner_id, i.payload, r.number, x.place, x.result,
               x.result ->> 'verdict' AS verdict, j.attempt, j.host,
               (SELECT o.seq FROM runner.item_result o WHERE o.batch_id = i.batch_id ORDER BY o.seq DESC LIMIT 1) AS seq
        FROM ROWS FROM (jsonb_to_recordset(keep_items.results) AS (job_id bigint, items jsonb))
            WITH ORDINALITY AS r (job_id, items, number)
        CROSS JOIN LATERAL jsonb_array_elements(r.items) WITH ORDINALITY AS x (result, place)
        CROSS JOIN LATERAL (SELECT o.id, o.attempt, o.host FROM runner.job o WHERE o.id = r.job_id OFFSET 0) AS j
        CROSS JOIN LATERAL (
            SELECT * FROM runner.item o WHERE o.id = (x.result ->> 'id')::bigint OFFSET 0
        ) AS i
        WHERE r.job_id = ANY (keep_items.job_ids) AND i.job_id = r.job_id
          AND x.result ->> 'verdict' <> 'internal_error'
          AND (SELECT o.item_id FROM runner.item_result o WHERE o.item_id = i.id) IS NULL
        ORDER BY i.id, r.number, x.place
    ) AS f;

    FOR v_job IN
        SELECT j.id, j.failures + 1 >= (SELECT t.max_attempts FROM runner.retry t) AS last, j.cancel_requested,
               (SELECT max(x.result ->> 'message') FROM jsonb_array_elements(r.items) AS x (result)
                WHERE x.result ->> 'verdict' = 'internal_error') AS message
        FROM ROWS FROM (jsonb_to_recordset(keep_items.results) AS (job_id bigint, items jsonb))
            WITH ORDINALITY AS r (job_id, items, number)
        CROSS JOIN LATERAL (SELECT * FROM runner.job o WHERE o.id = r.job_id AND o.batch_id IS NOT NULL OFFSET 0) AS j
        WHERE r.job_id = ANY (keep_items.job_ids)
          AND EXISTS (SELECT FROM (SELECT * FROM runner.item o WHERE o.job_id = j.id OFFSET 0) AS i
                      WHERE (SELECT o.item_id FROM runner.item_result o WHERE o.item_id = i.id) IS NULL)
        ORDER BY j.id
    LOOP
        IF v_job.cancel_requested THEN
            PERFORM runner.end_items(ARRAY[v_job.id], NULL, 'cancelled');
        ELSIF v_job.last THEN
            PERFORM runner.end_items(ARRAY[v_job.id], 'internal_error',
                coalesce(v_job.message, 'the host returned no result for it'));
        ELSE
            v_again := v_again || v_job.id;
        END IF;
    END LOOP;
    RETURN coalesce(v_again, '{}');
END
$$;
