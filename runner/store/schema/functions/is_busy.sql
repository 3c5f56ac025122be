-- True if no host can be idle for another job of a GPU type: a ready job, which no host has begun before, has waited there for
-- ten seconds, though hosts were told of it and poll. A notification would wake no host that can work, and every commit with
-- one waits for the others of the cluster. `unranked`: a job whose times do not count is asked for, since other
-- slots may take it.
CREATE OR REPLACE FUNCTION runner.is_busy(gpu_type text, unranked boolean) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
BEGIN
    RETURN coalesce((
        SELECT j.attempt = 0 AND j.created_at < now() - interval '10 seconds'
        FROM runner.job j
        WHERE j.id = (SELECT h.id FROM runner.head('', is_busy.gpu_type, is_busy.unranked) AS h)), false);
END
$$;
