-- Makes the login that waits under a code that of a user who is logged in by OAuth, in place of the one before: what
-- runner.approve_login does for an operator, such users do for themselves.
CREATE OR REPLACE FUNCTION runner.attach_login(code text, user_id text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM runner.web_login w WHERE w.user_id = attach_login.user_id) THEN
        PERFORM runner.refuse('KR043', format('user %L has not logged in by OAuth', attach_login.user_id),
            'Ask an operator to approve the login.');
    END IF;
    RETURN runner.approve_login(attach_login.code, attach_login.user_id, NULL, true);
END
$$;
