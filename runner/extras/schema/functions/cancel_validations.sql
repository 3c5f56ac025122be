-- Cancels what is left of a validation sweep. Returns how many jobs that was. Results that are there stay.
CREATE OR REPLACE FUNCTION runner.cancel_validations(sweep_id bigint) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_jobs integer;
BEGIN
    PERFORM runner.check_isolation();
    IF (runner.validation_progress(cancel_validations.sweep_id)).status IS NULL THEN
        PERFORM runner.refuse('KR015', format('validation sweep %s does not exist', cancel_validations.sweep_id),
            'Look at leaderboard.validation_sweep.');
    END IF;
    v_jobs := runner.cancel_sweep(cancel_validations.sweep_id, NULL);
    UPDATE leaderboard.validation_sweep w SET status = 'failed', error = 'cancelled', completed_at = now()
    WHERE w.id = cancel_validations.sweep_id AND w.status = 'running' AND v_jobs > 0;
    RETURN v_jobs;
END
$$;
