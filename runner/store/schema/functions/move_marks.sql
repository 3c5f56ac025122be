-- Moves the marks of all classes of a GPU type, for a claim that found nothing, and the mark of leases, in the same three
-- steps. `priority`: only of that class. Part of runner.claim.
CREATE OR REPLACE FUNCTION runner.move_marks(gpu_type text, priority integer DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_priority integer := 1001;
    v_sweep record;
    v_first timestamptz;
    v_xid xid8;
BEGIN
    IF move_marks.priority IS NOT NULL THEN
        PERFORM runner.move_mark(move_marks.gpu_type, move_marks.priority);
    ELSE
        LOOP
            SELECT m.priority INTO v_priority FROM runner.mark m
            WHERE m.gpu_type = move_marks.gpu_type AND m.priority < v_priority
            ORDER BY m.gpu_type DESC, m.priority DESC, m.seq DESC LIMIT 1;
            EXIT WHEN NOT FOUND;
            PERFORM runner.move_mark(move_marks.gpu_type, v_priority);
        END LOOP;
    END IF;

    SELECT s.seq, s.lease_from, s.next_lease_from, s.next_xid INTO v_sweep FROM runner.sweep s ORDER BY s.seq DESC LIMIT 1;
    IF v_sweep.lease_from > now() THEN
        -- The server's clock went back.
        v_first := '-infinity';
        v_sweep.next_xid := '0';
    ELSIF v_sweep.next_lease_from IS NOT NULL AND v_sweep.next_xid IS NULL THEN
        v_xid := pg_snapshot_xmax(pg_current_snapshot());
    ELSIF v_sweep.next_xid IS NOT NULL AND pg_snapshot_xmin(pg_current_snapshot()) < v_sweep.next_xid THEN
        RETURN;
    ELSE
        SELECT j.lease_expires_at INTO v_first FROM runner.job j
        WHERE j.lease_expires_at >= v_sweep.lease_from ORDER BY j.lease_expires_at LIMIT 1;
        -- Leases that begin later end later: none is shorter than a second.
        v_first := least(v_first, coalesce(v_sweep.next_lease_from, now()));
        IF v_sweep.next_xid IS NULL AND v_first < v_sweep.lease_from + interval '1 second' THEN
            RETURN;
        END IF;
    END IF;
    UPDATE runner.sweep t
    SET seq = t.seq + 1,
        lease_from = CASE WHEN v_first IS NOT NULL AND v_sweep.next_xid IS NOT NULL THEN v_first ELSE t.lease_from END,
        next_lease_from = CASE WHEN v_sweep.next_xid IS NULL THEN coalesce(v_first, t.next_lease_from) END,
        next_xid = v_xid
    FROM (SELECT s.seq FROM runner.sweep s WHERE s.seq = v_sweep.seq FOR NO KEY UPDATE SKIP LOCKED) AS free
    WHERE t.seq = free.seq;
END
$$;
