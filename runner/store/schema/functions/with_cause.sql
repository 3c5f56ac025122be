-- Returns the causes with one more, at most the last twenty of them.
CREATE OR REPLACE FUNCTION runner.with_cause(causes jsonb, cause jsonb) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN CASE WHEN jsonb_array_length(causes) >= 20 THEN causes - 0 ELSE causes END || jsonb_build_array(cause);
END
$$;
