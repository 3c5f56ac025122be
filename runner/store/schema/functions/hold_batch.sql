-- Locks the batch of a job; for a job of a submission it does nothing. With `wait` false it passes over one that another
-- transaction holds, and returns false.
CREATE OR REPLACE FUNCTION runner.hold_batch(job_id bigint, wait boolean DEFAULT true) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_batch_id bigint;
BEGIN
    SELECT j.batch_id INTO v_batch_id FROM runner.job j WHERE j.id = hold_batch.job_id;
    IF v_batch_id IS NULL THEN
        RETURN true;
    END IF;
    IF hold_batch.wait THEN
        PERFORM FROM runner.batch b WHERE b.id = v_batch_id FOR NO KEY UPDATE;
    ELSE
        PERFORM FROM runner.batch b WHERE b.id = v_batch_id FOR NO KEY UPDATE SKIP LOCKED;
    END IF;
    RETURN FOUND;
END
$$;
