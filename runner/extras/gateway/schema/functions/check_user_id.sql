-- Raises an error unless an operator may give this id and this name to a user.
CREATE OR REPLACE FUNCTION runner.check_user_id(user_id text, user_name text) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF coalesce(btrim(check_user_id.user_id), '') = '' OR length(check_user_id.user_id) > 255
       OR runner.is_odd(check_user_id.user_id) OR check_user_id.user_id ~ '^temp_' THEN
        PERFORM runner.refuse('KR010',
            'a user id has 1 to 255 characters, none of them a control character, and does not begin with temp_',
            'Choose another one.');
    END IF;
    -- A user who exists may go on reading: what would be listed is refused where it is submitted.
    IF NOT EXISTS (SELECT FROM leaderboard.user_info u WHERE u.id = check_user_id.user_id) THEN
        PERFORM runner.check_shared_id(check_user_id.user_id);
    END IF;
    IF length(check_user_id.user_name) > 255 OR runner.is_odd(check_user_id.user_name) THEN
        PERFORM runner.refuse('KR010', 'a user name has at most 255 characters, none of them a control character',
            'Choose another one.');
    END IF;
END
$$;
