-- Marks a daemon as stopped, unless another daemon or another login owns the name.
CREATE OR REPLACE FUNCTION runner.unregister(host text, instance text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    IF runner.is_ours(unregister.host, unregister.instance) THEN
        UPDATE runner.host h SET stopped_at = now(), last_seen = now() WHERE h.name = unregister.host;
    END IF;
END
$$;
