-- Sends a notification, unless the cluster's queue of notifications is nearly full: then every commit with one would
-- fail. A listener whose transaction stays open keeps the queue from being emptied. All who listen also poll.
CREATE OR REPLACE FUNCTION runner.tell(channel text, payload text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF pg_notification_queue_usage() < 0.5 THEN
        PERFORM pg_notify(channel, payload);
    END IF;
END
$$;
