-- Locks a leaderboard by its name, and returns its id; refuses an unknown name.
CREATE OR REPLACE FUNCTION runner.hold_board(name text) RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_id integer;
BEGIN
    SELECT l.id INTO v_id FROM leaderboard.leaderboard l WHERE l.name = hold_board.name FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        PERFORM runner.refuse('KR001', format('leaderboard %L does not exist', hold_board.name),
            'Look at the list of leaderboards.');
    END IF;
    RETURN v_id;
END
$$;
