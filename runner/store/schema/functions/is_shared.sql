-- Whether KernelBot made schema leaderboard, or has migrated it since: then its API may serve the same tables. Our own
-- records (leaderboard.sql, validations.sql) say in their comments whose they are.
CREATE OR REPLACE FUNCTION runner.is_shared() RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- Without USAGE on the schema a name in it is an error. There may be no such schema.
    IF has_schema_privilege(to_regnamespace('public'), 'USAGE') IS NOT TRUE
        OR to_regclass('public._yoyo_log') IS NULL OR NOT has_table_privilege('public._yoyo_log', 'SELECT') THEN
        RETURN false;
    END IF;
    RETURN EXISTS (SELECT FROM public._yoyo_log l
                   WHERE coalesce(l.comment, '') NOT LIKE '%ed by kernel-runner%');
END
$$;
