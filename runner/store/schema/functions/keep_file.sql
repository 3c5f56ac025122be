-- Stores a file of a result, in the transaction in which runner.complete committed that result and in no later one. A
-- later file of the same name replaces an earlier one. True: stored.
CREATE OR REPLACE FUNCTION runner.keep_file(job_id bigint, attempt integer, name text, media_type text, data bytea)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_job record;
BEGIN
    SELECT j.state, j.attempt, j.host, j.finished_at INTO v_job FROM runner.job j WHERE j.id = keep_file.job_id;
    -- now() is the time at which the transaction began, so no other transaction finishes a job at it.
    IF (v_job.state = 'done' AND v_job.attempt = keep_file.attempt AND v_job.finished_at = now()
        AND runner.acts_for(v_job.host)) IS NOT TRUE THEN
        RETURN false;
    END IF;
    INSERT INTO runner.artifact (job_id, name, media_type, data)
    VALUES (keep_file.job_id, keep_file.name, keep_file.media_type, keep_file.data)
    ON CONFLICT (job_id, name) DO UPDATE SET media_type = EXCLUDED.media_type, data = EXCLUDED.data;
    RETURN true;
END
$$;
