-- Jobs of a GPU type are claimed again. True: it was paused.
CREATE OR REPLACE FUNCTION runner.resume(gpu_type text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_names text[] := runner.names_of(resume.gpu_type);
BEGIN
    DELETE FROM runner.pause p WHERE p.gpu_type = ANY (v_names);
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    -- Every daemon: a job may name the type in another case.
    PERFORM runner.call('runner_queue', '');
    RETURN true;
END
$$;
