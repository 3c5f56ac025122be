-- Ends a running job that has stopped because that was asked for. State NULL: the attempt was over
-- before, or is not the caller's.
CREATE OR REPLACE FUNCTION runner.stopped(
    job_id bigint, attempt integer, submission_id integer,
    OUT state text, OUT submission_done boolean, OUT state_now text, OUT attempt_now integer
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_held record;
BEGIN
    SELECT * INTO v_held FROM runner.hold_attempt(stopped.job_id, stopped.attempt, stopped.submission_id);
    state_now := (v_held.job).state;
    attempt_now := (v_held.job).attempt;
    IF v_held.held THEN
        state := 'cancelled';
        UPDATE runner.job j SET cancel_requested = true WHERE j.id = stopped.job_id;
        submission_done := runner.leave(stopped.job_id, state, NULL, (v_held.job).error);
    END IF;
END
$$;
