-- Takes a running job from its host, whatever its lease says: it goes back to the queue at no cost, or ends if it was to
-- be cancelled. For hosts that do not answer and whose leases do not expire, after a clock was wrong. Its daemon, if it
-- lives, hears of it with the next heartbeat and stops the run. False: the job does not run.
CREATE OR REPLACE FUNCTION runner.evict(job_id bigint, reason text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_submission_id integer;
    v_job record;
    v_state text;
    v_done boolean;
    v_reason text := nullif(btrim(evict.reason), '');
BEGIN
    PERFORM runner.check_isolation();
    IF v_reason IS NULL THEN
        PERFORM runner.refuse('KR021', 'no reason given', 'Say why; the submission''s author reads it.');
    END IF;
    SELECT j.submission_id INTO v_submission_id FROM runner.job j WHERE j.id = evict.job_id;
    IF NOT FOUND THEN
        PERFORM runner.refuse('KR015', format('job %s does not exist', evict.job_id), 'Look at the jobs of the submission.');
    END IF;
    PERFORM FROM leaderboard.submission s WHERE s.id = v_submission_id FOR NO KEY UPDATE;
    PERFORM runner.hold_batch(evict.job_id);
    SELECT j.state, j.lease_owner, j.cancel_requested, j.gpu_type INTO v_job
    FROM runner.job j WHERE j.id = evict.job_id FOR NO KEY UPDATE;
    IF v_job.state IS DISTINCT FROM 'running' THEN
        RETURN false;
    END IF;
    v_state := CASE WHEN v_job.cancel_requested THEN 'cancelled' ELSE 'queued' END;
    v_done := runner.leave(evict.job_id, v_state, NULL, v_reason, 'released',
                           jsonb_build_object('reason', v_reason, 'login', session_user));
    IF v_state = 'queued' THEN
        PERFORM runner.call('runner_queue', v_job.gpu_type);
    ELSE
        PERFORM runner.tell('runner_events', json_build_object(
            'event', 'cancel', 'submission_id', v_submission_id, 'cancelled', 1, 'submission_done', v_done)::text);
    END IF;
    PERFORM runner.call('runner_hosts', v_job.lease_owner);
    RETURN true;
END
$$;
