-- Ends a running job that has stopped because that was asked for. State NULL: the attempt was over
-- before, or is not the caller's.
CREATE OR REPLACE FUNCTION runner.stopped(
    job_id bigint, attempt integer, submission_id integer,
    OUT state text, OUT submission_done boolean, OUT state_now text, OUT attempt_now integer
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_job record;
BEGIN
    PERFORM FROM leaderboard.submission s WHERE s.id = stopped.submission_id FOR NO KEY UPDATE;
    PERFORM runner.hold_batch(stopped.job_id);
    SELECT j.state, j.attempt, j.lease_owner, j.submission_id INTO v_job
    FROM runner.job j WHERE j.id = stopped.job_id FOR NO KEY UPDATE;
    state_now := v_job.state;
    attempt_now := v_job.attempt;
    IF state_now IS DISTINCT FROM 'running' OR attempt_now <> stopped.attempt
       OR v_job.submission_id IS DISTINCT FROM stopped.submission_id OR NOT runner.acts_for(v_job.lease_owner) THEN
        RETURN;
    END IF;
    state := 'cancelled';
    UPDATE runner.job j
    SET state = stopped.state, cancel_requested = true, finished_at = now(), lease_owner = NULL,
        lease_expires_at = NULL, progress = NULL
    WHERE j.id = stopped.job_id;
    PERFORM runner.end_items(ARRAY[stopped.job_id], NULL, 'cancelled');
    submission_done := runner.after_attempt(stopped.submission_id, true);
END
$$;
