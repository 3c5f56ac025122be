-- The best public score of a leaderboard and GPU type behind `after`, which is NULL for the first, that came before
-- `earlier_than` and is of none of these users; whether it counts is not asked. Each half has a LIMIT of its own, so it
-- reads score_best_idx in order; the first condition is the index's.
CREATE OR REPLACE FUNCTION runner.next_score(
    board_id integer, gpu_type text, after runner.score, earlier_than runner.score, not_of text[]
) RETURNS runner.score
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_score numeric := coalesce(after.score, '-Infinity');
    v_time timestamptz := coalesce(after.submission_time, '-infinity');
    v_id integer := coalesce(after.submission_id, 0);
    v_until timestamptz := coalesce(earlier_than.submission_time, 'infinity');
    v_until_id integer := coalesce(earlier_than.submission_id, 0);
    v_next runner.score;
BEGIN
    SELECT n.* INTO v_next
    FROM (
        (SELECT k.* FROM runner.score k
         WHERE k.run_id > 0 AND k.leaderboard_id = next_score.board_id AND k.gpu_type = next_score.gpu_type
           AND (k.score, k.submission_time, k.submission_id) > (v_score, v_time, v_id)
           AND (k.submission_time, k.submission_id) < (v_until, v_until_id) AND k.user_id <> ALL (next_score.not_of)
         ORDER BY k.score, k.submission_time, k.submission_id LIMIT 1)
        UNION ALL
        (SELECT k.* FROM runner.late_scores() k
         WHERE k.leaderboard_id = next_score.board_id AND k.gpu_type = next_score.gpu_type
           AND (k.score, k.submission_time, k.submission_id) > (v_score, v_time, v_id)
           AND (k.submission_time, k.submission_id) < (v_until, v_until_id) AND k.user_id <> ALL (next_score.not_of)
         ORDER BY k.score, k.submission_time, k.submission_id LIMIT 1)
    ) AS n
    ORDER BY n.score, n.submission_time, n.submission_id LIMIT 1;
    RETURN v_next;
END
$$;
