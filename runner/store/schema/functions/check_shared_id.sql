-- Raises an error if KernelBot, where it shares the tables, cannot read this id of a user. It reads ids as numbers: one
-- other user with a score, and its list of that leaderboard fails for everybody. It shares them if it made schema
-- leaderboard, or has migrated it since. Our own records (leaderboard.sql, validations.sql) say in their comments whose
-- they are.
CREATE OR REPLACE FUNCTION runner.check_shared_id(user_id text) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- Without USAGE on the schema a name in it is an error. There may be no such schema.
    IF check_shared_id.user_id ~ '^[0-9]+$' OR has_schema_privilege(to_regnamespace('public'), 'USAGE') IS NOT TRUE
        OR to_regclass('public._yoyo_log') IS NULL OR NOT has_table_privilege('public._yoyo_log', 'SELECT') THEN
        RETURN;
    END IF;
    IF EXISTS (SELECT FROM public._yoyo_log l WHERE coalesce(l.comment, '') NOT LIKE '%ed by kernel-runner%') THEN
        PERFORM runner.refuse('KR010',
            format('user id %L is no number, and KernelBot, whose tables these are, reads ids of users as numbers',
                   check_shared_id.user_id),
            'Choose a number, such as the person''s at Discord, and give the name as user_name (--name).');
    END IF;
END
$$;
