-- Jobs of a leaderboard are claimed again, those with a later start time when it comes. True: it was paused.
CREATE OR REPLACE FUNCTION runner.resume_board(leaderboard text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_id integer;
    v_ids bigint[];
    v_class record;
BEGIN
    PERFORM runner.check_isolation();
    SELECT l.id INTO v_id FROM leaderboard.leaderboard l WHERE l.name = resume_board.leaderboard FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        PERFORM runner.refuse('KR001', format('leaderboard %L does not exist', resume_board.leaderboard),
            'Look at the list of leaderboards.');
    END IF;
    UPDATE runner.board b SET paused = NULL, paused_since = NULL WHERE b.leaderboard_id = v_id AND b.paused IS NOT NULL;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    WITH held AS (
        SELECT q.id FROM runner.job q
        WHERE q.id = ANY (ARRAY(SELECT o.id FROM leaderboard.submission s JOIN runner.job o ON o.submission_id = s.id
                                WHERE s.leaderboard_id = v_id AND NOT coalesce(s.done, false) AND o.state = 'queued'
                                  AND NOT o.ready))
          AND q.state = 'queued' AND NOT q.ready AND NOT q.after_public AND (q.not_before IS NULL OR q.not_before <= now())
        ORDER BY q.id FOR NO KEY UPDATE
    ), changed AS (
        UPDATE runner.job j SET ready = true, not_before = NULL FROM held h WHERE j.id = h.id RETURNING j.id
    )
    SELECT array_agg(c.id) INTO v_ids FROM changed c;
    -- As in runner.queue_again, for all of a class at once.
    FOR v_class IN
        SELECT j.gpu_type, j.priority, (array_agg(j.turn ORDER BY j.turn, j.id))[1] AS turn,
               (array_agg(j.id ORDER BY j.turn, j.id))[1] AS id, array_agg(j.id) AS ids
        FROM runner.job j WHERE j.id = ANY (v_ids)
        GROUP BY j.gpu_type, j.priority ORDER BY j.gpu_type COLLATE "C", j.priority
    LOOP
        IF NOT runner.lower_mark(v_class.gpu_type, v_class.priority, v_class.turn, v_class.id) THEN
            UPDATE runner.job j SET turn = greatest(j.turn, 1 + runner.turn_of(v_class.gpu_type, v_class.priority))
            WHERE j.id = ANY (v_class.ids);
        END IF;
    END LOOP;
    PERFORM runner.call('runner_queue', '');
    RETURN true;
END
$$;
