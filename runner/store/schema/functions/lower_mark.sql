-- Takes care that claims find a job that waits again at a place of a class. It waits for no lock: false if another
-- transaction holds the mark, and the mark may stay behind that place.
CREATE OR REPLACE FUNCTION runner.lower_mark(gpu_type text, priority integer, turn bigint, job_id bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_mark record;
BEGIN
    FOR v_try IN 1 .. 3 LOOP
        SELECT m.seq, m.turn, m.job_id, m.next_turn, m.next_job_id INTO v_mark FROM runner.mark m
        WHERE m.gpu_type = lower_mark.gpu_type AND m.priority = lower_mark.priority
        ORDER BY m.gpu_type DESC, m.priority DESC, m.seq DESC LIMIT 1;
        IF NOT FOUND OR (lower_mark.turn, lower_mark.job_id) >= (v_mark.turn, v_mark.job_id)
                        AND (v_mark.next_turn IS NULL
                             OR (lower_mark.turn, lower_mark.job_id) >= (v_mark.next_turn, v_mark.next_job_id)) THEN
            RETURN true;
        END IF;
        UPDATE runner.mark m
        SET seq = m.seq + 1, next_turn = NULL, next_job_id = NULL, next_xid = NULL,
            turn = CASE WHEN (lower_mark.turn, lower_mark.job_id) < (m.turn, m.job_id) THEN lower_mark.turn ELSE m.turn END,
            job_id = CASE WHEN (lower_mark.turn, lower_mark.job_id) < (m.turn, m.job_id) THEN lower_mark.job_id ELSE m.job_id END
        FROM (SELECT k.seq FROM runner.mark k
              WHERE k.gpu_type = lower_mark.gpu_type AND k.priority = lower_mark.priority AND k.seq = v_mark.seq
              FOR NO KEY UPDATE SKIP LOCKED) AS free
        WHERE m.gpu_type = lower_mark.gpu_type AND m.priority = lower_mark.priority AND m.seq = free.seq;
        IF FOUND THEN
            RETURN true;
        END IF;
    END LOOP;
    RETURN false;
END
$$;
