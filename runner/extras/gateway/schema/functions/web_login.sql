-- Logs in a person whom GitHub or Discord vouches for: the user's id is the person's number there. The two kinds of
-- numbers differ in length, so that none names two people. A user whom an operator or another provider made is refused.
-- Returns the user's id. The name of a user who exists stays.
CREATE OR REPLACE FUNCTION runner.web_login(provider text, subject text, user_name text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_user record;
BEGIN
    IF coalesce(web_login.subject, '') !~ (CASE web_login.provider WHEN 'github' THEN '^[1-9][0-9]{0,13}$'
                                            WHEN 'discord' THEN '^[1-9][0-9]{14,19}$' ELSE '^$' END)
       OR coalesce(web_login.subject, '') = '' THEN
        PERFORM runner.refuse('KR042', 'this provider names people otherwise', 'Log in by a token.');
    END IF;
    PERFORM runner.check_user_id(web_login.subject, web_login.user_name);
    INSERT INTO leaderboard.user_info (id, user_name, cli_valid, cli_auth_provider)
    VALUES (web_login.subject, coalesce(web_login.user_name, web_login.subject), false, web_login.provider)
    ON CONFLICT (id) DO NOTHING;
    SELECT u.cli_auth_provider, u.web_auth_id INTO v_user FROM leaderboard.user_info u
    WHERE u.id = web_login.subject FOR NO KEY UPDATE;
    -- KernelBot's own users have no provider: its bot knows people by Discord's numbers, its website has set
    -- web_auth_id. Another frontend may have meant anyone by a short number.
    IF v_user.cli_auth_provider <> web_login.provider
       OR v_user.cli_auth_provider IS NULL AND v_user.web_auth_id IS NULL AND web_login.provider <> 'discord' THEN
        PERFORM runner.refuse('KR043',
            format('user %L exists already and is not of %s', web_login.subject, web_login.provider),
            'Log in by a token, or ask an operator.');
    END IF;
    INSERT INTO runner.web_login (user_id, provider) VALUES (web_login.subject, web_login.provider)
    ON CONFLICT (user_id) DO NOTHING;
    RETURN web_login.subject;
END
$$;
