-- Lets a target be told a message that says nothing, after what waits for it already, and at once: a pause after
-- failures ends, and so does its end. Returns the number of the event.
CREATE OR REPLACE FUNCTION runner.test_webhook(name text) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_webhook_id bigint;
    v_event_id bigint;
BEGIN
    PERFORM runner.check_isolation();
    PERFORM FROM runner.webhook_clock FOR NO KEY UPDATE;
    UPDATE runner.webhook w SET retry_at = '-infinity', ended_at = NULL WHERE w.name = test_webhook.name
    RETURNING w.id INTO v_webhook_id;
    IF NOT FOUND THEN
        PERFORM runner.refuse('KR054', format('webhook %L does not exist', test_webhook.name),
            'One of the configuration is there once `kernel-runner webhook run` has begun.');
    END IF;
    INSERT INTO runner.webhook_event (kind, data) VALUES ('test', '{}') RETURNING id INTO v_event_id;
    INSERT INTO runner.webhook_delivery (webhook_id, event_id) VALUES (v_webhook_id, v_event_id);
    RETURN v_event_id;
END
$$;
