-- True if no host can be idle for another job of a GPU type: the first ready job of the class, which no host has begun
-- before, has waited for ten seconds, though hosts were told of it and poll. A notification would wake no host that can
-- work, and every commit with one waits for the others of the cluster.
CREATE OR REPLACE FUNCTION runner.is_busy(gpu_type text, priority integer) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_floor bigint := coalesce((
        SELECT c.floor FROM runner.clock c WHERE c.gpu_type = is_busy.gpu_type AND c.priority = is_busy.priority
        ORDER BY c.gpu_type DESC, c.priority DESC, c.seq DESC LIMIT 1), 0);
BEGIN
    RETURN coalesce((
        SELECT f.attempt = 0 AND f.created_at < now() - interval '10 seconds' FROM (
            SELECT q.attempt, q.created_at FROM runner.job q
            WHERE q.state = 'queued' AND q.ready AND q.gpu_type = is_busy.gpu_type
              AND q.priority = is_busy.priority AND q.turn >= v_floor
            ORDER BY q.turn, q.id LIMIT 1
        ) AS f), false);
END
$$;
