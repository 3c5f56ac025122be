-- Finishes submissions that have no open job and are not done. Copies scores of other programs for the ranking. Deletes
-- what is old, at most `at_most` rows of each kind: artifacts past their time, evidence and events older than `keep`,
-- which is a day at least, hosts that are gone for a week, shares that their clock has passed, and idempotency keys
-- after 30 days. By outcome, after `keep`: the reports of jobs that were not accepted or do not count any more, and
-- results that were replaced. Of a job its row, verdict and causes stay. Batches that were kept long enough. Last,
-- submitted files without a submission. One caller works at a time; others get zeros. SECURITY DEFINER: a daemon's role
-- needs no right to delete these.
CREATE OR REPLACE FUNCTION runner.reap(
    keep interval, at_most integer,
    OUT artifacts integer, OUT stale_results integer, OUT events integer, OUT hosts integer, OUT shares integer,
    OUT settled integer, OUT reports integer, OUT superseded integer, OUT code integer, OUT keys integer,
    OUT scores integer, OUT batches integer
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_newest bigint;
    v_ids integer[];
    v_from integer;
BEGIN
    -- Compared by what it takes off now, too: '-1200 mons 36001 days' is a day by comparison and lies in the future. An
    -- hour less, since a day may have 23.
    IF keep IS NULL OR keep < interval '1 day' OR now() - keep > now() - interval '23 hours' THEN
        PERFORM runner.refuse('KR025', format('evidence and events are kept for %s, expected a day at least', keep),
            'Ask for a longer time.');
    END IF;
    artifacts := 0; stale_results := 0; events := 0; hosts := 0; shares := 0; settled := 0;
    reports := 0; superseded := 0; code := 0; keys := 0; scores := 0; batches := 0;
    -- This also frees what all listeners have read: otherwise a queue of notifications that was full stays full.
    PERFORM pg_notification_queue_usage();
    -- A row and no advisory lock, which any login could hold. Ends with the transaction.
    PERFORM FROM runner.applied FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;

    -- A file may have 64 MiB, which is 32,000 rows to delete: at most 256 MiB at once, but always one.
    DELETE FROM runner.artifact a USING (
        SELECT e.id FROM (
            SELECT d.id, sum(octet_length(d.data)) OVER w - octet_length(d.data) AS bytes_before
            FROM (SELECT x.id, x.expires_at, x.data FROM runner.artifact x
                  WHERE x.expires_at <= now() ORDER BY x.expires_at LIMIT at_most) AS d
            WINDOW w AS (ORDER BY d.expires_at, d.id)
        ) AS e WHERE e.bytes_before < 268435456
    ) AS due WHERE a.id = due.id;
    GET DIAGNOSTICS artifacts = ROW_COUNT;

    DELETE FROM runner.stale_result r WHERE r.id IN (
        SELECT x.id FROM runner.stale_result x WHERE x.received_at < now() - keep ORDER BY x.received_at LIMIT at_most);
    GET DIAGNOSTICS stale_results = ROW_COUNT;

    DELETE FROM runner.event e WHERE e.id IN (
        SELECT x.id FROM runner.event x WHERE x.at < now() - keep ORDER BY x.at LIMIT at_most);
    GET DIAGNOSTICS events = ROW_COUNT;

    DELETE FROM runner.idempotency i USING (
        SELECT x.user_id, x.key FROM runner.idempotency x
        WHERE x.created_at < now() - interval '30 days' ORDER BY x.created_at LIMIT at_most FOR UPDATE SKIP LOCKED
    ) AS old
    WHERE i.user_id = old.user_id AND i.key = old.key;
    GET DIAGNOSTICS keys = ROW_COUNT;

    UPDATE runner.job j SET report = NULL FROM (
        SELECT x.id FROM runner.job x
        WHERE x.report IS NOT NULL AND (x.verdict <> 'accepted' OR x.retired_at IS NOT NULL OR x.state = 'cancelled')
          AND x.finished_at < now() - keep
        ORDER BY x.finished_at LIMIT at_most FOR NO KEY UPDATE SKIP LOCKED
    ) AS old
    WHERE j.id = old.id;
    GET DIAGNOSTICS reports = ROW_COUNT;

    DELETE FROM runner.superseded_run r USING (
        SELECT x.run_id FROM runner.superseded_run x
        WHERE x.superseded_at < now() - keep ORDER BY x.superseded_at LIMIT at_most FOR UPDATE SKIP LOCKED
    ) AS old
    WHERE r.run_id = old.run_id;
    GET DIAGNOSTICS superseded = ROW_COUNT;

    -- Each call looks at the next files, at the first again after the last. The newest are left alone: a frontend may
    -- store a submission in a transaction after that of its file.
    SELECT s.code_from INTO v_from FROM runner.sweep s ORDER BY s.seq DESC LIMIT 1;
    SELECT array_agg(c.id ORDER BY c.id) INTO v_ids FROM (
        SELECT o.id FROM leaderboard.code_files o
        WHERE o.id > v_from AND o.id < (SELECT max(m.id) - 100 FROM leaderboard.code_files m)
        ORDER BY o.id LIMIT at_most
    ) AS c;
    UPDATE runner.sweep t SET seq = t.seq + 1, code_from = coalesce(v_ids[cardinality(v_ids)], 0)
    FROM (SELECT s.seq FROM runner.sweep s ORDER BY s.seq DESC LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) AS free
    WHERE t.seq = free.seq AND t.code_from <> coalesce(v_ids[cardinality(v_ids)], 0);
    code := runner.remove_code(v_ids);

    -- A draining host stays: it must not come back serving because it was away.
    DELETE FROM runner.host h WHERE h.name IN (
        SELECT x.name FROM runner.host x
        WHERE NOT x.draining AND greatest(x.last_seen, x.stopped_at) < now() - interval '7 days'
          AND NOT EXISTS (SELECT FROM runner.job j WHERE j.lease_expires_at IS NOT NULL AND j.lease_owner = x.name)
        LIMIT at_most FOR NO KEY UPDATE SKIP LOCKED);
    GET DIAGNOSTICS hosts = ROW_COUNT;
    DELETE FROM runner.lease l USING (
        SELECT x.host FROM runner.lease x WHERE x.job_ids = '{}' AND x.expires_at < now() - interval '7 days'
        LIMIT at_most FOR UPDATE SKIP LOCKED
    ) AS old
    WHERE l.host = old.host;

    -- Locked before it is checked again, because another transaction may be taking a turn by it.
    DELETE FROM runner.share s USING (
        SELECT x.user_id, x.gpu_type, x.priority
        FROM runner.share x JOIN runner.clock c ON c.gpu_type = x.gpu_type AND c.priority = x.priority
        WHERE x.next_turn <= c.turn
        LIMIT at_most FOR NO KEY UPDATE OF x SKIP LOCKED
    ) AS due
    WHERE s.user_id = due.user_id AND s.gpu_type = due.gpu_type AND s.priority = due.priority;
    GET DIAGNOSTICS shares = ROW_COUNT;

    IF runner.keep_scores(at_most) THEN
        scores := at_most;
    END IF;
    batches := runner.reap_batches(at_most);

    -- A job in no host's lease has one of its own, even if an administrator has removed the host's.
    UPDATE runner.job j SET lease_expires_at = now() + interval '1 minute' FROM (
        SELECT x.id FROM runner.job x
        WHERE x.lease_expires_at = 'infinity'
          AND NOT EXISTS (SELECT FROM runner.lease l WHERE l.host = x.lease_owner AND x.id = ANY (l.job_ids))
        LIMIT at_most FOR NO KEY UPDATE SKIP LOCKED
    ) AS stray
    WHERE j.id = stray.id;

    -- What another program or an administrator left without an open job. Each daemon does this about once an hour, so
    -- the newest jobs are enough.
    SELECT q.last_value INTO v_newest FROM runner.job_id_seq q;
    SELECT array_agg(s.id) INTO v_ids
    FROM (
        SELECT o.id FROM leaderboard.submission o
        WHERE NOT coalesce(o.done, false)
          AND o.id = ANY (ARRAY(SELECT j.submission_id FROM runner.job j
                                WHERE j.id > v_newest - 50000 AND j.state IN ('done', 'cancelled')))
          AND NOT EXISTS (SELECT FROM runner.job j WHERE j.submission_id = o.id AND j.state IN ('queued', 'running'))
        ORDER BY o.id LIMIT at_most FOR NO KEY UPDATE SKIP LOCKED
    ) AS s;
    -- Under the locks it looks again at the jobs.
    settled := coalesce(cardinality(runner.settle_all(v_ids)), 0);
END
$$;
