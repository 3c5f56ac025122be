-- Cancels the open jobs of a validation sweep or of a final: those that wait end, those that run are asked to stop.
-- Returns how many jobs that were.
CREATE OR REPLACE FUNCTION runner.cancel_sweep(sweep_id bigint, final_id bigint) RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_jobs integer;
    v_hosts text;
BEGIN
    PERFORM FROM leaderboard.submission s
    WHERE s.id = ANY (ARRAY(SELECT j.validates FROM runner.job j
                            WHERE (j.sweep_id = cancel_sweep.sweep_id OR j.final_id = cancel_sweep.final_id)
                              AND j.state IN ('queued', 'running')))
    ORDER BY s.id FOR KEY SHARE;
    WITH asked AS (
        SELECT j.id FROM runner.job j
        WHERE (j.sweep_id = cancel_sweep.sweep_id OR j.final_id = cancel_sweep.final_id)
          AND j.state IN ('queued', 'running') AND NOT j.cancel_requested
        ORDER BY j.id FOR NO KEY UPDATE
    ), changed AS (
        UPDATE runner.job j
        SET cancel_requested = true,
            state = CASE j.state WHEN 'queued' THEN 'cancelled' ELSE j.state END,
            finished_at = CASE j.state WHEN 'queued' THEN now() END
        FROM asked WHERE j.id = asked.id
        RETURNING j.lease_owner
    )
    SELECT count(*), string_agg(DISTINCT c.lease_owner, ',') INTO v_jobs, v_hosts FROM changed c;
    IF v_hosts IS NOT NULL THEN
        PERFORM runner.call('runner_hosts', v_hosts);
    END IF;
    RETURN v_jobs;
END
$$;
