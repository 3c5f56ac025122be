-- True if runner.reclaim has something to do. One claim a second of all hosts looks; others get false. Leases that
-- ended long ago are left to the sweep of every two minutes: their index entries may be many. Part of runner.claim,
-- with its settings.
CREATE OR REPLACE FUNCTION runner.is_overdue() RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_sweep record;
BEGIN
    SELECT s.seq, s.looked_at, s.swept_at INTO v_sweep FROM runner.sweep s ORDER BY s.seq DESC LIMIT 1;
    IF v_sweep.looked_at BETWEEN now() - interval '1 second' AND now() THEN
        RETURN false;
    END IF;
    UPDATE runner.sweep t SET seq = t.seq + 1, looked_at = now()
    FROM (SELECT s.seq FROM runner.sweep s WHERE s.seq = v_sweep.seq FOR NO KEY UPDATE SKIP LOCKED) AS free
    WHERE t.seq = free.seq;
    RETURN v_sweep.swept_at NOT BETWEEN now() - interval '2 minutes' AND now()
        OR EXISTS (SELECT FROM runner.job j
                   WHERE j.lease_expires_at < now() AND j.lease_expires_at >= now() - interval '2 minutes')
        OR EXISTS (SELECT FROM runner.lease l WHERE l.expires_at < now() AND l.job_ids <> '{}')
        OR EXISTS (SELECT FROM runner.job j WHERE j.expires_at < now())
        OR EXISTS (SELECT FROM runner.job j WHERE j.not_before <= now() AND j.state = 'queued' AND NOT j.ready);
END
$$;
