-- A host finishes what runs and claims nothing until undrained, also after its daemon restarts. True: it was not
-- draining before.
CREATE OR REPLACE FUNCTION runner.drain(host text, reason text DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_before record;
    v_reason text := nullif(btrim(drain.reason), '');
BEGIN
    SELECT h.draining, h.drain_reason INTO v_before FROM runner.host h WHERE h.name = drain.host FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        PERFORM runner.refuse('KR018', format('host %L is not known here', drain.host), 'Look at the list of hosts.');
    END IF;
    IF NOT v_before.draining OR v_before.drain_reason IS DISTINCT FROM v_reason THEN
        UPDATE runner.host h SET draining = true, drain_reason = v_reason WHERE h.name = drain.host;
        INSERT INTO runner.event (kind, host, detail)
        VALUES ('drained', drain.host, jsonb_strip_nulls(jsonb_build_object('reason', v_reason)));
    END IF;
    PERFORM runner.call('runner_hosts', drain.host);
    RETURN NOT v_before.draining;
END
$$;
