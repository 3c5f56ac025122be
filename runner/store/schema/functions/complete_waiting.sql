-- Commits the result of a job that still waits, as runner.take_check gave it: claims it and ends it, in one transaction.
-- No row: the job no longer waits, or another transaction holds it or its submission, and nothing is written. Waits for
-- no lock.
CREATE OR REPLACE FUNCTION runner.complete_waiting(host text, instance text, result jsonb)
RETURNS TABLE (outcome text, submission_done boolean, state_now text, attempt_now integer)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT runner.is_ours(complete_waiting.host, complete_waiting.instance) THEN
        RETURN;
    END IF;
    -- Before the job, as everywhere.
    PERFORM FROM leaderboard.submission s
    WHERE s.id = (complete_waiting.result ->> 'submission_id')::integer FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    UPDATE runner.job t
    SET state = 'running', attempt = t.attempt + 1, lease_owner = complete_waiting.host, host = complete_waiting.host,
        lease_expires_at = now(), started_at = (complete_waiting.result ->> 'started_at')::timestamptz,
        not_before = NULL, expires_at = NULL, progress = NULL
    FROM (SELECT j.id FROM runner.job j
          WHERE j.id = (complete_waiting.result ->> 'job_id')::bigint AND j.state = 'queued' AND j.ready
            AND j.attempt + 1 = (complete_waiting.result ->> 'attempt')::integer
            AND j.submission_id = (complete_waiting.result ->> 'submission_id')::integer
          FOR NO KEY UPDATE SKIP LOCKED) AS free
    WHERE t.id = free.id;
    IF FOUND THEN
        RETURN QUERY SELECT * FROM runner.complete(jsonb_build_array(complete_waiting.result));
    END IF;
END
$$;
