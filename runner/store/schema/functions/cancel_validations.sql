-- Cancels what is left of a validation sweep: jobs that wait end, those that run are asked to stop. Returns how many jobs
-- that were. Results that are there stay.
CREATE OR REPLACE FUNCTION runner.cancel_validations(sweep_id bigint) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_jobs integer;
    v_hosts text;
BEGIN
    PERFORM runner.check_isolation();
    IF (runner.validation_progress(cancel_validations.sweep_id)).status IS NULL THEN
        PERFORM runner.refuse('KR015', format('validation sweep %s does not exist', cancel_validations.sweep_id),
            'Look at leaderboard.validation_sweep.');
    END IF;
    PERFORM FROM leaderboard.submission s
    WHERE s.id = ANY (ARRAY(SELECT j.validates FROM runner.job j
                            WHERE j.sweep_id = cancel_validations.sweep_id AND j.state IN ('queued', 'running')))
    ORDER BY s.id FOR KEY SHARE;
    WITH asked AS (
        SELECT j.id FROM runner.job j
        WHERE j.sweep_id = cancel_validations.sweep_id AND j.state IN ('queued', 'running') AND NOT j.cancel_requested
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
    UPDATE leaderboard.validation_sweep w SET status = 'failed', error = 'cancelled', completed_at = now()
    WHERE w.id = cancel_validations.sweep_id AND w.status = 'running' AND v_jobs > 0;
    IF v_hosts IS NOT NULL THEN
        PERFORM runner.call('runner_hosts', v_hosts);
    END IF;
    RETURN v_jobs;
END
$$;
