-- Records an infrastructure failure of a slot: see runner.end_failed. State NULL: the attempt was over before, or is
-- not the caller's; state_now and attempt_now say what became of the job.
CREATE OR REPLACE FUNCTION runner.fail(
    job_id bigint, attempt integer, submission_id integer, slot text, error text, report jsonb,
    OUT state text, OUT submission_done boolean, OUT state_now text, OUT attempt_now integer
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_held record;
BEGIN
    SELECT * INTO v_held FROM runner.hold_attempt(fail.job_id, fail.attempt, fail.submission_id);
    state_now := (v_held.job).state;
    attempt_now := (v_held.job).attempt;
    IF v_held.held THEN
        SELECT e.state, e.submission_done INTO state, submission_done
        FROM runner.end_failed(fail.job_id, fail.slot, fail.error, fail.report) AS e;
    END IF;
END
$$;
