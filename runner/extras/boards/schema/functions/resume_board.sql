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
    PERFORM runner.let_in();
    PERFORM runner.advance_sweeps(ARRAY(
        SELECT DISTINCT o.sweep_id FROM leaderboard.submission s JOIN runner.job o ON o.validates = s.id
        WHERE s.leaderboard_id = v_id AND o.state = 'queued'));
    PERFORM runner.call('runner_queue', '');
    RETURN true;
END
$$;
