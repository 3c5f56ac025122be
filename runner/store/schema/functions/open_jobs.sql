-- Counts the jobs of a user's submissions to a leaderboard that wait or run.
CREATE OR REPLACE FUNCTION runner.open_jobs(leaderboard_id integer, user_id text) RETURNS integer
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN (
        SELECT count(*)
        FROM (SELECT o.id FROM leaderboard.submission o
              WHERE o.user_id = open_jobs.user_id AND o.leaderboard_id = open_jobs.leaderboard_id
                AND NOT coalesce(o.done, false) OFFSET 0) AS s
        CROSS JOIN LATERAL (SELECT j.state FROM runner.job j WHERE j.submission_id = s.id OFFSET 0) AS j
        WHERE j.state IN ('queued', 'running'));
END
$$;
