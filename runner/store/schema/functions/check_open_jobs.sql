-- Raises an error if jobs in this mode on so many GPU types would be more than a user may have open on a leaderboard.
-- The caller holds the lock on the user's row.
CREATE OR REPLACE FUNCTION runner.check_open_jobs(leaderboard_id integer, user_id text, mode text, gpu_types integer)
RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_limit integer;
    v_open integer;
BEGIN
    SELECT b.max_open_jobs INTO v_limit FROM runner.board b WHERE b.leaderboard_id = check_open_jobs.leaderboard_id;
    IF v_limit IS NULL THEN
        RETURN;
    END IF;
    SELECT count(*) INTO v_open
    FROM (SELECT o.id FROM leaderboard.submission o
          WHERE o.user_id = check_open_jobs.user_id AND o.leaderboard_id = check_open_jobs.leaderboard_id
            AND NOT coalesce(o.done, false) OFFSET 0) AS s
    CROSS JOIN LATERAL (SELECT j.state FROM runner.job j WHERE j.submission_id = s.id OFFSET 0) AS j
    WHERE j.state IN ('queued', 'running');
    IF v_open + check_open_jobs.gpu_types
        * (CASE check_open_jobs.mode WHEN 'leaderboard' THEN 2 ELSE 1 END) > v_limit THEN
        PERFORM runner.refuse('KR030',
            format('%s of %s jobs that may be open on leaderboard %L are', v_open, v_limit,
                   (SELECT l.name FROM leaderboard.leaderboard l WHERE l.id = check_open_jobs.leaderboard_id)),
            'Wait for one of them, or cancel it. A ranked submission is two jobs on each GPU type.');
    END IF;
END
$$;
