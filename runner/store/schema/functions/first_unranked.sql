-- Locks and returns the first waiting jobs of a GPU type that are not ranked. With `priority` and `turn`, only those of
-- that priority with a later turn. Part of runner.claim: it is planned with the settings of runner.claim.
CREATE OR REPLACE FUNCTION runner.first_unranked(
    host text, gpu_type text, at_most integer, priority integer DEFAULT NULL, turn bigint DEFAULT NULL
) RETURNS TABLE (id bigint, submission_id integer, priority_of integer, turn_of bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    -- Priorities are from -1000 to 1000.
    v_from integer := coalesce(- first_unranked.priority, -1001);
    v_until integer := coalesce(- first_unranked.priority, 1001);
    v_turn bigint := coalesce(first_unranked.turn, -1);
BEGIN
    RETURN QUERY
    SELECT q.id, q.submission_id, q.priority, q.turn
    FROM runner.job q
    WHERE q.state = 'queued' AND q.mode IN ('test', 'benchmark', 'profile') AND q.gpu_type = first_unranked.gpu_type
      AND (- q.priority, q.turn) > (v_from, v_turn) AND (- q.priority) <= v_until
      AND (q.not_before IS NULL OR q.not_before <= now())
      AND (q.avoid_until IS NULL OR q.avoid_until <= now() OR q.avoid_host <> first_unranked.host
           OR q.avoid_slot IS NOT NULL)
    ORDER BY (- q.priority), q.turn, q.id
    LIMIT first_unranked.at_most
    FOR NO KEY UPDATE SKIP LOCKED;
END
$$;
