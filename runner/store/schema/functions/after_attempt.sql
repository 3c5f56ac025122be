-- Called when a job is no longer running. Writes the submission's final status if that was its last job. Otherwise the
-- submission waits again, if none of its jobs runs. Returns true if the submission is finished. The caller holds the
-- lock on the submission's row.
CREATE OR REPLACE FUNCTION runner.after_attempt(submission_id integer, over boolean) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    -- A group of a batch.
    IF after_attempt.submission_id IS NULL THEN
        RETURN false;
    END IF;
    IF over AND runner.settle(after_attempt.submission_id) THEN
        RETURN true;
    END IF;
    UPDATE leaderboard.submission_job_status t SET status = 'pending'
    WHERE t.submission_id = after_attempt.submission_id AND t.status = 'running'
      AND NOT EXISTS (SELECT FROM runner.job j
                      WHERE j.submission_id = after_attempt.submission_id AND j.state = 'running');
    RETURN false;
END
$$;
