-- The host claims again. True: it was draining.
CREATE OR REPLACE FUNCTION runner.undrain(host text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_draining boolean;
BEGIN
    SELECT h.draining INTO v_draining FROM runner.host h WHERE h.name = undrain.host FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        PERFORM runner.refuse('KR018', format('host %L is not known here', undrain.host), 'Look at the list of hosts.');
    END IF;
    IF v_draining THEN
        UPDATE runner.host h SET draining = false, drain_reason = NULL WHERE h.name = undrain.host;
        INSERT INTO runner.event (kind, host) VALUES ('undrained', undrain.host);
    END IF;
    PERFORM runner.call('runner_hosts', undrain.host);
    RETURN v_draining;
END
$$;
