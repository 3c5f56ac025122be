-- The public scores of other programs after runner.score_mark, which runner.score may not have yet; few. A function,
-- so that no plan takes them for a third of all runs. From the runs to their submissions: the other way is all
-- submissions of a leaderboard.
CREATE OR REPLACE FUNCTION runner.late_scores() RETURNS SETOF runner.score
LANGUAGE plpgsql STABLE ROWS 10 SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY
    SELECT r.id, s.leaderboard_id, r.runner, s.user_id, r.score, s.submission_time, s.id
    FROM (SELECT o.* FROM leaderboard.runs o
          WHERE o.id > (SELECT m.run_id FROM runner.score_mark m) AND NOT o.secret AND o.score IS NOT NULL AND o.passed
            AND (SELECT count(*) FROM runner.score k WHERE k.run_id = o.id) = 0
          OFFSET 0) AS r
    CROSS JOIN LATERAL (SELECT * FROM leaderboard.submission o WHERE o.id = r.submission_id OFFSET 0) AS s;
END
$$;
