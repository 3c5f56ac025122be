-- Puts a running job back into the queue after an infrastructure failure of a slot, after a pause that doubles each time.
-- Another host is to try next if a live one serves the GPU type, else another slot of this host. The caller holds the locks
-- on the submission or batch and the job.
CREATE OR REPLACE FUNCTION runner.evaluate_again(
    job_id bigint, slot text, error text, report jsonb
) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_job record;
    v_elsewhere boolean;
    v_not_before timestamptz;
BEGIN
    SELECT j.gpu_type, j.failures, j.lease_owner, j.attempt, j.submission_id INTO v_job
    FROM runner.job j WHERE j.id = evaluate_again.job_id;
    SELECT now() + least(r.pause_s * 2 ^ v_job.failures, r.pause_max_s) * interval '1 second' INTO v_not_before
    FROM runner.retry r;
    v_elsewhere := EXISTS (
        SELECT FROM runner.host h
        WHERE h.name <> v_job.lease_owner AND NOT h.draining AND h.stopped_at IS NULL
          AND h.last_seen > now() - interval '60 seconds' AND v_job.gpu_type = ANY (h.gpu_types));
    UPDATE runner.job j
    SET state = 'queued', failures = j.failures + 1, slot = evaluate_again.slot, error = evaluate_again.error,
        report = evaluate_again.report, lease_owner = NULL, lease_expires_at = NULL, progress = NULL,
        not_before = v_not_before,
        avoid_host = j.lease_owner,
        avoid_slot = CASE WHEN NOT v_elsewhere THEN evaluate_again.slot END,
        avoid_until = CASE WHEN v_elsewhere THEN v_not_before + interval '60 seconds' END,
        causes = runner.with_cause(j.causes, jsonb_build_object(
            'attempt', j.attempt, 'host', j.lease_owner, 'slot', evaluate_again.slot, 'kind', 'fail',
            'error', evaluate_again.error, 'at', now()))
    WHERE j.id = evaluate_again.job_id;
    INSERT INTO runner.event (kind, submission_id, job_id, attempt, host, detail)
    VALUES ('failed', v_job.submission_id, evaluate_again.job_id, v_job.attempt, v_job.lease_owner, jsonb_build_object(
        'slot', evaluate_again.slot, 'error', evaluate_again.error, 'state', 'queued'));
    PERFORM runner.queue_again(evaluate_again.job_id);
END
$$;
