-- Scores of a leaderboard on a GPU type that count, each with its time, in seconds: what its progression is drawn from.
-- The `at_most` newest are looked at.
CREATE OR REPLACE FUNCTION runner.board_scores(board_id integer, gpu_type text, at_most integer)
RETURNS TABLE (submission_time timestamptz, score double precision, user_id text, user_name text, submission_id integer)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT v.submission_time, v.score::float8, v.user_id, u.user_name, v.submission_id
    FROM (
        (SELECT k.run_id FROM runner.score k
         WHERE k.leaderboard_id = board_scores.board_id AND k.gpu_type = board_scores.gpu_type
         ORDER BY k.submission_time DESC, k.submission_id DESC LIMIT board_scores.at_most)
        UNION ALL
        SELECT k.run_id FROM runner.late_scores() k
        WHERE k.leaderboard_id = board_scores.board_id AND k.gpu_type = board_scores.gpu_type
    ) AS n
    CROSS JOIN LATERAL (SELECT * FROM runner.counting_score o WHERE o.run_id = n.run_id OFFSET 0) AS v
    CROSS JOIN LATERAL (SELECT o.user_name FROM leaderboard.user_info o WHERE o.id = v.user_id OFFSET 0) AS u
    ORDER BY v.submission_time DESC, v.submission_id DESC LIMIT board_scores.at_most;
END
$$;
