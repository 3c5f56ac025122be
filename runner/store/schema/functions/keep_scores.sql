-- Copies public scores of leaderboard.runs that runner.score has not yet, `at_most` of them, and moves
-- runner.score_mark. True: there are more. Results of ours are copied with their commit; these are other programs'. A
-- row becomes visible only when its transaction ends, so the mark moves to what was the newest row an hour ago.
CREATE OR REPLACE FUNCTION runner.keep_scores(at_most integer) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_mark record;
    v_until bigint;
BEGIN
    SELECT m.run_id, m.next_id, m.noted_at INTO v_mark FROM runner.score_mark m FOR NO KEY UPDATE SKIP LOCKED;
    IF v_mark.noted_at > now() - interval '1 hour' OR v_mark.noted_at IS NULL THEN
        -- A clock that was put back: how long ago that was is not known, but from now on it is.
        UPDATE runner.score_mark m SET noted_at = now() WHERE m.noted_at > now();
        RETURN false;
    END IF;
    SELECT max(f.id) INTO v_until
    FROM (SELECT r.id FROM leaderboard.runs r
          WHERE r.id > v_mark.run_id AND r.id <= v_mark.next_id AND NOT r.secret AND r.score IS NOT NULL AND r.passed
          ORDER BY r.id LIMIT keep_scores.at_most) AS f;
    IF v_until IS NULL THEN
        UPDATE runner.score_mark m
        SET run_id = m.next_id, next_id = greatest(m.next_id, (SELECT max(r.id) FROM leaderboard.runs r)),
            noted_at = now();
        RETURN false;
    END IF;
    INSERT INTO runner.score (run_id, leaderboard_id, gpu_type, user_id, score, submission_time, submission_id)
    SELECT r.id, s.leaderboard_id, r.runner, s.user_id, r.score, s.submission_time, s.id
    FROM (SELECT o.* FROM leaderboard.runs o
          WHERE o.id > v_mark.run_id AND o.id <= v_until AND NOT o.secret AND o.score IS NOT NULL AND o.passed
          OFFSET 0) AS r
    CROSS JOIN LATERAL (SELECT * FROM leaderboard.submission o WHERE o.id = r.submission_id OFFSET 0) AS s
    ON CONFLICT (run_id) DO NOTHING;
    UPDATE runner.score_mark m SET run_id = v_until;
    RETURN true;
END
$$;
