-- Registers a target of webhooks for one leaderboard. Its address is a secret: only senders read it.
CREATE OR REPLACE FUNCTION runner.add_webhook(
    leaderboard text, name text, url text, format text, events text[], secret text
) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_id integer;
BEGIN
    PERFORM runner.check_isolation();
    SELECT l.id INTO v_id FROM leaderboard.leaderboard l WHERE l.name = add_webhook.leaderboard FOR KEY SHARE;
    IF NOT FOUND THEN
        PERFORM runner.refuse('KR001', format('leaderboard %L does not exist', add_webhook.leaderboard),
            'Look at the list of leaderboards.');
    END IF;
    IF (add_webhook.name ~ '^[a-z0-9][a-z0-9_-]{0,62}$') IS NOT TRUE THEN
        PERFORM runner.refuse('KR054', format('webhook name %L is malformed', add_webhook.name),
            'Expected up to 63 of a to z, 0 to 9, - and _.');
    END IF;
    IF (add_webhook.url ~ '^https?://[^[:space:]/?#@]+([/?][^[:space:]#]*)?$'
        AND length(add_webhook.url) <= 2000) IS NOT TRUE THEN
        PERFORM runner.refuse('KR054', format('the address of webhook %L is malformed', add_webhook.name),
            'Expected http:// or https://, a host and a path, without user and password.');
    END IF;
    IF (add_webhook.format IN ('discord', 'slack', 'json')) IS NOT TRUE
       OR (add_webhook.format = 'json') <> (add_webhook.secret IS NOT NULL) THEN
        PERFORM runner.refuse('KR054', format('webhook %L cannot have format %L %s a secret',
            add_webhook.name, add_webhook.format, CASE WHEN add_webhook.secret IS NULL THEN 'without' ELSE 'with' END),
            'Expected discord or slack without a secret, or json with one.');
    END IF;
    IF add_webhook.secret !~ '^whsec_([A-Za-z0-9+/]{4}){8,21}([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$' THEN
        PERFORM runner.refuse('KR054', format('the secret of webhook %L is malformed', add_webhook.name),
            'Expected whsec_ and at least 24 bytes in base64.');
    END IF;
    IF (add_webhook.events <> '{}' AND add_webhook.events
        <@ ARRAY['record.new', 'ranking.top3', 'board.opened', 'board.closed', 'board.final']) IS NOT TRUE THEN
        PERFORM runner.refuse('KR054', format('webhook %L cannot have events %L', add_webhook.name, add_webhook.events),
            'Expected some of record.new, ranking.top3, board.opened, board.closed and board.final.');
    END IF;
    INSERT INTO runner.webhook (name, leaderboard_id, url, secret, format, events)
    VALUES (add_webhook.name, v_id, add_webhook.url, add_webhook.secret, add_webhook.format, add_webhook.events)
    ON CONFLICT (name) DO NOTHING;
    IF NOT FOUND THEN
        PERFORM runner.refuse('KR054', format('webhook %L exists already', add_webhook.name),
            'Remove it first, or choose another name.');
    END IF;
END
$$;
