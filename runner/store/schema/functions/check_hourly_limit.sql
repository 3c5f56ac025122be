-- Raises an error if a user's submissions to a leaderboard in this category, within the last hour, are as many as its
-- limit. The caller holds the lock on the user's row.
CREATE OR REPLACE FUNCTION runner.check_hourly_limit(leaderboard_id integer, user_id text, category text) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_limit integer;
    v_recent integer;
BEGIN
    SELECT r.max_submissions_per_hour INTO v_limit FROM leaderboard.rate_limit r
    WHERE r.leaderboard_id = check_hourly_limit.leaderboard_id AND r.mode_category = check_hourly_limit.category;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT count(*) INTO v_recent
    FROM leaderboard.submission s
    WHERE s.leaderboard_id = check_hourly_limit.leaderboard_id AND s.user_id = check_hourly_limit.user_id
      AND s.mode_category = check_hourly_limit.category AND s.submission_time > now() - interval '1 hour';
    IF v_recent >= v_limit THEN
        PERFORM runner.refuse('KR013',
            format('%s of %s %s submissions an hour to leaderboard %L are used', v_recent, v_limit,
                check_hourly_limit.category,
                   (SELECT l.name FROM leaderboard.leaderboard l WHERE l.id = check_hourly_limit.leaderboard_id)),
            'Wait until the oldest of them is an hour old.');
    END IF;
END
$$;
