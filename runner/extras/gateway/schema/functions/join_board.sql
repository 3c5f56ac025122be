-- Claims an invitation for a user; returns the names of its leaderboards. The same user may claim it again.
CREATE OR REPLACE FUNCTION runner.join_board(code text, user_id text) RETURNS text[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_invite record;
BEGIN
    SELECT i.id, i.user_id INTO v_invite FROM leaderboard.leaderboard_invite i
    WHERE i.code = join_board.code FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        PERFORM runner.refuse('KR044', 'Invalid invite code', 'Ask for another one.');
    ELSIF v_invite.user_id <> join_board.user_id THEN
        PERFORM runner.refuse('KR045', 'This invite code has already been claimed', 'Ask for another one.');
    ELSIF v_invite.user_id IS NULL THEN
        UPDATE leaderboard.leaderboard_invite i SET user_id = join_board.user_id, claimed_at = now()
        WHERE i.id = v_invite.id;
    END IF;
    RETURN ARRAY(
        SELECT l.name FROM leaderboard.leaderboard_invite_scope s
        JOIN leaderboard.leaderboard l ON l.id = s.leaderboard_id WHERE s.invite_id = v_invite.id ORDER BY l.name);
END
$$;
