-- Locks and returns the first ready jobs of a GPU type that a host may claim, from a place on that runner.head has found.
-- Part of runner.claim: it is planned with the settings of runner.claim.
CREATE OR REPLACE FUNCTION runner.take_first(
    host text, gpu_type text, at_most integer, unranked boolean, priority_from integer, turn_from bigint, id_from bigint
) RETURNS TABLE (id bigint, submission_id integer, priority integer, turn bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_from record;
    v_left integer := take_first.at_most;
    v_found integer;
BEGIN
    SELECT take_first.priority_from AS priority, take_first.turn_from AS turn, take_first.id_from AS id INTO v_from;
    WHILE v_left > 0 AND v_from.id IS NOT NULL LOOP
        IF take_first.unranked THEN
            RETURN QUERY
            SELECT q.id, q.submission_id, q.priority, q.turn FROM runner.job q
            WHERE q.state = 'queued' AND q.ready AND q.mode IN ('test', 'benchmark', 'profile')
              AND q.gpu_type = take_first.gpu_type AND (- q.priority) = - v_from.priority
              AND (q.turn, q.id) >= (v_from.turn, v_from.id)
              AND runner.may_take(q, take_first.host)
            ORDER BY q.turn, q.id LIMIT v_left FOR NO KEY UPDATE SKIP LOCKED;
        ELSE
            RETURN QUERY
            SELECT q.id, q.submission_id, q.priority, q.turn FROM runner.job q
            WHERE q.state = 'queued' AND q.ready AND q.gpu_type = take_first.gpu_type AND q.priority = v_from.priority
              AND (q.turn, q.id) >= (v_from.turn, v_from.id)
              AND runner.may_take(q, take_first.host)
            ORDER BY q.turn, q.id LIMIT v_left FOR NO KEY UPDATE SKIP LOCKED;
        END IF;
        GET DIAGNOSTICS v_found = ROW_COUNT;
        v_left := v_left - v_found;
        EXIT WHEN v_left <= 0;
        SELECT h.priority, h.turn, h.id INTO v_from
        FROM runner.head(take_first.host, take_first.gpu_type, take_first.unranked, v_from.priority) AS h;
    END LOOP;
END
$$;
