-- Puts a job back into the queue at no cost, or cancels it if that was asked for meanwhile. State NULL: the attempt was
-- over before, or is not the caller's.
CREATE OR REPLACE FUNCTION runner.release(
    job_id bigint, attempt integer, submission_id integer, reason text,
    OUT state text, OUT submission_done boolean, OUT state_now text, OUT attempt_now integer
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_job record;
BEGIN
    PERFORM FROM leaderboard.submission s WHERE s.id = release.submission_id FOR NO KEY UPDATE;
    PERFORM runner.hold_batch(release.job_id);
    SELECT j.state, j.attempt, j.cancel_requested, j.lease_owner, j.submission_id INTO v_job
    FROM runner.job j WHERE j.id = release.job_id FOR NO KEY UPDATE;
    state_now := v_job.state;
    attempt_now := v_job.attempt;
    IF state_now IS DISTINCT FROM 'running' OR attempt_now <> release.attempt
       OR v_job.submission_id IS DISTINCT FROM release.submission_id OR NOT runner.acts_for(v_job.lease_owner) THEN
        RETURN;
    END IF;
    state := CASE WHEN v_job.cancel_requested THEN 'cancelled' ELSE 'queued' END;
    UPDATE runner.job j
    SET state = release.state, finished_at = CASE release.state WHEN 'cancelled' THEN now() END, lease_owner = NULL,
        lease_expires_at = NULL, progress = NULL, error = release.reason
    WHERE j.id = release.job_id;
    INSERT INTO runner.event (kind, submission_id, job_id, attempt, host, detail)
    VALUES ('released', release.submission_id, release.job_id, release.attempt, v_job.lease_owner, jsonb_build_object(
        'reason', release.reason, 'state', release.state));
    IF state = 'queued' THEN
        PERFORM runner.queue_again(release.job_id);
    END IF;
    IF state <> 'queued' THEN
        PERFORM runner.end_items(ARRAY[release.job_id], NULL, 'cancelled');
    END IF;
    submission_done := runner.after_attempt(release.submission_id, state <> 'queued');
END
$$;
