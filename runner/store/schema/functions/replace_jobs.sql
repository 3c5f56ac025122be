-- Retires the jobs that finished reruns of a submission replace. Reruns that ended without a result are retired
-- themselves. The caller holds the lock on the submission's row.
CREATE OR REPLACE FUNCTION runner.replace_jobs(submission_id integer) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_jobs bigint[];
    v_reasons text[];
BEGIN
    SELECT array_agg(j.id), array_agg(CASE j.state WHEN 'cancelled' THEN 'cancelled' ELSE 'ended without a result' END
                                      || ', so the earlier result stands')
    INTO v_jobs, v_reasons
    -- OFFSET, here and below, makes the submission's index the only way to the jobs, as in settle_all.
    FROM (SELECT o.* FROM runner.job o WHERE o.submission_id = replace_jobs.submission_id OFFSET 0) AS j
    WHERE j.replaces IS NOT NULL AND j.retired_at IS NULL
      AND (j.state = 'cancelled' OR j.verdict = 'internal_error');
    IF v_jobs IS NOT NULL THEN
        PERFORM runner.retire(v_jobs, 'dropped', v_reasons);
    END IF;

    -- Every earlier job of the key, not only the one named by `replaces`: that may have been dropped itself.
    SELECT array_agg(o.id), array_agg(o.reason) INTO v_jobs, v_reasons
    FROM (
        SELECT DISTINCT ON (b.id) b.id, concat(format('replaced by job %s', a.id), ': ' || (
                   SELECT max(e.detail ->> 'reason') FROM runner.event e WHERE e.job_id = a.id AND e.kind = 'rerun'
               )) AS reason
        FROM (SELECT o.* FROM runner.job o WHERE o.submission_id = replace_jobs.submission_id OFFSET 0) AS a
        JOIN (SELECT o.* FROM runner.job o WHERE o.submission_id = replace_jobs.submission_id OFFSET 0) AS b
          ON b.gpu_type = a.gpu_type AND b.mode = a.mode AND b.secret = a.secret AND b.id < a.id
        WHERE a.replaces IS NOT NULL AND a.retired_at IS NULL AND a.state = 'done'
          AND b.state IN ('done', 'cancelled') AND (b.retired_at IS NULL OR b.retired_as = 'invalidated')
        ORDER BY b.id, a.id DESC
    ) AS o;
    IF v_jobs IS NOT NULL THEN
        PERFORM runner.retire(v_jobs, 'replaced', v_reasons);
        INSERT INTO runner.event (kind, submission_id, job_id, attempt, host, detail)
        SELECT 'superseded', j.submission_id, j.id, j.attempt, j.host,
               jsonb_build_object('verdict', j.verdict, 'reason', w.reason)
        FROM unnest(v_jobs, v_reasons) AS w (job_id, reason) JOIN runner.job j ON j.id = w.job_id
        ORDER BY j.id;
    END IF;
END
$$;
