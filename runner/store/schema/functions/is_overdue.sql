-- True if runner.reclaim has something to do. Leases of single jobs are looked at each time, from the mark in runner.sweep
-- on. Leases of hosts, ends and starts are looked at by one claim a second of all hosts. Part of runner.claim, with its
-- settings.
CREATE OR REPLACE FUNCTION runner.is_overdue() RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_sweep record;
BEGIN
    SELECT s.seq, s.looked_at NOT BETWEEN now() - interval '1 second' AND now() AS due,
           CASE WHEN s.lease_from <= now() THEN s.lease_from ELSE '-infinity' END AS lease_from
    INTO v_sweep FROM runner.sweep s ORDER BY s.seq DESC LIMIT 1;
    IF v_sweep.due THEN
        UPDATE runner.sweep t SET seq = t.seq + 1, looked_at = now()
        FROM (SELECT s.seq FROM runner.sweep s WHERE s.seq = v_sweep.seq FOR NO KEY UPDATE SKIP LOCKED) AS free
        WHERE t.seq = free.seq;
    END IF;
    RETURN EXISTS (SELECT FROM runner.job j
                   WHERE j.lease_expires_at < now() AND j.lease_expires_at >= v_sweep.lease_from)
        OR v_sweep.due AND (
            EXISTS (SELECT FROM runner.lease l WHERE l.expires_at < now() AND l.job_ids <> '{}')
            OR EXISTS (SELECT FROM runner.job j WHERE j.expires_at < now())
            OR EXISTS (SELECT FROM runner.job j WHERE j.not_before <= now() AND j.state = 'queued' AND NOT j.ready));
END
$$;
