-- Appends the events of webhooks that have come about since the last call, and takes out of those that wait what pages
-- would not show any more. All of it comes from what is committed, so neither a daemon nor a sender that is killed loses
-- one. The first call of all tells nothing. Nothing older than seven days is told. One caller works at a time; others
-- wait, since what they tell next is to be as it is now.
CREATE OR REPLACE FUNCTION runner.derive_webhooks() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_first boolean;
    v_oldest constant timestamptz := now() - interval '7 days';
    v_board record;
    v_seen record;
    v_record record;
    v_host record;
    v_tells boolean;
    v_about jsonb;
    v_leaders integer[];
    v_records integer[];
    v_places jsonb;
BEGIN
    PERFORM runner.check_isolation();
    SELECT c.begun_at IS NULL INTO v_first FROM runner.webhook_clock c FOR NO KEY UPDATE;
    UPDATE runner.webhook_clock SET begun_at = now() WHERE begun_at IS NULL;

    DELETE FROM runner.webhook_event e WHERE e.at < v_oldest;
    UPDATE runner.webhook_event e SET data = e.data || jsonb_build_object('places', c.places)
    FROM (SELECT o.id, runner.webhook_places(o.data -> 'places', o.gpu_type) AS places FROM runner.webhook_event o
          WHERE o.id IN (SELECT d.event_id FROM runner.webhook_delivery d) AND o.data ? 'places') AS c
    WHERE e.id = c.id AND e.data -> 'places' <> c.places;
    DELETE FROM runner.webhook_event e
    WHERE e.id IN (SELECT d.event_id FROM runner.webhook_delivery d)
      AND (e.data -> 'places' = '[]'
           OR EXISTS (SELECT FROM leaderboard.leaderboard l WHERE l.id = e.leaderboard_id AND l.visibility <> 'public'));

    -- A leaderboard that is not public is looked at, too: once it is, what was before is not told.
    FOR v_board IN
        SELECT l.id, l.name, l.deadline, l.visibility = 'public' AS public,
               l.visibility = 'public' AND l.deadline > now() AS open, s.open AS was_open
        FROM leaderboard.leaderboard l
        LEFT JOIN runner.webhook_board s ON s.leaderboard_id = l.id
        WHERE s.open IS NULL OR s.open OR l.deadline > now() - interval '30 days'
        ORDER BY l.id
    LOOP
        v_tells := v_board.public AND NOT v_first;
        v_about := jsonb_build_object('leaderboard', v_board.name);
        IF v_board.open IS DISTINCT FROM v_board.was_open THEN
            IF v_tells AND v_board.open THEN
                PERFORM runner.webhook_tell('board.opened', v_board.id, NULL,
                    v_about || jsonb_build_object('deadline', v_board.deadline));
            END IF;
            INSERT INTO runner.webhook_board (leaderboard_id, open) VALUES (v_board.id, v_board.open)
            ON CONFLICT (leaderboard_id) DO UPDATE SET open = EXCLUDED.open;
        END IF;
        FOR v_seen IN
            SELECT g.gpu_type, coalesce(s.leaders, '{}') AS leaders, coalesce(s.records, '{}') AS records
            FROM leaderboard.gpu_type g
            LEFT JOIN runner.webhook_ranking s ON s.leaderboard_id = g.leaderboard_id AND s.gpu_type = g.gpu_type
            WHERE g.leaderboard_id = v_board.id ORDER BY g.gpu_type
        LOOP
            v_places := runner.webhook_leaders(v_board.id, v_seen.gpu_type);
            v_leaders := ARRAY(SELECT (p.item ->> 'submission_id')::integer
                               FROM jsonb_array_elements(v_places) WITH ORDINALITY AS p (item, number) ORDER BY p.number);
            CONTINUE WHEN v_leaders = v_seen.leaders;
            v_about := jsonb_build_object('leaderboard', v_board.name, 'gpu_type', v_seen.gpu_type);
            v_records := v_seen.records;
            -- A record that comes to light behind one that was told, because its evaluation took longer, has never led.
            FOR v_record IN
                WITH record AS MATERIALIZED (
                    SELECT b.* FROM runner.board_records(v_board.id, v_seen.gpu_type, 1000) WITH ORDINALITY AS b)
                SELECT r.* FROM record r
                WHERE v_leaders[1] IS DISTINCT FROM v_seen.leaders[1]
                  AND r.ordinality < coalesce(
                      (SELECT min(o.ordinality) FROM record o WHERE o.submission_id = ANY (v_seen.records)), 1001)
                ORDER BY r.ordinality DESC
            LOOP
                v_records := v_records || v_record.submission_id;
                IF v_tells AND v_record.submission_time > v_oldest THEN
                    PERFORM runner.webhook_tell('record.new', v_board.id, v_seen.gpu_type, v_about || jsonb_build_object(
                        'places', jsonb_build_array(jsonb_build_object(
                            'rank', 1, 'submission_id', v_record.submission_id, 'score_s', v_record.score,
                            'before_s', v_record.before))));
                END IF;
            END LOOP;
            IF v_tells THEN
                PERFORM runner.webhook_tell('ranking.top3', v_board.id, v_seen.gpu_type,
                    v_about || jsonb_build_object('places', v_places));
            END IF;
            INSERT INTO runner.webhook_ranking (leaderboard_id, gpu_type, leaders, records)
            VALUES (v_board.id, v_seen.gpu_type, v_leaders, v_records)
            ON CONFLICT (leaderboard_id, gpu_type) DO UPDATE SET leaders = EXCLUDED.leaders, records = EXCLUDED.records;
        END LOOP;
        -- After the records that came before the end.
        IF v_tells AND v_board.was_open AND NOT v_board.open AND v_board.deadline > v_oldest THEN
            PERFORM runner.webhook_tell('board.closed', v_board.id, NULL,
                jsonb_build_object('leaderboard', v_board.name, 'deadline', v_board.deadline));
        END IF;
    END LOOP;

    FOR v_seen IN
        SELECT DISTINCT ON (f.leaderboard_id, f.gpu_type) f.leaderboard_id, f.gpu_type, f.id, f.ended_at, l.name,
               l.visibility = 'public' AS public
        FROM runner.final_sweep f
        JOIN leaderboard.leaderboard l ON l.id = f.leaderboard_id
        LEFT JOIN runner.webhook_ranking s ON s.leaderboard_id = f.leaderboard_id AND s.gpu_type = f.gpu_type
        WHERE f.status = 'completed' AND f.id > coalesce(s.final_id, 0)
        ORDER BY f.leaderboard_id, f.gpu_type, f.id DESC
    LOOP
        IF v_seen.public AND NOT v_first AND v_seen.ended_at > v_oldest THEN
            SELECT coalesce(jsonb_agg(jsonb_build_object('rank', t.rank, 'submission_id', t.submission_id,
                       'score_s', t.score) ORDER BY t.rank, t.score, t.rank_before), '[]')
            INTO v_places
            FROM (SELECT r.* FROM runner.final_ranking r
                  WHERE r.leaderboard = v_seen.name AND r.gpu_type = v_seen.gpu_type AND r.rank IS NOT NULL
                  ORDER BY r.rank, r.score, r.rank_before LIMIT 3) AS t;
            PERFORM runner.webhook_tell('board.final', v_seen.leaderboard_id, v_seen.gpu_type, jsonb_build_object(
                'leaderboard', v_seen.name, 'gpu_type', v_seen.gpu_type, 'places', v_places));
        END IF;
        INSERT INTO runner.webhook_ranking (leaderboard_id, gpu_type, final_id)
        VALUES (v_seen.leaderboard_id, v_seen.gpu_type, v_seen.id)
        ON CONFLICT (leaderboard_id, gpu_type) DO UPDATE SET final_id = EXCLUDED.final_id;
    END LOOP;

    -- Lost is what `kernel-runner host list` calls silent, at two looks half a minute apart: right after an outage of the
    -- database all hosts look so.
    DELETE FROM runner.webhook_host s WHERE NOT EXISTS (SELECT FROM runner.host h WHERE h.name = s.name);
    INSERT INTO runner.webhook_host (name, told)
    SELECT h.name, v_first FROM runner.host h
    WHERE h.stopped_at IS NULL AND h.last_seen < now() - interval '60 seconds'
    ON CONFLICT (name) DO NOTHING;
    FOR v_host IN
        SELECT h.name, h.last_seen, s.told, s.noted_at < now() - interval '30 seconds' AS sure,
               h.stopped_at IS NULL AND h.last_seen < now() - interval '60 seconds' AS silent
        FROM runner.webhook_host s JOIN runner.host h ON h.name = s.name ORDER BY h.name
    LOOP
        IF NOT v_host.silent THEN
            DELETE FROM runner.webhook_host s WHERE s.name = v_host.name;
        ELSIF v_host.sure AND NOT v_host.told THEN
            UPDATE runner.webhook_host s SET told = true WHERE s.name = v_host.name;
        END IF;
        IF v_host.silent AND v_host.sure AND NOT v_host.told OR NOT v_host.silent AND v_host.told THEN
            PERFORM runner.webhook_tell(CASE WHEN v_host.silent THEN 'host.lost' ELSE 'host.back' END, NULL, NULL,
                jsonb_build_object('host', v_host.name, 'last_seen', v_host.last_seen));
        END IF;
    END LOOP;
END
$$;
