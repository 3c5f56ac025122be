-- How far a validation sweep of runner.validate is. It is over with its last job, which may have gone with its
-- submission. NULLs: there is no such sweep.
CREATE OR REPLACE FUNCTION runner.validation_progress(
    sweep_id bigint, OUT status text, OUT jobs integer, OUT finished integer
)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    IF to_regclass('leaderboard.validation_sweep') IS NULL THEN
        RETURN;
    END IF;
    SELECT CASE WHEN w.status = 'running' AND n.finished = n.jobs THEN 'completed' ELSE w.status END, n.jobs, n.finished
    INTO status, jobs, finished
    FROM leaderboard.validation_sweep w
    CROSS JOIN LATERAL (
        SELECT count(*)::integer AS jobs, (count(*) FILTER (WHERE j.finished_at IS NOT NULL))::integer AS finished
        FROM runner.job j WHERE j.sweep_id = w.id
    ) AS n
    WHERE w.id = validation_progress.sweep_id;
END
$$;
