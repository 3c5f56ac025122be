-- Ends an attempt that failed through the fault of a slot. The job waits again after a pause that doubles each time, or
-- ends (runner.retry). Another host is to try next if a live one serves the GPU type, else another slot of this host.
-- The caller holds the locks on the submission or batch and the job.
CREATE OR REPLACE FUNCTION runner.end_failed(
    job_id bigint, slot text, error text, report jsonb, OUT state text, OUT submission_done boolean
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_job record;
    v_elsewhere boolean;
    v_not_before timestamptz;
BEGIN
    SELECT j.gpu_type, j.only_host, j.failures, j.lease_owner, j.cancel_requested, r.max_attempts,
           now() + least(r.pause_s * 2 ^ j.failures, r.pause_max_s) * interval '1 second' AS not_before
    INTO v_job FROM runner.job j CROSS JOIN runner.retry r WHERE j.id = end_failed.job_id;
    state := CASE WHEN v_job.cancel_requested THEN 'cancelled'
                  WHEN v_job.failures + 1 < v_job.max_attempts THEN 'queued' ELSE 'done' END;
    IF state = 'queued' THEN
        v_not_before := v_job.not_before;
        v_elsewhere := v_job.only_host IS NULL AND EXISTS (
            SELECT FROM runner.host h
            WHERE h.name <> v_job.lease_owner AND NOT h.draining AND h.stopped_at IS NULL
              AND h.last_seen > now() - interval '60 seconds' AND v_job.gpu_type = ANY (h.gpu_types));
    END IF;
    UPDATE runner.job j
    SET failures = j.failures + 1, slot = end_failed.slot, report = end_failed.report, not_before = v_not_before,
        avoid_host = CASE WHEN v_elsewhere IS NOT NULL THEN j.lease_owner END,
        avoid_slot = CASE WHEN NOT v_elsewhere THEN end_failed.slot END,
        avoid_until = CASE WHEN v_elsewhere THEN v_not_before + interval '60 seconds' END,
        causes = runner.with_cause(j.causes, jsonb_build_object(
            'attempt', j.attempt, 'host', j.lease_owner, 'slot', end_failed.slot, 'kind', 'fail',
            'error', end_failed.error, 'at', now()))
    WHERE j.id = end_failed.job_id;
    submission_done := runner.leave(
        end_failed.job_id, end_failed.state, CASE end_failed.state WHEN 'done' THEN 'internal_error' END,
        CASE end_failed.state
            WHEN 'done' THEN format('failed %s times through no fault of the submission, at last on %s, slot %s: %s',
                                    v_job.failures + 1, v_job.lease_owner, end_failed.slot, end_failed.error)
            ELSE end_failed.error END,
        'failed', jsonb_build_object('slot', end_failed.slot, 'error', end_failed.error));
END
$$;
