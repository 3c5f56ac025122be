-- What the validations of the tasks' present versions said: of a leaderboard, of a submission, or of a sweep. SECURITY
-- DEFINER: a frontend's role needs no right on KernelBot's tables, which an older database does not have.
CREATE OR REPLACE FUNCTION runner.validations(
    leaderboard text DEFAULT NULL, submission bigint DEFAULT NULL, sweep_id bigint DEFAULT NULL
) RETURNS TABLE (
    submission_id integer, gpu_type text, contract_version text, status text, passed_shapes integer,
    total_shapes integer, fully_validated boolean, geomean_sync_wall_speedup double precision, error text,
    checked_at timestamptz
)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    IF to_regclass('leaderboard.submission_validation') IS NULL THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT v.submission_id, v.gpu_type, v.contract_version, v.status, v.passed_shapes, v.total_shapes,
           v.fully_validated,
           v.geomean_sync_wall_speedup, v.error, v.checked_at
    FROM (
        SELECT o.* FROM leaderboard.submission_validation o WHERE o.submission_id = validations.submission
        UNION ALL
        SELECT o.* FROM runner.job j
        JOIN leaderboard.submission_validation o ON o.submission_id = j.validates AND o.gpu_type = j.gpu_type
        WHERE j.sweep_id = validations.sweep_id
        UNION ALL
        -- From the results, of which there are few: a leaderboard may have a hundred thousand submissions.
        SELECT o.* FROM leaderboard.submission_validation o
        CROSS JOIN LATERAL (
            SELECT i.leaderboard_id FROM leaderboard.submission i WHERE i.id = o.submission_id OFFSET 0
        ) AS i
        WHERE validations.leaderboard IS NOT NULL AND i.leaderboard_id = (
            SELECT b.id FROM leaderboard.leaderboard b WHERE b.name = validations.leaderboard)
    ) AS v
    JOIN leaderboard.submission s ON s.id = v.submission_id
    JOIN leaderboard.leaderboard l ON l.id = s.leaderboard_id
    WHERE v.contract_version = l.task -> 'validation' ->> 'version'
    ORDER BY v.submission_id, v.gpu_type;
END
$$;
