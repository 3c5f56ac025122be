-- Takes jobs back whose lease has expired. Cancels jobs that no host has begun by the time that their submission gave.
CREATE OR REPLACE FUNCTION runner.reclaim(max_reclaims integer, at_most integer DEFAULT 100)
RETURNS TABLE (job_id bigint, submission_id integer, gpu_type text, secret boolean, state text, submission_done boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_expired record;
    v_job record;
    -- The jobs are other hosts'. No daemon ends them sooner than this release's daemons do.
    v_max_reclaims integer := CASE WHEN runner.is_owner() THEN reclaim.max_reclaims
                                   ELSE greatest(reclaim.max_reclaims, 5) END;
BEGIN
    FOR v_expired IN
        SELECT e.id, e.submission_id
        FROM (SELECT j.id, j.submission_id FROM runner.job j
              WHERE j.lease_expires_at < now()
              ORDER BY j.lease_expires_at LIMIT reclaim.at_most) AS e
        ORDER BY e.submission_id, e.id
    LOOP
        PERFORM FROM leaderboard.submission s WHERE s.id = v_expired.submission_id FOR NO KEY UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        SELECT j.* INTO v_job FROM runner.job j WHERE j.id = v_expired.id FOR NO KEY UPDATE SKIP LOCKED;
        -- Skipped if the job was renewed, claimed anew or ended meanwhile.
        CONTINUE WHEN (v_job.lease_expires_at < now()) IS NOT TRUE;
        SELECT b.state, b.submission_done INTO state, submission_done
        FROM runner.take_back(
            v_job.id, format('host %s did not renew its lease', v_job.lease_owner), v_max_reclaims) AS b;
        job_id := v_job.id;
        submission_id := v_job.submission_id;
        gpu_type := v_job.gpu_type;
        secret := v_job.secret;
        RETURN NEXT;
    END LOOP;

    FOR v_expired IN
        SELECT e.id, e.submission_id
        FROM (SELECT j.id, j.submission_id FROM runner.job j
              WHERE j.expires_at < now() ORDER BY j.expires_at LIMIT reclaim.at_most) AS e
        ORDER BY e.submission_id, e.id
    LOOP
        PERFORM FROM leaderboard.submission s WHERE s.id = v_expired.submission_id FOR NO KEY UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        SELECT j.* INTO v_job FROM runner.job j WHERE j.id = v_expired.id FOR NO KEY UPDATE SKIP LOCKED;
        CONTINUE WHEN (v_job.expires_at < now()) IS NOT TRUE;
        state := 'cancelled';
        UPDATE runner.job j
        SET state = reclaim.state, finished_at = now(), expires_at = NULL,
            error = format('no host began it by %s UTC', to_char(v_job.expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS'))
        WHERE j.id = v_job.id;
        submission_done := runner.after_attempt(v_job.submission_id, true);
        job_id := v_job.id;
        submission_id := v_job.submission_id;
        gpu_type := v_job.gpu_type;
        secret := v_job.secret;
        RETURN NEXT;
    END LOOP;
END
$$;
