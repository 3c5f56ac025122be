-- Shows submissions as running and alive to readers of KernelBot's table, once a minute each. A row that another
-- transaction is writing is passed over; the next heartbeat makes up for it.
CREATE OR REPLACE FUNCTION runner.show_running(submission_ids integer[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE leaderboard.submission_job_status t SET status = 'running', last_heartbeat = now()
    FROM unnest(show_running.submission_ids) AS u (id)
    CROSS JOIN LATERAL (
        SELECT k.id FROM leaderboard.submission_job_status k
        WHERE k.submission_id = u.id AND k.status IN ('pending', 'running')
          AND (k.status = 'pending' OR k.last_heartbeat IS NULL
               OR k.last_heartbeat NOT BETWEEN now() - interval '1 minute' AND now())
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS live
    WHERE t.id = live.id AND t.submission_id = ANY (show_running.submission_ids);
END
$$;
