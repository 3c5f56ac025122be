-- Sets whether a leaderboard's ranked code is public once its deadline has passed.
CREATE OR REPLACE FUNCTION runner.set_open_code(leaderboard text, open_code boolean) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_id integer;
BEGIN
    v_id := runner.hold_board(set_open_code.leaderboard);
    INSERT INTO runner.board AS b (leaderboard_id, open_code) VALUES (v_id, set_open_code.open_code)
    ON CONFLICT (leaderboard_id) DO UPDATE SET open_code = EXCLUDED.open_code;
END
$$;
