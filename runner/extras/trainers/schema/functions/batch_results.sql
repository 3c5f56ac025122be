-- The results of the session's own items. By batch: those after `after`, in the order in which they came; give the last
-- `seq` next time. By keys: one row for each key that is known, with its state, also without a result.
-- No more rows than `at_most`, 1,000 by default; one page costs the same wherever it begins.
CREATE OR REPLACE FUNCTION runner.batch_results(
    batch text DEFAULT NULL, keys text[] DEFAULT NULL, after bigint DEFAULT 0, at_most integer DEFAULT 1000,
    user_id text DEFAULT NULL
) RETURNS TABLE (
    key text, seq bigint, item_id bigint, batch_id bigint, state text, verdict text, attempt integer, host text,
    reused_from bigint, created_at timestamptz, finished_at timestamptz, result jsonb
)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_sort = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_of record;
    v_at_most integer := least(greatest(coalesce(batch_results.at_most, 1000), 1), 1000);
BEGIN
    IF (batch_results.batch IS NULL) = (batch_results.keys IS NULL) THEN
        PERFORM runner.refuse('KR050', 'results are asked for by batch or by keys', 'Give one of the two.');
    END IF;
    SELECT * INTO v_of FROM runner.batch_of(batch_results.batch, batch_results.user_id);
    IF batch_results.keys IS NOT NULL THEN
        IF cardinality(batch_results.keys) > 1000 THEN
            PERFORM runner.refuse('KR050', 'more than 1000 keys', 'Ask for fewer at a time.');
        END IF;
        RETURN QUERY
        SELECT i.key, r.seq, i.id, i.batch_id,
               CASE WHEN r.item_id IS NOT NULL THEN CASE WHEN r.verdict IS NULL THEN 'cancelled' ELSE 'done' END
                    ELSE coalesce(j.state, 'queued') END,
               r.verdict, r.attempt, r.host, r.reused_from, i.created_at, r.finished_at, r.result
        FROM unnest(batch_results.keys) WITH ORDINALITY AS k (key, number)
        CROSS JOIN LATERAL (
            SELECT * FROM runner.item o WHERE o.owner_id = v_of.owner_id AND o.key = k.key OFFSET 0
        ) AS i
        LEFT JOIN LATERAL (SELECT * FROM runner.item_result o WHERE o.item_id = i.id OFFSET 0) AS r ON true
        LEFT JOIN LATERAL (SELECT o.state FROM runner.job o WHERE o.id = i.job_id OFFSET 0) AS j ON true
        ORDER BY k.number;
        RETURN;
    END IF;
    IF v_of.batch_id IS NULL THEN
        PERFORM runner.refuse('KR053', format('batch %L does not exist', batch_results.batch), 'Submit it first.');
    END IF;
    RETURN QUERY
    SELECT i.key, r.seq, r.item_id, r.batch_id, CASE WHEN r.verdict IS NULL THEN 'cancelled' ELSE 'done' END, r.verdict,
           r.attempt, r.host, r.reused_from, i.created_at, r.finished_at, r.result
    FROM (
        SELECT * FROM runner.item_result o
        WHERE o.batch_id = v_of.batch_id AND o.seq > coalesce(batch_results.after, 0) ORDER BY o.seq LIMIT v_at_most
    ) AS r
    CROSS JOIN LATERAL (SELECT o.key, o.created_at FROM runner.item o WHERE o.id = r.item_id OFFSET 0) AS i
    ORDER BY r.seq;
END
$$;
