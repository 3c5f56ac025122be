-- Removes a submission with its jobs and results; what runs is asked to stop first. With a user id only that user's.
-- False: there is no such submission.
CREATE OR REPLACE FUNCTION runner.delete_submission(submission_id bigint, user_id text DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_id integer;
BEGIN
    PERFORM runner.check_isolation();
    SELECT s.id INTO v_id FROM leaderboard.submission s
    WHERE s.id = delete_submission.submission_id AND s.user_id = coalesce(delete_submission.user_id, s.user_id)
    FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM runner.cancel(v_id);
    -- KernelBot's key does not cascade.
    DELETE FROM leaderboard.runs r WHERE r.submission_id = v_id;
    DELETE FROM leaderboard.submission s WHERE s.id = v_id;
    RETURN true;
END
$$;
