-- Ends a job's attempt without a result, or its wait: it waits again, or is over as `state` says. Items without a
-- result end with it; `cancelled` is what those of a cancelled job say. Notes an event of kind `event`, if any. True:
-- the submission is finished. The caller holds the locks on submission or batch and job.
CREATE OR REPLACE FUNCTION runner.leave(
    job_id bigint, state text, verdict text, error text, event text DEFAULT NULL, detail jsonb DEFAULT '{}',
    cancelled text DEFAULT 'cancelled'
) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_job record;
BEGIN
    UPDATE runner.job j
    SET state = leave.state, verdict = leave.verdict, error = leave.error, lease_owner = NULL, lease_expires_at = NULL,
        progress = NULL, expires_at = NULL, finished_at = CASE WHEN leave.state <> 'queued' THEN now() END
    WHERE j.id = leave.job_id
    RETURNING j.submission_id, j.validates, j.attempt, j.host INTO v_job;
    INSERT INTO runner.event (kind, submission_id, job_id, attempt, host, detail)
    SELECT leave.event, v_job.submission_id, leave.job_id, v_job.attempt, v_job.host,
           leave.detail || jsonb_build_object('state', leave.state)
    WHERE leave.event IS NOT NULL;
    IF leave.state = 'queued' THEN
        PERFORM runner.queue_again(leave.job_id);
    ELSE
        PERFORM runner.end_items(ARRAY[leave.job_id], leave.verdict,
            CASE leave.state WHEN 'cancelled' THEN leave.cancelled ELSE leave.error END);
        IF v_job.validates IS NOT NULL THEN
            PERFORM runner.end_validations(ARRAY[leave.job_id]);
            PERFORM runner.end_finals(ARRAY[leave.job_id]);
        END IF;
    END IF;
    IF v_job.submission_id IS NULL THEN
        RETURN false;
    END IF;
    RETURN v_job.submission_id = ANY (runner.after_attempts(ARRAY[v_job.submission_id]));
END
$$;
