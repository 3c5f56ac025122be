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
    UPDATE runner.job j
    SET reclaims = j.reclaims + 1,
        causes = runner.with_cause(j.causes, jsonb_build_object(
            'attempt', j.attempt, 'host', j.lease_owner, 'slot', NULL, 'kind', 'reclaim', 'error', take_back.reason,
            'at', now()))
    WHERE j.id = take_back.job_id RETURNING j.cancel_requested, j.reclaims INTO v_job;
    state := CASE WHEN v_job.cancel_requested THEN 'cancelled'
                  WHEN v_job.reclaims < (SELECT r.max_lost_leases FROM runner.retry r) THEN 'queued' ELSE 'done' END;
    submission_done := runner.leave(
        take_back.job_id, take_back.state, CASE take_back.state WHEN 'done' THEN 'internal_error' END,
        CASE take_back.state
            WHEN 'done' THEN format('%s leases were lost, at last because %s', v_job.reclaims, take_back.reason)
            ELSE take_back.reason END,
        'reclaimed');
END
$$;
