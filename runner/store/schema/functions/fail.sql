-- Records an infrastructure failure of a slot. The job goes back to the queue after a pause that doubles each time, or
-- ends (runner.retry). Another host is to try next if a live one serves the GPU type, else another slot of this host. State NULL: the
-- attempt was over before, or is not the caller's; state_now and attempt_now say what became of the job.
CREATE OR REPLACE FUNCTION runner.fail(
    job_id bigint, attempt integer, submission_id integer, slot text, error text, report jsonb,
    OUT state text, OUT submission_done boolean, OUT state_now text, OUT attempt_now integer
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_job record;
    v_error text := fail.error;
BEGIN
    PERFORM FROM leaderboard.submission s WHERE s.id = fail.submission_id FOR NO KEY UPDATE;
    PERFORM runner.hold_batch(fail.job_id);
    SELECT j.state, j.attempt, j.gpu_type, j.failures, j.cancel_requested, j.lease_owner, j.submission_id
    INTO v_job
    FROM runner.job j WHERE j.id = fail.job_id FOR NO KEY UPDATE;
    state_now := v_job.state;
    attempt_now := v_job.attempt;
    IF state_now IS DISTINCT FROM 'running' OR attempt_now <> fail.attempt
       OR v_job.submission_id IS DISTINCT FROM fail.submission_id OR NOT runner.acts_for(v_job.lease_owner) THEN
        RETURN;
    END IF;
    state := CASE WHEN v_job.cancel_requested THEN 'cancelled'
                  WHEN v_job.failures + 1 < (SELECT r.max_attempts FROM runner.retry r) THEN 'queued' ELSE 'done' END;
    IF state = 'queued' THEN
        PERFORM runner.evaluate_again(fail.job_id, fail.slot, fail.error, fail.report);
    ELSE
        IF state = 'done' THEN
            v_error := format('failed %s times through no fault of the submission, at last on %s, slot %s: %s',
                              v_job.failures + 1, v_job.lease_owner, fail.slot, fail.error);
        END IF;
        UPDATE runner.job j
        SET state = fail.state, failures = j.failures + 1, slot = fail.slot, error = v_error, report = fail.report,
            lease_owner = NULL, lease_expires_at = NULL, progress = NULL,
            verdict = CASE fail.state WHEN 'done' THEN 'internal_error' END, finished_at = now(),
            not_before = NULL, avoid_host = NULL, avoid_slot = NULL, avoid_until = NULL,
            causes = runner.with_cause(j.causes, jsonb_build_object(
                'attempt', j.attempt, 'host', j.lease_owner, 'slot', fail.slot, 'kind', 'fail', 'error', fail.error,
                'at', now()))
        WHERE j.id = fail.job_id;
        INSERT INTO runner.event (kind, submission_id, job_id, attempt, host, detail)
        VALUES ('failed', fail.submission_id, fail.job_id, fail.attempt, v_job.lease_owner, jsonb_build_object(
            'slot', fail.slot, 'error', fail.error, 'state', fail.state));
    END IF;
    IF state <> 'queued' THEN
        PERFORM runner.end_items(ARRAY[fail.job_id], CASE state WHEN 'done' THEN 'internal_error' END,
                                 CASE state WHEN 'done' THEN v_error ELSE 'cancelled' END);
    END IF;
    submission_done := runner.after_attempt(fail.submission_id, state <> 'queued');
END
$$;
