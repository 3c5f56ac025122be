-- Jobs of a leaderboard are claimed again, those with a later start time when it comes. True: it was paused.
CREATE OR REPLACE FUNCTION runner.resume_board(leaderboard text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_id integer;
BEGIN
    PERFORM runner.check_isolation();
    v_id := runner.hold_board(resume_board.leaderboard);
    UPDATE runner.board b SET paused = NULL, paused_since = NULL WHERE b.leaderboard_id = v_id AND b.paused IS NOT NULL;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    -- As in runner.queue_again, for all of a class at once: they keep the order in which they took turns.
    UPDATE runner.job j
    SET ready = true, not_before = NULL, turn = j.turn + greatest(0, runner.turn_of(h.gpu_type, h.priority) - h.first)
    FROM (
        SELECT q.id, q.gpu_type, q.priority, min(q.turn) OVER (PARTITION BY q.gpu_type, q.priority) AS first
        FROM (
            SELECT o.* FROM runner.job o
            WHERE o.id = ANY (ARRAY(SELECT i.id FROM leaderboard.submission s
                              JOIN runner.job i ON i.submission_id = s.id
                                    WHERE s.leaderboard_id = v_id AND NOT coalesce(s.done, false) AND i.state = 'queued'
                                      AND NOT i.ready))
              AND o.state = 'queued' AND NOT o.ready AND NOT o.after_public
              AND (o.not_before IS NULL OR o.not_before <= now())
            ORDER BY o.id FOR NO KEY UPDATE
        ) AS q
    ) AS h
    WHERE j.id = h.id;
    PERFORM runner.advance_sweeps(ARRAY(
        SELECT DISTINCT o.sweep_id FROM leaderboard.submission s JOIN runner.job o ON o.validates = s.id
        WHERE s.leaderboard_id = v_id AND o.state = 'queued'));
    PERFORM runner.queue_again(o.id) FROM leaderboard.submission s JOIN runner.job o ON o.validates = s.id
    WHERE s.leaderboard_id = v_id AND o.final_id IS NOT NULL AND o.state = 'queued' AND NOT o.ready
        AND o.not_before IS NULL;
    PERFORM runner.call('runner_queue', '');
    RETURN true;
END
$$;
