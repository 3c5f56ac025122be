-- Appends an event, to wait for every target that wants it. The caller holds runner.webhook_clock, so ids are in the
-- order of commits.
CREATE OR REPLACE FUNCTION runner.webhook_tell(kind text, leaderboard_id integer, gpu_type text,
    data jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_places jsonb := runner.webhook_places(data -> 'places', webhook_tell.gpu_type);
    v_id bigint;
BEGIN
    IF v_places = '[]' THEN
        RETURN;
    END IF;
    INSERT INTO runner.webhook_event (kind, leaderboard_id, gpu_type, data)
    VALUES (webhook_tell.kind, webhook_tell.leaderboard_id, webhook_tell.gpu_type,
            data || CASE WHEN v_places IS NULL THEN '{}' ELSE jsonb_build_object('places', v_places) END)
    RETURNING id INTO v_id;
    INSERT INTO runner.webhook_delivery (webhook_id, event_id)
    SELECT w.id, v_id FROM runner.webhook w
    WHERE webhook_tell.kind = ANY (w.events) AND w.ended_at IS NULL
      AND CASE WHEN w.leaderboard_id IS NOT NULL THEN w.leaderboard_id = webhook_tell.leaderboard_id
               ELSE webhook_tell.leaderboard_id IS NULL OR w.boards IS NULL
                   OR data ->> 'leaderboard' = ANY (w.boards) END;
END
$$;
