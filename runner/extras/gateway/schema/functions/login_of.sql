-- The user whom a credential names: one of `cli` is a valid cli_id, or one of `web` is a web_auth_id. `session_key` is
-- what cookies are signed with; it changes when a credential of the user does.
CREATE OR REPLACE FUNCTION runner.login_of(cli text[], web text[], user_id text)
RETURNS TABLE (id text, user_name text, is_banned boolean, session_key text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT f.id, f.user_name, f.is_banned,
           encode(sha256(convert_to(jsonb_build_array(f.id, f.cli_id, f.web_auth_id, w.key)::text, 'UTF8')), 'hex')
    FROM (
        SELECT u.* FROM leaderboard.user_info u WHERE u.cli_id = ANY (login_of.cli) AND u.cli_valid
        UNION ALL
        SELECT u.* FROM leaderboard.user_info u WHERE u.web_auth_id = ANY (login_of.web)
        UNION ALL
        SELECT u.* FROM leaderboard.user_info u
        WHERE u.id = login_of.user_id AND (u.cli_id IS NOT NULL AND u.cli_valid OR u.web_auth_id IS NOT NULL
            OR EXISTS (SELECT FROM runner.web_login w WHERE w.user_id = u.id))
    ) AS f
    LEFT JOIN runner.web_login w ON w.user_id = f.id
    ORDER BY f.id LIMIT 1;
END
$$;
