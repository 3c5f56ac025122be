-- Notes that a program asks for a login: a row of user_info that is not valid. An operator approves it by its code, or
-- it is removed after twelve hours. Only a digest of the program's secret is stored. `origin` stands for the address
-- that asks. None is refused for what others ask: of one origin the newest ten wait, and of all origins a thousand.
-- Beyond that the oldest of the origin that has most goes, so whoever asks often loses his own.
CREATE OR REPLACE FUNCTION runner.begin_login(code text, digest text, provider text, origin text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_id text := concat('temp_', begin_login.code);
BEGIN
    IF coalesce(begin_login.code, '') !~ '^[0-9a-f]{8}$'
        OR coalesce(begin_login.digest, '') !~ '^sha256:[0-9a-f]{64}$' THEN
        PERFORM runner.refuse('KR042', 'a login has a code of 8 hexadecimal digits and a digest', 'Begin it again.');
    END IF;
    -- Those that KernelBot began have no origin.
    DELETE FROM leaderboard.user_info u
    WHERE u.id ~ '^temp_' AND u.cli_valid IS NOT TRUE
      AND CASE WHEN EXISTS (SELECT FROM runner.waiting_login w WHERE w.id = u.id)
               THEN EXISTS (SELECT FROM runner.waiting_login w WHERE w.id = u.id
                   AND w.since < now() - interval '12 hours')
               ELSE u.created_at < localtimestamp - interval '1 day' END
      AND NOT EXISTS (SELECT FROM leaderboard.submission s WHERE s.user_id = u.id);
    DELETE FROM leaderboard.user_info u
    WHERE u.cli_valid IS NOT TRUE AND u.id IN (
        SELECT r.id FROM (
            SELECT w.id, w.origin = begin_login.origin AS own,
                   row_number() OVER (PARTITION BY w.origin ORDER BY w.since DESC, w.id) AS newer,
                   row_number() OVER (ORDER BY t.waiting DESC, w.since, w.id) AS victim, count(*) OVER () AS waiting
            FROM runner.waiting_login w
            JOIN (SELECT x.origin, count(*) AS waiting FROM runner.waiting_login x GROUP BY x.origin) AS t
                USING (origin)
        ) AS r
        WHERE r.own AND r.newer >= 10 OR r.victim <= r.waiting - 999
    ) AND NOT EXISTS (SELECT FROM leaderboard.submission s WHERE s.user_id = u.id);
    INSERT INTO leaderboard.user_info (id, user_name, cli_id, cli_valid, cli_auth_provider)
    VALUES (v_id, concat('temp_user_', begin_login.code), begin_login.digest, false, begin_login.provider)
    ON CONFLICT (id) DO NOTHING;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO runner.waiting_login (id, origin) VALUES (v_id, coalesce(begin_login.origin, ''));
    RETURN true;
END
$$;
