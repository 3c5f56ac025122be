-- Raises an error if KernelBot, where it shares the tables, cannot read this id of a user. It reads ids as numbers: one
-- other user with a score, and its list of that leaderboard fails for everybody.
CREATE OR REPLACE FUNCTION runner.check_shared_id(user_id text) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF check_shared_id.user_id !~ '^[0-9]+$' AND runner.is_shared() THEN
        PERFORM runner.refuse('KR010',
            format('user id %L is no number, and KernelBot, whose tables these are, reads ids of users as numbers',
                   check_shared_id.user_id),
            'Choose a number, such as the person''s at Discord, and give the name as user_name (--name).');
    END IF;
END
$$;
