-- Removes a leaderboard, or at most a hundred of its submissions: to be called until it returns 0. The leaderboard is
-- closed from the first call on. Without `force` one that has submissions stays.
CREATE OR REPLACE FUNCTION runner.delete_board(leaderboard text, force boolean) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_board integer;
    v_ids integer[];
BEGIN
    PERFORM runner.check_isolation();
    SELECT l.id INTO v_board FROM leaderboard.leaderboard l WHERE l.name = delete_board.leaderboard FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    SELECT array_agg(f.id ORDER BY f.id) INTO v_ids FROM (
        SELECT s.id FROM leaderboard.submission s WHERE s.leaderboard_id = v_board ORDER BY s.id LIMIT 100) AS f;
    IF v_ids IS NULL THEN
        DELETE FROM leaderboard.templates t WHERE t.leaderboard_id = v_board;
        DELETE FROM leaderboard.leaderboard l WHERE l.id = v_board;
        RETURN 0;
    END IF;
    IF delete_board.force IS NOT TRUE THEN
        PERFORM runner.refuse('KR046', format('leaderboard %L has submissions', delete_board.leaderboard),
            'Delete it with force to remove them too.');
    END IF;
    UPDATE leaderboard.leaderboard l SET deadline = least(l.deadline, now()) WHERE l.id = v_board;
    PERFORM runner.delete_submission(o.id) FROM unnest(v_ids) AS o (id);
    RETURN cardinality(v_ids);
END
$$;
