-- True if the session may act as a daemon: the host is bound to its login, and no other instance owns the name. The
-- owner may also leave `instance` NULL, and act for a host that is not registered.
CREATE OR REPLACE FUNCTION runner.is_ours(host text, instance text) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_host record;
BEGIN
    SELECT h.login, h.instance INTO v_host FROM runner.host h WHERE h.name = is_ours.host;
    RETURN coalesce(v_host.login = session_user AND v_host.instance = is_ours.instance, false)
        OR runner.is_owner() AND coalesce(v_host.instance = is_ours.instance, true);
END
$$;
