-- Sets what a leaderboard demands; NULL leaves a setting as it is. `timing` applies to the public scores that are
-- there and to those of runs in flight: a score below it moves to system_info.runner.unranked of its row, and back when
-- the demand is milder. `tolerance` applies to runs that are claimed from now on. Returns how many rows changed.
CREATE OR REPLACE FUNCTION runner.set_demand(
    leaderboard text, timing text DEFAULT NULL, tolerance double precision DEFAULT NULL
) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_id integer;
    v_ranked text[];
    v_ids integer[];
    v_changed integer;
BEGIN
    IF set_demand.timing NOT IN ('claimed', 'measured', 'audited') THEN
        PERFORM runner.refuse('KR023', format('timing is %L, expected claimed, measured or audited', set_demand.timing),
            'claimed ranks every time, measured those that the judge''s clock vouches for, audited the closest.');
    END IF;
    IF NOT set_demand.tolerance BETWEEN 0.01 AND 0.5 THEN
        PERFORM runner.refuse('KR024', format('tolerance is %s, expected 0.01 to 0.5', set_demand.tolerance),
            'It is a part of the time: 0.1 is 10 %.');
    END IF;
    v_id := runner.hold_board(set_demand.leaderboard);
    INSERT INTO runner.board AS b (leaderboard_id, timing, tolerance)
    VALUES (v_id, coalesce(set_demand.timing, 'claimed'), coalesce(set_demand.tolerance, 0.1))
    ON CONFLICT (leaderboard_id) DO UPDATE
    SET timing = coalesce(set_demand.timing, b.timing), tolerance = coalesce(set_demand.tolerance, b.tolerance)
    RETURNING b.ranked INTO v_ranked;

    -- As everywhere, submissions are locked in order, before their rows. Those that are not done, too: then a result that
    -- is being committed is seen here, and a later one is committed as demanded now (runner.complete).
    SELECT array_agg(o.id) INTO v_ids
    FROM (
        SELECT s.id FROM leaderboard.submission s WHERE s.leaderboard_id = v_id AND NOT coalesce(s.done, false)
        UNION
        SELECT s.id
        FROM leaderboard.submission s
        JOIN runner.job j ON j.submission_id = s.id
        JOIN runner.job_run x ON x.job_id = j.id
        JOIN leaderboard.runs r ON r.id = x.run_id
        WHERE s.leaderboard_id = v_id AND NOT r.secret
          AND (runner.as_demanded(v_ranked, r.score, r.system_info)).score IS DISTINCT FROM r.score
    ) AS o;
    PERFORM FROM leaderboard.submission s WHERE s.id = ANY (v_ids) ORDER BY s.id FOR NO KEY UPDATE;

    UPDATE leaderboard.runs r SET score = w.score, system_info = w.system_info
    FROM (
        SELECT o.id, d.score, d.system_info
        FROM runner.job j
        JOIN runner.job_run x ON x.job_id = j.id
        JOIN leaderboard.runs o ON o.id = x.run_id
        CROSS JOIN LATERAL runner.as_demanded(v_ranked, o.score, o.system_info) AS d
        WHERE j.submission_id = ANY (v_ids) AND NOT o.secret
    ) AS w
    WHERE r.id = w.id AND r.score IS DISTINCT FROM w.score;
    GET DIAGNOSTICS v_changed = ROW_COUNT;

    INSERT INTO runner.score (run_id, leaderboard_id, gpu_type, user_id, score, submission_time, submission_id)
    SELECT r.id, s.leaderboard_id, r.runner, s.user_id, r.score, s.submission_time, s.id
    FROM leaderboard.submission s
    JOIN runner.job j ON j.submission_id = s.id
    JOIN runner.job_run x ON x.job_id = j.id
    JOIN leaderboard.runs r ON r.id = x.run_id
    WHERE s.id = ANY (v_ids) AND NOT r.secret AND r.score IS NOT NULL AND r.passed
    ON CONFLICT (run_id) DO NOTHING;
    RETURN v_changed;
END
$$;
