-- Ends an attempt whose daemon did not live to end it. That is no failure of the job. But a job whose daemons keep
-- vanishing ends (runner.retry.max_lost_leases). The caller holds the locks on the submission or batch and
-- the running job.
CREATE OR REPLACE FUNCTION runner.take_back(
    job_id bigint, reason text, OUT state text, OUT submission_done boolean
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_job record;
BEGIN
    SELECT j.* INTO v_job FROM runner.job j WHERE j.id = take_back.job_id;
    state := CASE WHEN v_job.cancel_requested THEN 'cancelled'
                  WHEN v_job.reclaims + 1 < (SELECT r.max_lost_leases FROM runner.retry r) THEN 'queued' ELSE 'done' END;
    UPDATE runner.job j
    SET state = take_back.state, reclaims = j.reclaims + 1, lease_owner = NULL, lease_expires_at = NULL,
        progress = NULL,
        verdict = CASE take_back.state WHEN 'done' THEN 'internal_error' END,
        finished_at = CASE WHEN take_back.state <> 'queued' THEN now() END,
        error = CASE take_back.state
            WHEN 'done' THEN format('%s leases were lost, at last because %s', j.reclaims + 1, take_back.reason)
            ELSE take_back.reason END,
        causes = runner.with_cause(j.causes, jsonb_build_object(
            'attempt', j.attempt, 'host', j.lease_owner, 'slot', NULL, 'kind', 'reclaim', 'error', take_back.reason,
            'at', now()))
    WHERE j.id = take_back.job_id;
    INSERT INTO runner.event (kind, submission_id, job_id, attempt, host, detail)
    VALUES ('reclaimed', v_job.submission_id, v_job.id, v_job.attempt, v_job.lease_owner, jsonb_build_object(
        'state', take_back.state));
    IF state = 'queued' THEN
        PERFORM runner.queue_again(take_back.job_id);
    END IF;
    IF state <> 'queued' THEN
        PERFORM runner.end_items(ARRAY[take_back.job_id], CASE state WHEN 'done' THEN 'internal_error' END,
            CASE state WHEN 'done' THEN format('%s leases were lost, at last because %s', v_job.reclaims + 1, take_back.reason)
                       ELSE 'cancelled' END);
    END IF;
    submission_done := runner.after_attempt(v_job.submission_id, state <> 'queued');
END
$$;
