-- Moves the virtual time of a class to the highest turn claimed. With turn NULL, only a new round of newcomers begins.
-- The time lags a little while another transaction moves it.
CREATE OR REPLACE FUNCTION runner.advance_clock(gpu_type text, priority integer, turn bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_since_id bigint;
BEGIN
    SELECT q.last_value INTO v_since_id FROM runner.job_id_seq q;
    UPDATE runner.clock c
    SET seq = c.seq + 1, turn = greatest(c.turn, advance_clock.turn), since_id = v_since_id,
        rounds = CASE WHEN advance_clock.turn > c.turn THEN 0 ELSE c.rounds + 1 END
    FROM (SELECT k.seq FROM runner.clock k
          WHERE k.gpu_type = advance_clock.gpu_type AND k.priority = advance_clock.priority
          ORDER BY k.gpu_type DESC, k.priority DESC, k.seq DESC LIMIT 1
          FOR NO KEY UPDATE SKIP LOCKED) AS free
    WHERE c.gpu_type = advance_clock.gpu_type AND c.priority = advance_clock.priority AND c.seq = free.seq;
    -- ON CONFLICT alone would wait for a transaction that is moving the clock.
    IF FOUND THEN
        RETURN;
    END IF;
    PERFORM FROM runner.clock c
    WHERE c.gpu_type = advance_clock.gpu_type AND c.priority = advance_clock.priority
    ORDER BY c.gpu_type DESC, c.priority DESC, c.seq DESC LIMIT 1;
    IF NOT FOUND THEN
        INSERT INTO runner.clock (gpu_type, priority, turn, since_id)
        VALUES (advance_clock.gpu_type, advance_clock.priority, advance_clock.turn, v_since_id)
        ON CONFLICT DO NOTHING;
    END IF;
END
$$;
