-- Raises an error unless the mode is one that a submission may ask for.
CREATE OR REPLACE FUNCTION runner.check_mode(mode text) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF mode IS NULL OR mode NOT IN ('test', 'benchmark', 'profile', 'leaderboard', 'private') THEN
        PERFORM runner.refuse('KR005', format('unknown mode %L', mode),
            'Choose from: test, benchmark, profile, leaderboard, private.');
    END IF;
END
$$;
