-- The first three users of runner.ranking, each with the rank there. Scores are read in their order, and whether one
-- counts is asked of the first alone; the view asks it of each user's best.
CREATE OR REPLACE FUNCTION runner.webhook_leaders(board_id integer, gpu_type text) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_next runner.score;
    -- Users with a place, and banned ones that were met.
    v_users text[] := '{}';
    v_score numeric;
    v_rank integer;
    v_places jsonb := '[]';
BEGIN
    WHILE jsonb_array_length(v_places) < 3 LOOP
        v_next := runner.next_score(board_id, gpu_type, v_next, NULL, v_users);
        EXIT WHEN v_next.run_id IS NULL;
        IF NOT EXISTS (SELECT FROM runner.counting_score o WHERE o.run_id = v_next.run_id) THEN
            v_users := v_users || ARRAY(
                SELECT u.id FROM leaderboard.user_info u WHERE u.id = v_next.user_id AND u.is_banned);
            CONTINUE;
        END IF;
        v_users := v_users || v_next.user_id;
        IF v_score IS DISTINCT FROM v_next.score THEN
            v_rank := jsonb_array_length(v_places) + 1;
            v_score := v_next.score;
        END IF;
        v_places := v_places || jsonb_build_object(
            'rank', v_rank, 'submission_id', v_next.submission_id, 'score_s', v_next.score::float8);
    END LOOP;
    RETURN v_places;
END
$$;
