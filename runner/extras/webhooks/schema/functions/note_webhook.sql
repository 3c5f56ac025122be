-- Notes what came of telling a target an event, and lets go of the target; returns how many events it will not be told.
-- `outcome`: told; failed, which is tried again after a pause that doubles from 5 seconds to 10 minutes, or after what
-- the target asked for, an hour at most; refused, this event is given up, the target takes others; ended, the target is
-- told nothing more. What is older than a day is given up when the target has failed for a day.
CREATE OR REPLACE FUNCTION runner.note_webhook(
    webhook_id bigint, event_id bigint, holder uuid, outcome text, reason text, retry_after_s double precision
) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_webhook record;
    v_given_up integer := 0;
BEGIN
    PERFORM runner.check_isolation();
    SELECT w.*, coalesce(w.failing_since, now()) AS since INTO v_webhook FROM runner.webhook w
    WHERE w.id = note_webhook.webhook_id FOR NO KEY UPDATE;
    IF note_webhook.outcome = 'told' THEN
        -- Also for a holder that another one has followed: what was told is not told again.
        DELETE FROM runner.webhook_delivery d
        WHERE d.webhook_id = note_webhook.webhook_id AND d.event_id = note_webhook.event_id;
        UPDATE runner.webhook w
        SET told_at = now(), failing_since = NULL, failures = 0, reason = NULL, retry_at = '-infinity',
            sender = nullif(w.sender, note_webhook.holder),
            sending_until = CASE WHEN w.sender = note_webhook.holder THEN NULL ELSE w.sending_until END
        WHERE w.id = note_webhook.webhook_id;
        RETURN 0;
    END IF;
    IF v_webhook.sender IS DISTINCT FROM note_webhook.holder THEN
        RETURN 0;
    END IF;
    IF note_webhook.outcome = 'refused' THEN
        DELETE FROM runner.webhook_delivery d
        WHERE d.webhook_id = note_webhook.webhook_id AND d.event_id = note_webhook.event_id;
        GET DIAGNOSTICS v_given_up = ROW_COUNT;
        UPDATE runner.webhook w SET given_up = w.given_up + v_given_up WHERE w.id = note_webhook.webhook_id;
        RETURN v_given_up;
    END IF;
    IF note_webhook.outcome = 'ended' OR v_webhook.since < now() - interval '1 day' THEN
        DELETE FROM runner.webhook_delivery d USING runner.webhook_event e
        WHERE d.webhook_id = note_webhook.webhook_id AND e.id = d.event_id
          AND (note_webhook.outcome = 'ended' OR e.at < now() - interval '1 day');
        GET DIAGNOSTICS v_given_up = ROW_COUNT;
    END IF;
    UPDATE runner.webhook w
    SET failing_since = v_webhook.since, failures = w.failures + 1, reason = left(note_webhook.reason, 200),
        retry_at = now() + interval '1 second' * greatest(
            least(5 * power(2, least(w.failures, 20)), 600), least(coalesce(note_webhook.retry_after_s, 0), 3600)),
        given_up = w.given_up + v_given_up, sender = NULL, sending_until = NULL,
        ended_at = CASE WHEN note_webhook.outcome = 'ended' THEN now() END
    WHERE w.id = note_webhook.webhook_id;
    RETURN v_given_up;
END
$$;
