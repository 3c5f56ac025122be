-- What a submission would go to, for a frontend that asks its user for GPU types first: the leaderboard, the types that
-- it offers, and those that the file names. Raises what submit would raise about the file, the leaderboard and the
-- user.
CREATE OR REPLACE FUNCTION runner.before_submit(
    leaderboard text, user_id text, code bytea, OUT name text, OUT offered text[], OUT named text[]
)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_directives record;
    v_board_id integer;
BEGIN
    SELECT * INTO v_directives FROM runner.parse_directives(runner.check_source(before_submit.code));
    name := coalesce(nullif(btrim(before_submit.leaderboard), ''), v_directives.leaderboard);
    named := v_directives.gpu_types;
    IF name IS NULL THEN
        PERFORM runner.refuse('KR001', 'no leaderboard named',
            'Name one, or put "#!POPCORN leaderboard NAME" into the file.');
    END IF;
    SELECT l.id INTO v_board_id FROM leaderboard.leaderboard l WHERE l.name = before_submit.name;
    IF NOT FOUND THEN
        PERFORM runner.refuse('KR001', format('leaderboard %L does not exist', name),
            'Look at the list of leaderboards.');
    END IF;
    PERFORM runner.check_entry(v_board_id, before_submit.user_id, now());
    offered := ARRAY(SELECT g.gpu_type FROM leaderboard.gpu_type g WHERE g.leaderboard_id = v_board_id ORDER BY 1);
END
$$;
