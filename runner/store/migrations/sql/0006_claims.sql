-- Submissions get turns; completion, failure and reclaim as one call each.

-- Takes `count` consecutive turns for a user in a class (GPU type, priority) and returns the first of them: the virtual
-- time of the class, or where the user's own earlier submissions end, whichever is later. The one place with this rule.
CREATE FUNCTION runner.take_turns(user_id text, gpu_type text, priority integer, count integer DEFAULT 1) RETURNS bigint
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO runner.share AS s (user_id, gpu_type, priority, next_turn)
    SELECT take_turns.user_id, take_turns.gpu_type, take_turns.priority,
           take_turns.count + coalesce((SELECT c.turn FROM runner.clock c
                                        WHERE c.gpu_type = take_turns.gpu_type AND c.priority = take_turns.priority), 0)
    ON CONFLICT (user_id, gpu_type, priority) DO UPDATE
    SET next_turn = greatest(s.next_turn + take_turns.count, EXCLUDED.next_turn)
    RETURNING s.next_turn - take_turns.count
$$;

-- Adds the jobs, marks the submission as waiting and wakes the daemons. The caller holds the submission's row.
CREATE OR REPLACE FUNCTION runner.add_jobs(submission_id integer, mode text, gpu_types text[], priority integer)
RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    added integer;
    payload text := array_to_string(gpu_types, ',');
BEGIN
    INSERT INTO runner.job (submission_id, user_id, gpu_type, mode, secret, priority, turn)
    SELECT add_jobs.submission_id, g.user_id, g.name, add_jobs.mode, s.secret, coalesce(add_jobs.priority, 0), g.turn
    FROM (
        -- Shares are locked in one order everywhere.
        SELECT w.name, w.number, u.user_id,
               runner.take_turns(u.user_id, w.name, coalesce(add_jobs.priority, 0)) AS turn
        FROM leaderboard.submission u CROSS JOIN unnest(add_jobs.gpu_types) WITH ORDINALITY AS w (name, number)
        WHERE u.id = add_jobs.submission_id
        ORDER BY w.name COLLATE "C"
    ) AS g
    CROSS JOIN unnest(CASE add_jobs.mode
        WHEN 'leaderboard' THEN ARRAY[false, true]
        WHEN 'private' THEN ARRAY[true]
        ELSE ARRAY[false]
    END) AS s (secret)
    ORDER BY g.number, s.secret;
    GET DIAGNOSTICS added = ROW_COUNT;

    INSERT INTO leaderboard.submission_job_status AS j (submission_id, status)
    VALUES (add_jobs.submission_id, 'pending')
    ON CONFLICT (submission_id) DO UPDATE SET status = 'pending' WHERE j.status IS DISTINCT FROM 'running';

    -- A payload has at most 8000 bytes; an empty one wakes everybody.
    PERFORM pg_notify('runner_queue', CASE WHEN octet_length(payload) < 7900 THEN payload ELSE '' END);
    RETURN added;
END
$$;

REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA runner FROM PUBLIC;
