-- Stores the GPU types of a registry, given as [{"name", "vendor", "aliases", "description"}], and returns the names of
-- those that it refused. The owner's replace all that share a name with them. A daemon's login adds types and changes
-- its own, but gives no second meaning to a name or an alias that another row has. Types that no call names stay.
CREATE OR REPLACE FUNCTION runner.publish_gpu_types(types jsonb) RETURNS text[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_owner boolean := runner.is_owner();
    v_type record;
    v_names text[];
    v_refused text[] := '{}';
BEGIN
    -- In one order everywhere, or two daemons that start together could block each other.
    FOR v_type IN
        SELECT t.name, t.vendor, coalesce(t.aliases, '{}') AS aliases, coalesce(t.description, '') AS description
        FROM jsonb_to_recordset(publish_gpu_types.types) AS t (name text, vendor text, aliases text[], description text)
        ORDER BY t.name COLLATE "C"
    LOOP
        SELECT array_agg(lower(n.name)) INTO v_names FROM unnest(v_type.name || v_type.aliases) AS n (name);
        IF v_owner THEN
            DELETE FROM runner.gpu_type g
            WHERE g.login IS NOT NULL AND g.name <> v_type.name
              AND EXISTS (SELECT FROM unnest(g.name || g.aliases) AS n (name) WHERE lower(n.name) = ANY (v_names));
        ELSIF EXISTS (
            SELECT FROM runner.gpu_type g
            WHERE g.login IS DISTINCT FROM session_user
              AND EXISTS (SELECT FROM unnest(g.name || g.aliases) AS n (name) WHERE lower(n.name) = ANY (v_names))
        ) THEN
            IF NOT EXISTS (
                SELECT FROM runner.gpu_type g
                WHERE v_names <@ ARRAY(SELECT lower(n.name) FROM unnest(g.name || g.aliases) AS n (name))
            ) THEN
                v_refused := v_refused || v_type.name;
            END IF;
            CONTINUE;
        END IF;
        INSERT INTO runner.gpu_type AS g (name, vendor, aliases, description, login)
        VALUES (v_type.name, v_type.vendor, v_type.aliases, v_type.description,
                CASE WHEN NOT v_owner THEN session_user END)
        ON CONFLICT (name) DO UPDATE
        SET vendor = EXCLUDED.vendor, aliases = EXCLUDED.aliases, description = EXCLUDED.description,
            login = EXCLUDED.login, synced_at = now()
        WHERE (g.vendor, g.aliases, g.description, g.login)
              IS DISTINCT FROM (EXCLUDED.vendor, EXCLUDED.aliases, EXCLUDED.description, EXCLUDED.login)
          -- Another daemon may have stored it meanwhile.
          AND (v_owner OR g.login = session_user);
    END LOOP;
    RETURN v_refused;
END
$$;
