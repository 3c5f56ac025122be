-- Raises an error unless this user may submit to this leaderboard at this time.
CREATE OR REPLACE FUNCTION runner.check_entry(leaderboard_id integer, user_id text, at timestamptz) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_board record;
    v_stopped text;
BEGIN
    SELECT o.reason INTO v_stopped FROM runner.intake_stop o;
    IF FOUND THEN
        PERFORM runner.refuse('KR040', format('no submissions are accepted now: %s', v_stopped), 'Try again later.');
    END IF;
    IF EXISTS (SELECT FROM leaderboard.user_info u WHERE u.id = check_entry.user_id AND u.is_banned) THEN
        PERFORM runner.refuse('KR010', format('user %L is banned', check_entry.user_id), 'Ask an administrator.');
    END IF;
    SELECT l.name, l.deadline, l.visibility INTO v_board
    FROM leaderboard.leaderboard l WHERE l.id = check_entry.leaderboard_id;
    -- The setting is submit_late's. Any login may make it; it counts for those that may call that function.
    IF v_board.deadline < check_entry.at AND NOT (
        coalesce(current_setting('runner.late', true), '') = 'on'
        AND has_function_privilege(session_user, 'runner'
            || '.submit_late(text, text, text, bytea, text, text[], text)', 'EXECUTE')
    ) THEN
        PERFORM runner.refuse('KR002',
            format('leaderboard %L closed at %s UTC', v_board.name,
                   to_char(v_board.deadline AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI')),
            'Its deadline has passed.');
    END IF;
    IF v_board.visibility <> 'public' AND NOT EXISTS (
        SELECT FROM leaderboard.leaderboard_invite i
        JOIN leaderboard.leaderboard_invite_scope s ON s.invite_id = i.id
        WHERE i.user_id = check_entry.user_id AND s.leaderboard_id = check_entry.leaderboard_id
    ) THEN
        PERFORM runner.refuse('KR012', format('leaderboard %L is by invitation', v_board.name),
            'Claim an invitation first.');
    END IF;
END
$$;
