-- Makes the login that waits under a code that of a user. An existing user gets it only with `existing`: that login
-- then is the user's, and the one before ends. A user who is made here is an operator's word, not a provider's: OAuth
-- does not log in as such a user.
CREATE OR REPLACE FUNCTION runner.approve_login(code text, user_id text, user_name text, existing boolean) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_waits record;
    v_known boolean;
BEGIN
    -- Forms send an empty text for none.
    approve_login.user_name := substring(approve_login.user_name FROM E'.*\\S.*');
    PERFORM runner.check_user_id(approve_login.user_id, approve_login.user_name);
    SELECT u.id, u.cli_id INTO v_waits FROM leaderboard.user_info u
    WHERE u.id = concat('temp_', lower(approve_login.code)) AND u.cli_valid IS NOT TRUE
        AND u.cli_id IS NOT NULL FOR UPDATE;
    IF NOT FOUND THEN
        PERFORM runner.refuse('KR042', format('no login waits under the code %L', approve_login.code),
            'The code is the first 8 characters of cli_id in ~/.popcorn.yaml; a login waits for twelve hours.');
    END IF;
    SELECT true INTO v_known FROM leaderboard.user_info u WHERE u.id = approve_login.user_id FOR UPDATE;
    IF v_known AND approve_login.existing IS NOT TRUE THEN
        PERFORM runner.refuse('KR043', format('user %L exists already', approve_login.user_id),
            'If this login is the same person''s, approve it with --existing; the login before then ends.');
    END IF;
    DELETE FROM leaderboard.user_info u WHERE u.id = v_waits.id;
    INSERT INTO leaderboard.user_info AS u (id, user_name, cli_id, cli_valid, cli_auth_provider)
    VALUES (approve_login.user_id, coalesce(approve_login.user_name, approve_login.user_id), v_waits.cli_id, true,
            'operator')
    ON CONFLICT (id) DO UPDATE
    SET cli_id = EXCLUDED.cli_id, cli_valid = true, user_name = coalesce(approve_login.user_name, u.user_name);
    RETURN approve_login.user_id;
END
$$;
