-- Takes jobs back whose own lease has expired, and those of hosts whose lease has. Cancels jobs that no host has begun
-- by the time that their submission gave. Lets jobs into the queue whose start time has come, unless their leaderboard
-- is paused; they take their turns now. Every two minutes it looks at all leases, else at those that ended lately,
-- moves the floors, and lets in what is held back for no reason any more.
--
-- The floor of a class is where claims begin. It follows the clock by two to four minutes, but does not pass a job that
-- waits: a transaction that takes that long to store a job may store it behind the floor, which then goes back to it.
CREATE OR REPLACE FUNCTION runner.reclaim(at_most integer DEFAULT 100)
RETURNS TABLE (job_id bigint, submission_id integer, gpu_type text, secret boolean, state text, submission_done boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_expired record;
    v_job record;
    v_host record;
    v_sweeps boolean;
    v_reason text;
BEGIN
    UPDATE runner.sweep t SET seq = t.seq + 1, swept_at = now()
    FROM (SELECT s.seq FROM runner.sweep s WHERE s.swept_at NOT BETWEEN now() - interval '2 minutes' AND now()
          FOR NO KEY UPDATE SKIP LOCKED) AS due
    WHERE t.seq = due.seq;
    v_sweeps := FOUND;
    FOR v_host IN
        SELECT l.host, l.job_ids FROM runner.lease l WHERE l.expires_at < now() AND l.job_ids <> '{}'
        ORDER BY l.host LIMIT reclaim.at_most FOR NO KEY UPDATE SKIP LOCKED
    LOOP
        -- Their own leases end now, so what follows takes them. One that another transaction is writing is for later.
        UPDATE runner.job j SET lease_expires_at = now() - interval '1 microsecond'
        FROM unnest(v_host.job_ids) AS h (id)
        CROSS JOIN LATERAL (
            SELECT o.state, o.lease_owner, o.lease_expires_at FROM runner.job o WHERE o.id = h.id
            FOR NO KEY UPDATE SKIP LOCKED
        ) AS o
        WHERE j.id = h.id AND j.id = ANY (v_host.job_ids)
          AND o.state = 'running' AND o.lease_owner = v_host.host AND o.lease_expires_at = 'infinity';
        UPDATE runner.lease l SET job_ids = ARRAY(
            SELECT o.id FROM unnest(v_host.job_ids) AS h (id)
            CROSS JOIN LATERAL (SELECT * FROM runner.job j WHERE j.id = h.id OFFSET 0) AS o
            WHERE o.state = 'running' AND o.lease_owner = v_host.host AND o.lease_expires_at = 'infinity' ORDER BY o.id)
        WHERE l.host = v_host.host;
    END LOOP;

    FOR v_expired IN
        SELECT e.id, e.submission_id FROM (
            (SELECT j.id, j.submission_id FROM runner.job j
             WHERE j.lease_expires_at < now()
               AND j.lease_expires_at >= CASE WHEN v_sweeps THEN '-infinity' ELSE now() - interval '2 minutes' END
             ORDER BY j.lease_expires_at LIMIT reclaim.at_most)
            UNION ALL
            (SELECT j.id, j.submission_id FROM runner.job j
             WHERE j.expires_at < now() ORDER BY j.expires_at LIMIT reclaim.at_most)
        ) AS e
        ORDER BY e.submission_id, e.id
    LOOP
        PERFORM FROM leaderboard.submission s WHERE s.id = v_expired.submission_id FOR NO KEY UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND AND v_expired.submission_id IS NOT NULL;
        CONTINUE WHEN NOT runner.hold_batch(v_expired.id, false);
        SELECT j.* INTO v_job FROM runner.job j WHERE j.id = v_expired.id FOR NO KEY UPDATE SKIP LOCKED;
        -- Skipped if the job was renewed, claimed anew or ended meanwhile.
        IF v_job.lease_expires_at < now() THEN
            SELECT b.state, b.submission_done INTO state, submission_done
            FROM runner.take_back(
                v_job.id, format('host %s did not renew its lease', v_job.lease_owner)) AS b;
        ELSIF v_job.expires_at < now() THEN
            state := 'cancelled';
            v_reason := format('no host began it by %s UTC',
                               to_char(v_job.expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS'));
            submission_done := runner.leave(v_job.id, state, NULL, v_reason, cancelled => v_reason);
        ELSE
            CONTINUE;
        END IF;
        job_id := v_job.id;
        submission_id := v_job.submission_id;
        gpu_type := v_job.gpu_type;
        secret := v_job.secret;
        RETURN NEXT;
    END LOOP;

    FOR v_expired IN
        SELECT j.id FROM runner.job j
        WHERE j.not_before <= now() AND j.state = 'queued' AND NOT j.ready
        ORDER BY j.not_before LIMIT reclaim.at_most FOR NO KEY UPDATE SKIP LOCKED
    LOOP
        UPDATE runner.job j SET ready = true WHERE j.id = v_expired.id;
        PERFORM runner.queue_again(v_expired.id);
    END LOOP;

    IF v_sweeps THEN
        PERFORM runner.move_floors();
        PERFORM runner.let_in();
        -- Finals whose last job went with its submission, or whose host is away.
        PERFORM runner.advance_finals(ARRAY(SELECT f.id FROM runner.final_sweep f WHERE f.status = 'running'));
        IF to_regclass('leaderboard.validation_sweep') IS NOT NULL THEN
            -- Sweeps whose last jobs went with their submissions. KernelBot's own have no jobs here, and are over in a
            -- day.
            PERFORM runner.advance_sweeps(ARRAY(
                SELECT w.id FROM leaderboard.validation_sweep w
                WHERE w.status = 'running' AND (EXISTS (SELECT FROM runner.job j WHERE j.sweep_id = w.id)
                                                OR w.started_at < now() - interval '1 day')));
        END IF;
    END IF;
END
$$;
