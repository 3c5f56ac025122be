-- Notifies the daemons whom the names concern. The names are separated by commas. A payload has at most 8000 bytes, so
-- a longer list is sent as an empty payload, which calls every daemon.
CREATE OR REPLACE FUNCTION runner.call(channel text, names text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM runner.tell(channel, CASE WHEN octet_length(names) < 7900 THEN names ELSE '' END);
END
$$;
