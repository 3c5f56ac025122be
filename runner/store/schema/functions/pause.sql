-- No job of a GPU type is claimed until runner.resume; what runs goes on. The reason is shown to those who wait. It
-- holds for all names of the type that the registry has. True: it was not paused.
CREATE OR REPLACE FUNCTION runner.pause(gpu_type text, reason text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_names text[] := runner.names_of(pause.gpu_type);
    v_reason text := nullif(btrim(pause.reason), '');
    v_before boolean := EXISTS (SELECT FROM runner.pause p WHERE p.gpu_type = ANY (v_names));
BEGIN
    IF v_reason IS NULL THEN
        PERFORM runner.refuse('KR021', 'no reason given', 'Say why; those who wait read it.');
    END IF;
    INSERT INTO runner.pause (gpu_type, reason)
    SELECT n.name, v_reason FROM unnest(v_names) AS n (name) ORDER BY n.name
    ON CONFLICT (gpu_type) DO UPDATE SET reason = EXCLUDED.reason;
    RETURN NOT v_before;
END
$$;
