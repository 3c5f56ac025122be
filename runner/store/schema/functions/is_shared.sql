-- Whether KernelBot made schema leaderboard, or has migrated it since: then its API may serve the same tables.
CREATE OR REPLACE FUNCTION runner.is_shared() RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF to_regclass('public._yoyo_log') IS NULL OR NOT has_table_privilege('public._yoyo_log', 'SELECT') THEN
        RETURN false;
    END IF;
    RETURN EXISTS (SELECT FROM public._yoyo_log l
                   WHERE l.comment IS DISTINCT FROM 'recorded by kernel-runner, which made the schema');
END
$$;
