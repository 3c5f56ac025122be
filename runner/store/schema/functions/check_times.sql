-- Raises an error unless jobs may begin and end at these times: clients in many languages read them again.
CREATE OR REPLACE FUNCTION runner.check_times(start_at timestamptz, expires_at timestamptz) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF check_times.start_at NOT BETWEEN '0001-01-02Z' AND '9999-12-30Z' THEN
        PERFORM runner.refuse('KR029',
            format('start_at is %s, expected a time before the year 10000', check_times.start_at),
            'Give a time, or none: then it begins as soon as a host is free.');
    END IF;
    IF check_times.expires_at NOT BETWEEN '0001-01-02Z' AND '9999-12-30Z' THEN
        PERFORM runner.refuse('KR029', format('expires_at is %s, expected a time before the year 10000',
            check_times.expires_at), 'Give a time, or none: then it waits for as long as it takes.');
    END IF;
    IF check_times.expires_at <= greatest(now(), check_times.start_at) THEN
        PERFORM runner.refuse('KR029', format('expires_at is %s, which is not after now and start_at',
            check_times.expires_at), 'Give a later time, or none.');
    END IF;
END
$$;
