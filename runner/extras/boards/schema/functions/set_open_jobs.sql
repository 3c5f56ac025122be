-- Sets how many jobs of one user may wait or run on a leaderboard at a time; NULL: any number. It holds for submissions
-- that come from now on.
CREATE OR REPLACE FUNCTION runner.set_open_jobs(leaderboard text, max_open_jobs integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_id integer;
BEGIN
    IF set_open_jobs.max_open_jobs < 1 THEN
        PERFORM runner.refuse('KR030', format('%s open jobs, expected 1 or more', set_open_jobs.max_open_jobs),
            'NULL allows any number.');
    END IF;
    v_id := runner.hold_board(set_open_jobs.leaderboard);
    INSERT INTO runner.board AS b (leaderboard_id, max_open_jobs) VALUES (v_id, set_open_jobs.max_open_jobs)
    ON CONFLICT (leaderboard_id) DO UPDATE SET max_open_jobs = EXCLUDED.max_open_jobs;
END
$$;
