-- Ends all logins of a user, those of a website and of OAuth too. False: there is no such user.
CREATE OR REPLACE FUNCTION runner.revoke_login(user_id text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    DELETE FROM runner.web_login w WHERE w.user_id = revoke_login.user_id;
    UPDATE leaderboard.user_info u SET cli_id = NULL, cli_valid = false, web_auth_id = NULL
    WHERE u.id = revoke_login.user_id;
    RETURN FOUND;
END
$$;
