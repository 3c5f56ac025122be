-- Registers a daemon, or its new version and slots. The first registration binds the host's name to the session's
-- login; runner.move_host binds it to another. Returns no row, or the daemon that owns the name: another login's, or
-- another instance that was seen within a minute. `key` signs its receipts; earlier keys of the host stay, as replaced.
CREATE OR REPLACE FUNCTION runner.register(
    host text, version text, slots jsonb, instance text, gpu_types text[], key text DEFAULT NULL
)
RETURNS TABLE (owner_login text, owner_instance text, silent_s double precision)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    IF coalesce(register.host, '') = '' OR coalesce(register.instance, '') = '' OR length(register.host) > 255 THEN
        PERFORM runner.refuse('KR026', 'a daemon registers with a name of 1 to 255 characters and an instance',
            'Correct host_name.');
    END IF;
    INSERT INTO runner.host AS h (name, version, slots, instance, gpu_types, login)
    VALUES (register.host, register.version, register.slots, register.instance, register.gpu_types, session_user)
    ON CONFLICT (name) DO UPDATE
    SET version = EXCLUDED.version, slots = EXCLUDED.slots, instance = EXCLUDED.instance,
        gpu_types = EXCLUDED.gpu_types, registered_at = now(), last_seen = now(), stopped_at = NULL,
        login = coalesce(h.login, EXCLUDED.login)
    WHERE (h.login IS NULL OR h.login = EXCLUDED.login OR runner.is_owner())
      AND (h.instance IS NULL OR h.instance = EXCLUDED.instance OR h.stopped_at IS NOT NULL
           OR h.last_seen < now() - interval '60 seconds');
    IF NOT FOUND THEN
        RETURN QUERY
        SELECT CASE WHEN h.login <> session_user AND NOT runner.is_owner() THEN h.login END, h.instance,
               extract(epoch FROM now() - h.last_seen)::double precision
        FROM runner.host h WHERE h.name = register.host;
    ELSIF register.key IS NOT NULL THEN
        INSERT INTO runner.host_key AS k (host, key) VALUES (register.host, register.key)
        ON CONFLICT (host, key) DO UPDATE SET replaced_at = NULL WHERE k.replaced_at IS NOT NULL;
        UPDATE runner.host_key k SET replaced_at = now()
        WHERE k.host = register.host AND k.key <> register.key AND k.replaced_at IS NULL;
    END IF;
END
$$;
