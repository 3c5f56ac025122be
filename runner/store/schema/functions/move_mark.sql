-- Moves the mark of a class on, so that claims need not walk over what earlier ones left behind. Part of runner.claim.
--
-- A job may be stored by a transaction that is not over, at a place before the jobs that are seen. So it takes three
-- calls. The first notes a place: no transaction that begins later stores a job before it, because its turn is the
-- clock's at least and its number is new. The second, which sees that note, notes the transactions that are open. The
-- third, when those are over, moves the mark there, but not past a job that waits. A job that is queued again sees the
-- note, or is of a transaction that the second call has noted: see runner.lower_mark. The transactions are those with a
-- number: readers have none.
CREATE OR REPLACE FUNCTION runner.move_mark(gpu_type text, priority integer) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_mark record;
    v_turn bigint;
    v_id bigint;
    v_head record;
    v_xid xid8;
BEGIN
    SELECT m.seq, m.turn, m.job_id, m.next_turn, m.next_job_id, m.next_xid INTO v_mark FROM runner.mark m
    WHERE m.gpu_type = move_mark.gpu_type AND m.priority = move_mark.priority
    ORDER BY m.gpu_type DESC, m.priority DESC, m.seq DESC LIMIT 1;
    IF NOT FOUND THEN
        INSERT INTO runner.mark (gpu_type, priority) VALUES (move_mark.gpu_type, move_mark.priority)
        ON CONFLICT DO NOTHING;
        RETURN;
    END IF;
    IF v_mark.next_turn IS NOT NULL AND v_mark.next_xid IS NULL THEN
        v_xid := pg_snapshot_xmax(pg_current_snapshot());
        UPDATE runner.mark m SET seq = m.seq + 1, next_xid = v_xid
        FROM (SELECT k.seq FROM runner.mark k
              WHERE k.gpu_type = move_mark.gpu_type AND k.priority = move_mark.priority AND k.seq = v_mark.seq
              FOR NO KEY UPDATE SKIP LOCKED) AS free
        WHERE m.gpu_type = move_mark.gpu_type AND m.priority = move_mark.priority AND m.seq = free.seq;
        RETURN;
    END IF;
    IF v_mark.next_turn IS NULL THEN
        SELECT c.turn INTO v_turn FROM runner.clock c
        WHERE c.gpu_type = move_mark.gpu_type AND c.priority = move_mark.priority
        ORDER BY c.gpu_type DESC, c.priority DESC, c.seq DESC LIMIT 1;
        v_turn := coalesce(v_turn, 0);
        SELECT q.last_value + 1 INTO v_id FROM runner.job_id_seq q;
    ELSIF pg_snapshot_xmin(pg_current_snapshot()) >= v_mark.next_xid THEN
        v_turn := v_mark.next_turn;
        v_id := v_mark.next_job_id;
    ELSE
        RETURN;
    END IF;
    -- Whatever keeps it from being claimed now.
    SELECT q.turn, q.id INTO v_head FROM runner.job q
    WHERE q.state = 'queued' AND q.ready AND q.gpu_type = move_mark.gpu_type AND q.priority = move_mark.priority
      AND (q.turn, q.id) >= (v_mark.turn, v_mark.job_id)
    ORDER BY q.turn, q.id LIMIT 1;
    IF FOUND AND (v_head.turn, v_head.id) < (v_turn, v_id) THEN
        v_turn := v_head.turn;
        v_id := v_head.id;
    END IF;
    IF v_mark.next_turn IS NULL AND (v_turn, v_id) <= (v_mark.turn, v_mark.job_id) THEN
        RETURN;
    END IF;
    UPDATE runner.mark m
    SET seq = m.seq + 1,
        turn = CASE WHEN v_mark.next_turn IS NULL THEN m.turn ELSE v_turn END,
        job_id = CASE WHEN v_mark.next_turn IS NULL THEN m.job_id ELSE v_id END,
        next_turn = CASE WHEN v_mark.next_turn IS NULL THEN v_turn END,
        next_job_id = CASE WHEN v_mark.next_turn IS NULL THEN v_id END,
        next_xid = NULL
    FROM (SELECT k.seq FROM runner.mark k
          WHERE k.gpu_type = move_mark.gpu_type AND k.priority = move_mark.priority AND k.seq = v_mark.seq
          FOR NO KEY UPDATE SKIP LOCKED) AS free
    WHERE m.gpu_type = move_mark.gpu_type AND m.priority = move_mark.priority AND m.seq = free.seq;
END
$$;
