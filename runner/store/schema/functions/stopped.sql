-- Ends a running job that has stopped because that was asked for. State NULL: the attempt was over before.
CREATE OR REPLACE FUNCTION runner.stopped(
    job_id bigint, attempt integer, submission_id integer,
    OUT state text, OUT submission_done boolean, OUT state_now text, OUT attempt_now integer
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    PERFORM FROM leaderboard.submission s WHERE s.id = stopped.submission_id FOR NO KEY UPDATE;
    SELECT j.state, j.attempt INTO state_now, attempt_now
    FROM runner.job j WHERE j.id = stopped.job_id FOR NO KEY UPDATE;
    IF state_now IS DISTINCT FROM 'running' OR attempt_now <> stopped.attempt THEN
        RETURN;
    END IF;
    state := 'cancelled';
    UPDATE runner.job j
    SET state = stopped.state, cancel_requested = true, finished_at = now(), lease_owner = NULL,
        lease_expires_at = NULL, progress = NULL
    WHERE j.id = stopped.job_id;
    submission_done := runner.after_attempt(stopped.submission_id, true);
END
$$;
