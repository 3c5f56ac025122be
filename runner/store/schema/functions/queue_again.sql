-- Called when a job that ran, or that was held back, waits again. It keeps its turn, or is first of those that are due
-- now: claims begin at a floor that is not past the clock. Jobs of a paused leaderboard are held back
-- (runner.resume_board). The time from which it might begin stays, for how long it waits. The caller has written the
-- job.
CREATE OR REPLACE FUNCTION runner.queue_again(job_id bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_paused boolean := EXISTS (
        SELECT FROM (SELECT o.* FROM runner.job o WHERE o.id = queue_again.job_id OFFSET 0) AS j
        JOIN leaderboard.submission s ON s.id = coalesce(j.submission_id, j.validates)
        JOIN runner.board b ON b.leaderboard_id = s.leaderboard_id WHERE b.paused IS NOT NULL);
BEGIN
    UPDATE runner.job j
    SET ready = NOT v_paused,
        not_before = CASE WHEN NOT v_paused OR j.not_before > now() THEN j.not_before END,
        turn = CASE WHEN v_paused THEN j.turn ELSE greatest(j.turn, runner.turn_of(j.gpu_type, j.priority)) END
    WHERE j.id = queue_again.job_id;
END
$$;
