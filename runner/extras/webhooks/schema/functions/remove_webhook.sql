-- Forgets a leaderboard's target of webhooks, and what waits for it.
CREATE OR REPLACE FUNCTION runner.remove_webhook(name text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    PERFORM runner.check_isolation();
    DELETE FROM runner.webhook w WHERE w.name = remove_webhook.name AND w.leaderboard_id IS NOT NULL;
    IF NOT FOUND THEN
        PERFORM runner.refuse('KR054', format('no leaderboard has a webhook %L', remove_webhook.name),
            'Take one of the configuration out there; the next `kernel-runner webhook run` forgets it.');
    END IF;
END
$$;
