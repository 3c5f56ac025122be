-- Saves a job's progress while its attempt runs. True: it runs, but another transaction holds it, and nothing was
-- saved.
CREATE OR REPLACE FUNCTION runner.show_progress(job_id bigint, attempt integer, progress jsonb) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_job record;
BEGIN
    SELECT j.state, j.attempt, j.lease_owner INTO v_job
    FROM runner.job j WHERE j.id = show_progress.job_id FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN EXISTS (SELECT FROM (SELECT o.* FROM runner.job o WHERE o.id = show_progress.job_id OFFSET 0) AS j
                       WHERE j.attempt = show_progress.attempt AND j.state = 'running');
    END IF;
    IF v_job.state = 'running' AND v_job.attempt = show_progress.attempt AND runner.acts_for(v_job.lease_owner) THEN
        UPDATE runner.job j SET progress = show_progress.progress WHERE j.id = show_progress.job_id;
    END IF;
    RETURN false;
END
$$;
