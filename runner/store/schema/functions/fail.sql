-- Records an infrastructure failure of a slot. The job goes back to the queue after a pause that doubles each time, or
-- ends. Another host is to try next if a live one serves the GPU type, else another slot of this host. State NULL: the
-- attempt was over before, or is not the caller's; state_now and attempt_now say what became of the job.
CREATE OR REPLACE FUNCTION runner.fail(
    job_id bigint, attempt integer, submission_id integer, slot text, error text, report jsonb,
    backoff_s double precision, backoff_max_s double precision,
    OUT state text, OUT submission_done boolean, OUT state_now text, OUT attempt_now integer
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_job record;
    v_elsewhere boolean;
    v_not_before timestamptz;
    v_error text := fail.error;
BEGIN
    PERFORM FROM leaderboard.submission s WHERE s.id = fail.submission_id FOR NO KEY UPDATE;
    SELECT j.state, j.attempt, j.gpu_type, j.failures, j.max_attempts, j.cancel_requested, j.lease_owner, j.submission_id
    INTO v_job
    FROM runner.job j WHERE j.id = fail.job_id FOR NO KEY UPDATE;
    state_now := v_job.state;
    attempt_now := v_job.attempt;
    IF state_now IS DISTINCT FROM 'running' OR attempt_now <> fail.attempt
       OR v_job.submission_id <> fail.submission_id OR NOT runner.acts_for(v_job.lease_owner) THEN
        RETURN;
    END IF;
    state := CASE WHEN v_job.cancel_requested THEN 'cancelled'
                  WHEN v_job.failures + 1 < v_job.max_attempts THEN 'queued' ELSE 'done' END;
    IF state = 'queued' THEN
        v_not_before := now() + least(backoff_s * 2 ^ v_job.failures, backoff_max_s) * interval '1 second';
        v_elsewhere := EXISTS (
            SELECT FROM runner.host h
            WHERE h.name <> v_job.lease_owner AND NOT h.draining AND h.stopped_at IS NULL
              AND h.last_seen > now() - interval '60 seconds' AND v_job.gpu_type = ANY (h.gpu_types));
    ELSIF state = 'done' THEN
        v_error := format('failed %s times through no fault of the submission, at last on %s, slot %s: %s',
                          v_job.failures + 1, v_job.lease_owner, fail.slot, fail.error);
    END IF;
    UPDATE runner.job j
    SET state = fail.state, failures = j.failures + 1, slot = fail.slot, error = v_error, report = fail.report,
        lease_owner = NULL, lease_expires_at = NULL, progress = NULL,
        verdict = CASE fail.state WHEN 'done' THEN 'internal_error' END,
        finished_at = CASE WHEN fail.state <> 'queued' THEN now() END,
        not_before = v_not_before,
        avoid_host = CASE fail.state WHEN 'queued' THEN j.lease_owner END,
        avoid_slot = CASE WHEN fail.state = 'queued' AND NOT v_elsewhere THEN fail.slot END,
        avoid_until = CASE WHEN fail.state = 'queued' AND v_elsewhere THEN v_not_before + interval '60 seconds' END,
        causes = runner.with_cause(j.causes, jsonb_build_object(
            'attempt', j.attempt, 'host', j.lease_owner, 'slot', fail.slot, 'kind', 'fail', 'error', fail.error,
            'at', now()))
    WHERE j.id = fail.job_id;
    INSERT INTO runner.event (kind, submission_id, job_id, attempt, host, detail)
    VALUES ('failed', fail.submission_id, fail.job_id, fail.attempt, v_job.lease_owner, jsonb_build_object(
        'slot', fail.slot, 'error', fail.error, 'state', fail.state));
    IF state = 'queued' THEN
        PERFORM runner.queue_again(fail.job_id);
    END IF;
    submission_done := runner.after_attempt(fail.submission_id, state <> 'queued');
END
$$;
