-- Notes that a program asks for a login: a row of user_info that is not valid. An operator approves it by its code, or it
-- is removed after a day. Only a digest of the program's secret is stored.
CREATE OR REPLACE FUNCTION runner.begin_login(code text, digest text, provider text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_id text := concat('temp_', begin_login.code);
BEGIN
    IF coalesce(begin_login.code, '') !~ '^[0-9a-f]{8}$' OR coalesce(begin_login.digest, '') !~ '^sha256:[0-9a-f]{64}$' THEN
        PERFORM runner.refuse('KR042', 'a login has a code of 8 hexadecimal digits and a digest', 'Begin it again.');
    END IF;
    DELETE FROM leaderboard.user_info u
    WHERE u.id ~ '^temp_' AND u.cli_valid IS NOT TRUE AND u.created_at < localtimestamp - interval '1 day'
      AND NOT EXISTS (SELECT FROM leaderboard.submission s WHERE s.user_id = u.id);
    IF (SELECT count(*) FROM (
            SELECT FROM leaderboard.user_info u WHERE u.id ~ '^temp_' AND u.cli_valid IS NOT TRUE LIMIT 1000) AS w) >= 1000 THEN
        PERFORM runner.refuse('KR041', 'a thousand logins wait for approval already', 'Try again tomorrow, or ask an operator.');
    END IF;
    INSERT INTO leaderboard.user_info (id, user_name, cli_id, cli_valid, cli_auth_provider)
    VALUES (v_id, concat('temp_user_', begin_login.code), begin_login.digest, false, begin_login.provider)
    ON CONFLICT (id) DO NOTHING;
    RETURN FOUND;
END
$$;
