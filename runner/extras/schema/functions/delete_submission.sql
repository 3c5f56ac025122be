-- Removes a submission with its jobs and results; what runs is asked to stop first. With a user id only that user's, and
-- none that counts for an hourly limit: who removes it could submit again. False: there is no such submission.
CREATE OR REPLACE FUNCTION runner.delete_submission(submission_id bigint, user_id text DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_id integer;
    v_counts boolean;
BEGIN
    PERFORM runner.check_isolation();
    SELECT s.id, s.submission_time > now() - interval '1 hour' AND EXISTS (
               SELECT FROM leaderboard.rate_limit r
               WHERE r.leaderboard_id = s.leaderboard_id AND r.mode_category = s.mode_category)
    INTO v_id, v_counts FROM leaderboard.submission s
    WHERE s.id = delete_submission.submission_id AND s.user_id = coalesce(delete_submission.user_id, s.user_id)
    FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    ELSIF v_counts AND delete_submission.user_id IS NOT NULL THEN
        PERFORM runner.refuse('KR013', format('submission %s counts for the hourly limit', v_id),
            'Cancel it, and delete it when it is an hour old.');
    END IF;
    PERFORM runner.cancel(v_id);
    -- KernelBot's key does not cascade.
    DELETE FROM leaderboard.runs r WHERE r.submission_id = v_id;
    DELETE FROM leaderboard.submission s WHERE s.id = v_id;
    RETURN true;
END
$$;
