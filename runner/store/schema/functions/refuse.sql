-- Raises one of our errors; never returns. Their SQLSTATEs are of class KR and listed in docs/frontends.md. Message and
-- hint may be shown to the user: they repeat what was given, so what could disturb a terminal or a log becomes `?`, and
-- a long one is cut.
CREATE OR REPLACE FUNCTION runner.refuse(code text, message text, hint text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = refuse.code, MESSAGE = runner.harmless(refuse.message),
        HINT = runner.harmless(refuse.hint);
END
$$;
