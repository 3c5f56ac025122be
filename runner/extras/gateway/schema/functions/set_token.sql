-- Gives a user a new token, of which the digest is stored; the one before ends. Makes the user if there is none.
CREATE OR REPLACE FUNCTION runner.set_token(user_id text, user_name text, digest text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    -- Forms send an empty text for none.
    set_token.user_name := substring(set_token.user_name FROM E'.*\\S.*');
    PERFORM runner.check_user_id(set_token.user_id, set_token.user_name);
    IF coalesce(set_token.digest, '') !~ '^sha256:[0-9a-f]{64}$' THEN
        PERFORM runner.refuse('KR042', 'a token is stored as a digest', 'Call `kernel-runner user token`.');
    END IF;
    INSERT INTO leaderboard.user_info AS u (id, user_name, cli_id, cli_valid, cli_auth_provider)
    VALUES (set_token.user_id, coalesce(set_token.user_name, set_token.user_id), set_token.digest, true, 'operator')
    ON CONFLICT (id) DO UPDATE
    SET cli_id = EXCLUDED.cli_id, cli_valid = true, user_name = coalesce(set_token.user_name, u.user_name);
END
$$;
