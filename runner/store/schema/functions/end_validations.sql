-- Writes what came of the jobs among these that validate and have ended, and lets the next ones of their sweeps in. The
-- version is that of the script that ran, and the error is what anybody may read: the job's own may hold words of the
-- submission's process. A fault of ours does not replace an earlier result. A cancelled job leaves nothing. The caller
-- holds the locks on submissions and jobs.
CREATE OR REPLACE FUNCTION runner.end_validations(job_ids bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_sweep_ids bigint[];
BEGIN
    SELECT array_agg(DISTINCT j.sweep_id) INTO v_sweep_ids
    FROM unnest(end_validations.job_ids) AS u (id)
    CROSS JOIN LATERAL (SELECT o.sweep_id FROM runner.job o WHERE o.id = u.id OFFSET 0) AS j
    WHERE j.sweep_id IS NOT NULL;
    IF v_sweep_ids IS NULL THEN
        RETURN;
    END IF;
    INSERT INTO leaderboard.submission_validation AS v (
        submission_id, gpu_type, contract_version, status, passed_shapes, total_shapes, fully_validated,
        geomean_sync_wall_speedup, result, error)
    SELECT j.validates, j.gpu_type, coalesce(j.said ->> 'contract_version', w.contract_version),
           CASE j.verdict WHEN 'accepted' THEN 'completed' ELSE 'failed' END,
           coalesce((j.said ->> 'passed_shapes')::integer, 0), coalesce((j.said ->> 'total_shapes')::integer, 0),
           coalesce((j.said ->> 'fully_validated')::boolean, false),
           (j.said ->> 'geomean_sync_wall_speedup')::double precision,
           coalesce(j.said -> 'result', jsonb_build_object('verdict', j.verdict)), coalesce(j.said ->> 'error', j.error)
    FROM unnest(end_validations.job_ids) AS u (id)
    CROSS JOIN LATERAL (SELECT o.*, o.report -> 'validation' AS said FROM runner.job o WHERE o.id = u.id OFFSET 0) AS j
    JOIN leaderboard.validation_sweep w ON w.id = j.sweep_id
    WHERE j.state = 'done'
    ORDER BY j.id
    ON CONFLICT (submission_id, gpu_type, contract_version) DO UPDATE
    SET status = EXCLUDED.status, passed_shapes = EXCLUDED.passed_shapes, total_shapes = EXCLUDED.total_shapes,
        fully_validated = EXCLUDED.fully_validated, geomean_sync_wall_speedup = EXCLUDED.geomean_sync_wall_speedup,
        result = EXCLUDED.result, error = EXCLUDED.error, checked_at = now()
    WHERE EXCLUDED.status = 'completed' OR EXCLUDED.result ->> 'verdict' <> 'internal_error';
    PERFORM runner.advance_sweeps(v_sweep_ids);
END
$$;
