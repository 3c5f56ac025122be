-- Makes the targets of the configuration these, and forgets others that it had. How one stands that is there stays.
-- Returns those that name leaderboards which are not there.
CREATE OR REPLACE FUNCTION runner.set_webhooks(targets jsonb) RETURNS TABLE (name text, missing_boards text[])
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_target record;
BEGIN
    PERFORM runner.check_isolation();
    DELETE FROM runner.webhook w
    WHERE w.leaderboard_id IS NULL
        AND w.name NOT IN (SELECT t.item ->> 'name' FROM jsonb_array_elements(targets) AS t (item));
    FOR v_target IN
        SELECT * FROM jsonb_to_recordset(targets) AS t (name text, format text, events text[], boards text[])
            ORDER BY t.name
    LOOP
        INSERT INTO runner.webhook AS w (name, format, events, boards)
        VALUES (v_target.name, v_target.format, v_target.events, v_target.boards)
        ON CONFLICT (name) DO UPDATE SET format = EXCLUDED.format, events = EXCLUDED.events, boards = EXCLUDED.boards
        WHERE w.leaderboard_id IS NULL;
        IF NOT FOUND THEN
            PERFORM runner.refuse('KR054', format('webhook %L is one of a leaderboard', v_target.name),
                'Give the one of the configuration another name, or remove the other.');
        END IF;
    END LOOP;
    RETURN QUERY
    SELECT s.name, s.missing_boards FROM runner.webhook_state s WHERE s.missing_boards <> '{}' ORDER BY s.name;
END
$$;
