-- Moves the virtual time of a class to a turn that was claimed, if it is later. It lags a little while another transaction
-- moves it.
CREATE OR REPLACE FUNCTION runner.advance_clock(gpu_type text, priority integer, turn bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_clock record;
BEGIN
    SELECT c.seq, c.turn INTO v_clock FROM runner.clock c
    WHERE c.gpu_type = advance_clock.gpu_type AND c.priority = advance_clock.priority
    ORDER BY c.gpu_type DESC, c.priority DESC, c.seq DESC LIMIT 1;
    IF NOT FOUND THEN
        INSERT INTO runner.clock (gpu_type, priority, turn)
        VALUES (advance_clock.gpu_type, advance_clock.priority, advance_clock.turn) ON CONFLICT DO NOTHING;
    ELSIF v_clock.turn < advance_clock.turn THEN
        UPDATE runner.clock c SET seq = c.seq + 1, turn = advance_clock.turn
        FROM (SELECT k.seq FROM runner.clock k
              WHERE k.gpu_type = advance_clock.gpu_type AND k.priority = advance_clock.priority AND k.seq = v_clock.seq
              FOR NO KEY UPDATE SKIP LOCKED) AS free
        WHERE c.gpu_type = advance_clock.gpu_type AND c.priority = advance_clock.priority AND c.seq = free.seq;
    END IF;
END
$$;
