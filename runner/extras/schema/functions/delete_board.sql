-- Removes a leaderboard, or at most a hundred of its submissions: to be called until it returns 0. The first call
-- closes it. Without `force` one that has submissions stays. No call waits for a submission while it holds the
-- leaderboard.
CREATE OR REPLACE FUNCTION runner.delete_board(leaderboard text, force boolean) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_board record;
    v_ids integer[];
    v_codes integer[];
    v_left integer;
BEGIN
    PERFORM runner.check_isolation();
    SELECT l.id, l.deadline > now() AS open INTO v_board
    FROM leaderboard.leaderboard l WHERE l.name = delete_board.leaderboard;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    IF delete_board.force AND NOT v_board.open THEN
        SELECT array_agg(f.id ORDER BY f.id), array_agg(f.code_id) INTO v_ids, v_codes FROM (
            SELECT s.id, s.code_id FROM leaderboard.submission s
            WHERE s.leaderboard_id = v_board.id ORDER BY s.id LIMIT 100 FOR UPDATE) AS f;
    END IF;
    IF v_ids IS NOT NULL THEN
        PERFORM runner.delete_submission(o.id) FROM unnest(v_ids) AS o (id);
        PERFORM runner.remove_code(v_codes);
        RETURN cardinality(v_ids);
    END IF;
    PERFORM FROM leaderboard.leaderboard l WHERE l.id = v_board.id FOR UPDATE;
    SELECT count(*) INTO v_left FROM leaderboard.submission s WHERE s.leaderboard_id = v_board.id;
    IF v_left = 0 THEN
        DELETE FROM leaderboard.templates t WHERE t.leaderboard_id = v_board.id;
        DELETE FROM leaderboard.leaderboard l WHERE l.id = v_board.id;
    ELSIF delete_board.force THEN
        UPDATE leaderboard.leaderboard l SET deadline = least(l.deadline, now()) WHERE l.id = v_board.id;
    ELSE
        PERFORM runner.refuse('KR046', format('leaderboard %L has %s submissions', delete_board.leaderboard, v_left),
            'Delete it with force to remove them too.');
    END IF;
    RETURN v_left;
END
$$;
