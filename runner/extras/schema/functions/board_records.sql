-- The newest scores that were the best of their leaderboard and GPU type when they came, each with the one before it.
-- One pass over the scores in the order of time; whether a score counts is asked only of those that would be a record.
CREATE OR REPLACE FUNCTION runner.board_records(board_id integer, gpu_type text, at_most integer)
RETURNS TABLE (submission_id integer, submission_time timestamptz, user_id text, user_name text, score double precision,
               before double precision)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_row record;
    v_best numeric := 1e12;
    v_records jsonb[] := '{}';
BEGIN
    FOR v_row IN
        SELECT k.run_id, k.submission_id, k.submission_time, k.score, k.user_id FROM runner.score k
        WHERE k.leaderboard_id = board_records.board_id AND k.gpu_type = board_records.gpu_type
        UNION ALL
        SELECT r.id, s.id, s.submission_time, r.score, s.user_id FROM leaderboard.runs r
        JOIN leaderboard.submission s ON s.id = r.submission_id
        WHERE r.id > (SELECT m.run_id FROM runner.score_mark m) AND NOT r.secret AND r.score IS NOT NULL AND r.passed
          AND r.runner = board_records.gpu_type AND s.leaderboard_id = board_records.board_id
          AND (SELECT count(*) FROM runner.score k WHERE k.run_id = r.id) = 0
        ORDER BY submission_time, submission_id
    LOOP
        -- What no clock measures is no record. A condition with a subquery would be a query for every row.
        CONTINUE WHEN v_row.score >= v_best OR v_row.score <= 1e-12;
        IF EXISTS (SELECT FROM runner.counting_score o WHERE o.run_id = v_row.run_id) THEN
            v_records := v_records || jsonb_build_object(
                'submission_id', v_row.submission_id, 'submission_time', v_row.submission_time, 'user_id',
                v_row.user_id,
                'score', v_row.score, 'before', nullif(v_best, 1e12));
            v_best := v_row.score;
        END IF;
    END LOOP;
    RETURN QUERY
    SELECT (n.item ->> 'submission_id')::integer, (n.item ->> 'submission_time')::timestamptz, n.item ->> 'user_id',
           (SELECT u.user_name FROM leaderboard.user_info u WHERE u.id = n.item ->> 'user_id'),
           (n.item ->> 'score')::float8, (n.item ->> 'before')::float8
    FROM unnest(v_records) WITH ORDINALITY AS n (item, place)
    ORDER BY n.place DESC LIMIT board_records.at_most;
END
$$;
