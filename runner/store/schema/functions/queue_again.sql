-- Called when a job that ran, or that was held back, waits again. Claims find it at its place. If the mark cannot be
-- lowered to that place now, the job comes after the jobs of the clock's turn: every mark is before those. Jobs of a paused
-- leaderboard are held back. The caller has written the job.
CREATE OR REPLACE FUNCTION runner.queue_again(job_id bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_job record;
BEGIN
    SELECT j.gpu_type, j.priority, j.turn, b.paused IS NOT NULL AS paused INTO v_job
    FROM (SELECT o.* FROM runner.job o WHERE o.id = queue_again.job_id OFFSET 0) AS j
    LEFT JOIN leaderboard.submission s ON s.id = j.submission_id
    LEFT JOIN runner.board b ON b.leaderboard_id = s.leaderboard_id;
    IF v_job.paused THEN
        UPDATE runner.job j SET ready = false WHERE j.id = queue_again.job_id;
    ELSIF NOT runner.lower_mark(v_job.gpu_type, v_job.priority, v_job.turn, queue_again.job_id) THEN
        UPDATE runner.job j SET turn = greatest(j.turn, 1 + runner.turn_of(j.gpu_type, j.priority))
        WHERE j.id = queue_again.job_id;
    END IF;
END
$$;
