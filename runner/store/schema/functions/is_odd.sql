-- True if the text has characters that could disturb a terminal or a log: control characters, line separators,
-- bidirectional overrides.
CREATE OR REPLACE FUNCTION runner.is_odd(value text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN coalesce(value ~ '[\x01-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]', false);
END
$$;
