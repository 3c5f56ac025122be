-- The first three users of runner.ranking, each with the rank there. Rows are read in the order of
-- their scores, and whether one counts is asked of the first alone; the view asks it of each user's best.
CREATE OR REPLACE FUNCTION runner.webhook_leaders(board_id integer, gpu_type text) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_row record;
    v_users text[] := '{}';
    v_score numeric;
    v_rank integer;
    v_places jsonb := '[]';
BEGIN
    FOR v_row IN
        SELECT k.run_id, k.submission_id, k.submission_time, k.score, k.user_id FROM runner.score k
        WHERE k.leaderboard_id = webhook_leaders.board_id AND k.gpu_type = webhook_leaders.gpu_type
        UNION ALL
        -- From the runs to their submissions, as in runner.ranking: the other way is all submissions of the leaderboard.
        SELECT r.id, s.id, s.submission_time, r.score, s.user_id
        FROM (SELECT o.* FROM leaderboard.runs o
              WHERE o.id > (SELECT m.run_id FROM runner.score_mark m) AND NOT o.secret AND o.score IS NOT NULL AND o.passed
                AND (SELECT count(*) FROM runner.score k WHERE k.run_id = o.id) = 0
              OFFSET 0) AS r
        CROSS JOIN LATERAL (SELECT * FROM leaderboard.submission o WHERE o.id = r.submission_id OFFSET 0) AS s
        WHERE r.runner = webhook_leaders.gpu_type AND s.leaderboard_id = webhook_leaders.board_id
        ORDER BY score, submission_time, submission_id
    LOOP
        CONTINUE WHEN v_row.user_id = ANY (v_users)
            OR NOT EXISTS (SELECT FROM runner.counting_score o WHERE o.run_id = v_row.run_id);
        v_users := v_users || v_row.user_id;
        IF v_score IS DISTINCT FROM v_row.score THEN
            v_rank := cardinality(v_users);
            v_score := v_row.score;
        END IF;
        v_places := v_places || jsonb_build_object(
            'rank', v_rank, 'submission_id', v_row.submission_id, 'score_s', v_row.score::float8);
        EXIT WHEN jsonb_array_length(v_places) = 3;
    END LOOP;
    RETURN v_places;
END
$$;
