-- Makes the login that waits under a code that of a new user: what an operator does on the gateway's page. A user who
-- exists gets another login from runner.approve_login alone, which the gateway's role may not call.
CREATE OR REPLACE FUNCTION runner.admit_login(code text, user_id text, user_name text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN runner.approve_login(admit_login.code, admit_login.user_id, admit_login.user_name, false);
END
$$;
