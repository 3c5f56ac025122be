-- The newest scores that were the best of their leaderboard and GPU type when they came, each with the one before it.
-- They are found from the best score back: the record before one is the best of all earlier scores. Whether a score
-- counts is asked only of those that would be a record.
CREATE OR REPLACE FUNCTION runner.board_records(board_id integer, gpu_type text, at_most integer)
RETURNS TABLE (submission_id integer, submission_time timestamptz, user_id text, user_name text, score double precision,
               before double precision)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_next runner.score;
    v_record runner.score;
    -- Banned users that were met.
    v_banned text[] := '{}';
    v_left integer := at_most;
BEGIN
    -- What no clock measures is no record.
    v_next.score := 1e-12;
    v_next.submission_time := 'infinity';
    WHILE v_left > 0 LOOP
        v_next := runner.next_score(board_id, gpu_type, v_next, v_record, v_banned);
        IF v_next.run_id IS NOT NULL
           AND NOT EXISTS (SELECT FROM runner.counting_score o WHERE o.run_id = v_next.run_id) THEN
            v_banned := v_banned || ARRAY(
                SELECT u.id FROM leaderboard.user_info u WHERE u.id = v_next.user_id AND u.is_banned);
            CONTINUE;
        END IF;
        IF v_record.run_id IS NOT NULL THEN
            submission_id := v_record.submission_id;
            submission_time := v_record.submission_time;
            user_id := v_record.user_id;
            user_name := (SELECT u.user_name FROM leaderboard.user_info u WHERE u.id = v_record.user_id);
            score := v_record.score;
            before := v_next.score;
            RETURN NEXT;
            v_left := v_left - 1;
        END IF;
        EXIT WHEN v_next.run_id IS NULL;
        v_record := v_next;
    END LOOP;
END
$$;
