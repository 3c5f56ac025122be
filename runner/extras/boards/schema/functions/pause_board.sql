-- No job of a leaderboard is claimed until runner.resume_board; what runs goes on, submissions are still taken. The
-- reason is shown to those who wait. A submission that another transaction is storing meanwhile may still be claimed.
-- True: the leaderboard was not paused.
CREATE OR REPLACE FUNCTION runner.pause_board(leaderboard text, reason text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_id integer;
    v_before text;
    v_reason text := nullif(btrim(pause_board.reason), '');
BEGIN
    PERFORM runner.check_isolation();
    IF v_reason IS NULL THEN
        PERFORM runner.refuse('KR021', 'no reason given', 'Say why; those who wait read it.');
    END IF;
    v_id := runner.hold_board(pause_board.leaderboard);
    SELECT b.paused INTO v_before FROM runner.board b WHERE b.leaderboard_id = v_id;
    INSERT INTO runner.board AS b (leaderboard_id, paused, paused_since) VALUES (v_id, v_reason, now())
    ON CONFLICT (leaderboard_id) DO UPDATE
    SET paused = EXCLUDED.paused, paused_since = coalesce(b.paused_since, EXCLUDED.paused_since);
    -- Their start has come, if they had one: runner.let_in lets in those without.
    UPDATE runner.job j SET ready = false, not_before = NULL
    FROM (
        SELECT q.id FROM runner.job q
        WHERE q.id = ANY (ARRAY(SELECT o.id FROM leaderboard.submission s JOIN runner.job o ON o.submission_id = s.id
                                WHERE s.leaderboard_id = v_id AND NOT coalesce(s.done, false) AND o.state = 'queued'
                                  AND o.ready
                                UNION ALL
                                SELECT o.id FROM leaderboard.submission s JOIN runner.job o ON o.validates = s.id
                                WHERE s.leaderboard_id = v_id AND o.state = 'queued' AND o.ready))
          AND q.state = 'queued' AND q.ready
        ORDER BY q.id FOR NO KEY UPDATE
    ) AS held
    WHERE j.id = held.id;
    RETURN v_before IS NULL;
END
$$;
