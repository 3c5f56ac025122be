-- Adds the jobs of a submission, marks the submission as waiting and wakes the daemons, unless none can be idle. The
-- caller holds the lock on the submission's row. The secret job of a ranked submission waits for its public one
-- (runner.follow_public).
CREATE OR REPLACE FUNCTION runner.add_jobs(
    submission_id integer, mode text, gpu_types text[], priority integer, options jsonb
) RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_priority integer := coalesce(add_jobs.priority, 0);
    v_user_id text;
    v_ready boolean;
    v_added integer;
BEGIN
    PERFORM runner.check_priority(v_priority);
    SELECT s.user_id, b.paused IS NULL INTO STRICT v_user_id, v_ready FROM leaderboard.submission s
    LEFT JOIN runner.board b ON b.leaderboard_id = s.leaderboard_id WHERE s.id = add_jobs.submission_id;

    INSERT INTO runner.job (submission_id, user_id, gpu_type, mode, secret, options, priority, turn, after_public,
                            ready)
    SELECT add_jobs.submission_id, v_user_id, g.name, add_jobs.mode, s.secret, add_jobs.options, v_priority, g.turn,
           s.follows,
           v_ready AND NOT s.follows
    FROM (
        -- Shares are locked in the same order everywhere.
        SELECT w.name, w.number, runner.take_turns(v_user_id, w.name, v_priority) AS turn
        FROM unnest(add_jobs.gpu_types) WITH ORDINALITY AS w (name, number)
        ORDER BY w.name COLLATE "C"
    ) AS g
    CROSS JOIN LATERAL (
        SELECT k.secret, k.secret AND add_jobs.mode = 'leaderboard' AS follows
        FROM unnest(CASE add_jobs.mode
            WHEN 'leaderboard' THEN ARRAY[false, true]
            WHEN 'private' THEN ARRAY[true]
            ELSE ARRAY[false]
        END) AS k (secret)
    ) AS s
    ORDER BY g.number, s.secret;
    GET DIAGNOSTICS v_added = ROW_COUNT;

    INSERT INTO leaderboard.submission_job_status AS j (submission_id, status)
    VALUES (add_jobs.submission_id, 'pending')
    ON CONFLICT (submission_id) DO UPDATE SET status = 'pending' WHERE j.status IS DISTINCT FROM 'running';

    PERFORM runner.call('runner_queue', string_agg(w.name, ',' ORDER BY w.number))
    FROM unnest(add_jobs.gpu_types) WITH ORDINALITY AS w (name, number)
    WHERE NOT runner.is_busy(w.name, v_priority)
    HAVING count(*) > 0;
    RETURN v_added;
END
$$;
