-- Makes the results of finished jobs count no more: marks the jobs and moves their rows of leaderboard.runs whole to
-- runner.superseded_run. The caller holds the locks on the submissions' rows.
CREATE OR REPLACE FUNCTION runner.retire(job_ids bigint[], retired_as text, reasons text[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    UPDATE runner.job j
    SET retired_at = coalesce(j.retired_at, now()), retired_as = retire.retired_as,
        retired_reason = concat_ws('; ', j.retired_reason, w.reason)
    FROM unnest(job_ids, reasons) AS w (job_id, reason)
    WHERE j.id = w.job_id;

    WITH moved AS (
        DELETE FROM leaderboard.runs r
        USING runner.job_run x, unnest(job_ids, reasons) AS w (job_id, reason)
        WHERE x.job_id = w.job_id AND r.id = x.run_id
        RETURNING r.id, r.submission_id, x.job_id, to_jsonb(r) AS run, w.reason
    )
    INSERT INTO runner.superseded_run (run_id, submission_id, job_id, run, reason)
    SELECT m.id, m.submission_id, m.job_id, m.run, m.reason FROM moved m;
END
$$;
