-- Moves the floor of each class to where its clock was at the last move, but not past a job that waits. A class whose
-- clock another transaction is moving is left for the next time. Part of runner.reclaim.
CREATE OR REPLACE FUNCTION runner.move_floors() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_class record;
    v_first bigint;
BEGIN
    FOR v_class IN SELECT DISTINCT c.gpu_type, c.priority FROM runner.clock c LOOP
        SELECT q.turn INTO v_first FROM runner.job q
        WHERE q.state = 'queued' AND q.ready AND q.gpu_type = v_class.gpu_type AND q.priority = v_class.priority
        ORDER BY q.turn, q.id LIMIT 1;
        UPDATE runner.clock c SET seq = c.seq + 1, next_floor = c.turn, floor = least(c.next_floor, v_first)
        FROM (SELECT k.seq FROM runner.clock k
              WHERE k.gpu_type = v_class.gpu_type AND k.priority = v_class.priority
              ORDER BY k.gpu_type DESC, k.priority DESC, k.seq DESC LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) AS top
        WHERE c.gpu_type = v_class.gpu_type AND c.priority = v_class.priority AND c.seq = top.seq
          AND (c.next_floor, c.floor) IS DISTINCT FROM (c.turn, least(c.next_floor, v_first));
    END LOOP;
END
$$;
