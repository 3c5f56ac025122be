-- Locks the batch of a job, or the submission that it validates against being deleted; for a job of a submission it
-- does nothing. With `wait` false it passes over one that another transaction holds, and returns false.
CREATE OR REPLACE FUNCTION runner.hold_batch(job_id bigint, wait boolean DEFAULT true) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_batch_id bigint;
    v_validates integer;
BEGIN
    SELECT j.batch_id, j.validates INTO v_batch_id, v_validates FROM runner.job j WHERE j.id = hold_batch.job_id;
    IF v_batch_id IS NULL AND v_validates IS NULL THEN
        RETURN true;
    END IF;
    IF v_validates IS NOT NULL AND hold_batch.wait THEN
        PERFORM FROM leaderboard.submission s WHERE s.id = v_validates FOR KEY SHARE;
    ELSIF v_validates IS NOT NULL THEN
        PERFORM FROM leaderboard.submission s WHERE s.id = v_validates FOR KEY SHARE SKIP LOCKED;
    ELSIF hold_batch.wait THEN
        PERFORM FROM runner.batch b WHERE b.id = v_batch_id FOR NO KEY UPDATE;
    ELSE
        PERFORM FROM runner.batch b WHERE b.id = v_batch_id FOR NO KEY UPDATE SKIP LOCKED;
    END IF;
    RETURN FOUND;
END
$$;
