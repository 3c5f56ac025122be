-- Sets whether a leaderboard's ranked code is public once its deadline has passed.
CREATE OR REPLACE FUNCTION runner.set_open_code(leaderboard text, open_code boolean) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_id integer;
BEGIN
    SELECT l.id INTO v_id FROM leaderboard.leaderboard l WHERE l.name = set_open_code.leaderboard FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        PERFORM runner.refuse('KR001', format('leaderboard %L does not exist', set_open_code.leaderboard),
            'Look at the list of leaderboards.');
    END IF;
    INSERT INTO runner.board AS b (leaderboard_id, open_code) VALUES (v_id, set_open_code.open_code)
    ON CONFLICT (leaderboard_id) DO UPDATE SET open_code = EXCLUDED.open_code;
END
$$;
