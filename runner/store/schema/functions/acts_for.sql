-- True if the session's login may act for a host: the host is bound to it, or it is the owner. It asks for
-- session_user, which SET ROLE does not change.
CREATE OR REPLACE FUNCTION runner.acts_for(host text) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN EXISTS (SELECT FROM runner.host h WHERE h.name = acts_for.host AND h.login = session_user)
        OR runner.is_owner();
END
$$;
