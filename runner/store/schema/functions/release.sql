-- Puts a job back into the queue at no cost, or cancels it if that was asked for meanwhile. State NULL: the attempt was
-- over before, or is not the caller's.
CREATE OR REPLACE FUNCTION runner.release(
    job_id bigint, attempt integer, submission_id integer, reason text,
    OUT state text, OUT submission_done boolean, OUT state_now text, OUT attempt_now integer
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_held record;
BEGIN
    SELECT * INTO v_held FROM runner.hold_attempt(release.job_id, release.attempt, release.submission_id);
    state_now := (v_held.job).state;
    attempt_now := (v_held.job).attempt;
    IF v_held.held THEN
        state := CASE WHEN (v_held.job).cancel_requested THEN 'cancelled' ELSE 'queued' END;
        submission_done := runner.leave(
            release.job_id, state, NULL, release.reason, 'released', jsonb_build_object('reason', release.reason));
    END IF;
END
$$;
