-- Takes back the jobs that run in a host's name, except those that the host names. Does nothing if another daemon or
-- another login owns the name. Returns what became of each job, as runner.reclaim does. `died`: the process that ran
-- them has, perhaps because of them, and each counts like a lost lease. Else a claim was not answered. That costs a job
-- nothing at first, since a line may break; after runner.retry.max_unanswered_claims it counts like a lost lease, since
-- the job itself may be too large for the line. A job that another transaction holds is left to its lease.
CREATE OR REPLACE FUNCTION runner.recover(
    host text, ids bigint[], attempts integer[], died boolean, instance text DEFAULT NULL
) RETURNS TABLE (job_id bigint, submission_id integer, gpu_type text, secret boolean, state text,
                 submission_done boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_job record;
BEGIN
    IF NOT runner.is_ours(recover.host, recover.instance) THEN
        RETURN;
    END IF;
    FOR v_job IN
        SELECT j.id, j.submission_id, j.attempt, j.gpu_type, j.secret, j.unanswered FROM runner.job j
        WHERE j.lease_expires_at IS NOT NULL AND j.lease_owner = recover.host
          AND NOT EXISTS (SELECT FROM unnest(recover.ids, recover.attempts) AS k (id, attempt)
                          WHERE k.id = j.id AND k.attempt = j.attempt)
        ORDER BY j.submission_id, j.id
    LOOP
        PERFORM FROM leaderboard.submission s WHERE s.id = v_job.submission_id FOR NO KEY UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND AND v_job.submission_id IS NOT NULL;
        CONTINUE WHEN NOT runner.hold_batch(v_job.id, false);
        IF NOT recover.died AND v_job.unanswered < (SELECT t.max_unanswered_claims FROM runner.retry t) THEN
            SELECT r.state, r.submission_done INTO state, submission_done FROM runner.release(
                v_job.id, v_job.attempt, v_job.submission_id, format('host %s knew nothing of it', recover.host)) AS r;
            CONTINUE WHEN state IS NULL;
            UPDATE runner.job j SET unanswered = j.unanswered + 1 WHERE j.id = v_job.id;
        ELSE
            PERFORM FROM runner.job j
            WHERE j.id = v_job.id AND j.attempt = v_job.attempt AND j.lease_owner = recover.host FOR NO KEY UPDATE;
            CONTINUE WHEN NOT FOUND;
            SELECT b.state, b.submission_done INTO state, submission_done FROM runner.take_back(
                v_job.id,
                format(CASE WHEN recover.died THEN 'host %s was started again' ELSE 'host %s knew nothing of it' END,
                       recover.host)) AS b;
        END IF;
        job_id := v_job.id;
        submission_id := v_job.submission_id;
        gpu_type := v_job.gpu_type;
        secret := v_job.secret;
        RETURN NEXT;
    END LOOP;
END
$$;
