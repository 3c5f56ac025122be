-- Takes a target that something waits for, for a minute at most, and returns the first event that does. Of the targets
-- of the configuration only those that are named: the caller has their addresses. The same holder gets its target
-- again. After four failures two more events come behind the first: which of them the target takes shows whether it
-- refuses the first alone.
CREATE OR REPLACE FUNCTION runner.claim_webhook(configured text[], holder uuid)
RETURNS TABLE (webhook_id bigint, name text, url text, secret text, format text, event_id bigint, key uuid, kind text,
               at timestamptz, data jsonb)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_webhook record;
BEGIN
    PERFORM runner.check_isolation();
    SELECT w.* INTO v_webhook FROM runner.webhook w
    WHERE w.ended_at IS NULL AND w.retry_at <= now()
      AND (w.leaderboard_id IS NOT NULL OR w.name = ANY (claim_webhook.configured))
      AND (w.sender = claim_webhook.holder OR w.sending_until IS NULL OR w.sending_until < now())
      AND EXISTS (SELECT FROM runner.webhook_delivery d WHERE d.webhook_id = w.id)
    ORDER BY w.sender = claim_webhook.holder DESC NULLS LAST, w.id LIMIT 1
    FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT v_webhook.id, v_webhook.name, v_webhook.url, v_webhook.secret, v_webhook.format, e.id, e.key, e.kind,
           e.at, e.data
    FROM runner.webhook_delivery d JOIN runner.webhook_event e ON e.id = d.event_id
    WHERE d.webhook_id = v_webhook.id ORDER BY e.id LIMIT CASE WHEN v_webhook.failures >= 4 THEN 3 ELSE 1 END;
    IF FOUND THEN
        UPDATE runner.webhook w SET sender = claim_webhook.holder, sending_until = now() + interval '1 minute'
        WHERE w.id = v_webhook.id;
    END IF;
END
$$;
