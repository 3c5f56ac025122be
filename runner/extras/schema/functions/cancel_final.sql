-- Cancels a leaderboard's final that runs on a GPU type; it publishes nothing. Returns how many jobs that concerned. A
-- job that another transaction is adding meanwhile runs to its end, and nothing follows it.
CREATE OR REPLACE FUNCTION runner.cancel_final(leaderboard text, gpu_type text DEFAULT NULL) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_id bigint;
    v_jobs integer;
BEGIN
    PERFORM runner.check_isolation();
    SELECT p.final_id INTO v_id FROM runner.final_progress p
    WHERE p.leaderboard = cancel_final.leaderboard AND p.status = 'running'
      AND lower(p.gpu_type) = lower(coalesce(cancel_final.gpu_type, p.gpu_type))
    ORDER BY p.final_id DESC LIMIT 1;
    IF NOT FOUND THEN
        PERFORM runner.refuse('KR035', format('no final of leaderboard %L runs%s', cancel_final.leaderboard,
                                              ' on ' || cancel_final.gpu_type), 'Look at runner.final_progress.');
    END IF;
    v_jobs := runner.cancel_sweep(NULL, v_id);
    UPDATE runner.final_sweep f SET status = 'cancelled', ended_at = now() WHERE f.id = v_id AND f.status = 'running';
    RETURN v_jobs;
END
$$;
