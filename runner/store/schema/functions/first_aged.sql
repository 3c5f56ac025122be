-- Locks and returns a job that has waited for an hour in the lowest class of its GPU type, if a higher class of these types
-- has jobs; of several types the job that has waited longest. Part of runner.claim, with the same settings.
CREATE OR REPLACE FUNCTION runner.first_aged(host text, gpu_types text[], free integer[], at_most integer, unranked text[])
RETURNS TABLE (id bigint, submission_id integer, gpu_type text, priority integer, turn bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_type record;
BEGIN
    -- Aggregates instead of a sort, which the settings forbid.
    SELECT (array_agg(t.gpu_type ORDER BY head.created_at))[1] AS gpu_type,
           (array_agg(low.priority ORDER BY head.created_at))[1] AS priority
    INTO v_type
    FROM unnest(first_aged.gpu_types, first_aged.free) AS t (gpu_type, free)
    CROSS JOIN LATERAL (
        SELECT q.priority FROM runner.job q WHERE q.state = 'queued' AND q.gpu_type = t.gpu_type
        ORDER BY q.priority, q.turn DESC, q.id DESC LIMIT 1
    ) AS low
    CROSS JOIN LATERAL (
        SELECT q.created_at FROM runner.job q
        WHERE q.state = 'queued' AND q.gpu_type = t.gpu_type AND q.priority = low.priority
        ORDER BY q.priority DESC, q.turn, q.id LIMIT 1
    ) AS head
    WHERE t.free > 0 AND NOT t.gpu_type = ANY (first_aged.unranked)
      AND head.created_at < now() - interval '1 hour'
      AND low.priority < (
          SELECT max(high.priority) FROM unnest(first_aged.gpu_types, first_aged.free) AS o (gpu_type, free)
          CROSS JOIN LATERAL (
              SELECT q.priority FROM runner.job q WHERE q.state = 'queued' AND q.gpu_type = o.gpu_type
              ORDER BY q.priority DESC, q.turn, q.id LIMIT 1
          ) AS high
          WHERE o.free > 0);
    IF v_type.gpu_type IS NULL THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT q.id, q.submission_id, q.gpu_type, q.priority, q.turn
    FROM runner.job q
    WHERE q.state = 'queued' AND q.gpu_type = v_type.gpu_type AND q.priority = v_type.priority
      AND (q.not_before IS NULL OR q.not_before <= now())
      AND (q.avoid_until IS NULL OR q.avoid_until <= now() OR q.avoid_host <> first_aged.host
           OR q.avoid_slot IS NOT NULL)
    ORDER BY q.priority DESC, q.turn, q.id
    LIMIT least(1, first_aged.at_most)
    FOR NO KEY UPDATE SKIP LOCKED;
END
$$;
