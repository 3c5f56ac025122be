-- Raises an error if the priority is out of range.
CREATE OR REPLACE FUNCTION runner.check_priority(priority integer) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF priority NOT BETWEEN -1000 AND 1000 THEN
        PERFORM runner.refuse('KR022', format('priority %s is out of range', priority),
            'Choose one from -1000 to 1000.');
    END IF;
END
$$;
