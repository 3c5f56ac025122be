-- Returns the source text of a submission without a byte order mark, or raises an error that says why the bytes are
-- none.
CREATE OR REPLACE FUNCTION runner.check_source(code bytea) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    size_bytes integer := coalesce(octet_length(code), 0);
BEGIN
    IF size_bytes = 0 OR size_bytes > 1000000 THEN
        PERFORM runner.refuse('KR006', format('the file has %s bytes, expected 1 to 1000000', size_bytes),
            CASE size_bytes WHEN 0 THEN 'The file is empty.' ELSE 'Submit one source file without embedded data.' END);
    END IF;
    IF position(decode('00', 'hex') IN code) > 0 THEN
        PERFORM runner.refuse('KR007',
            format('the file has a NUL byte at offset %s', position(decode('00', 'hex') IN code) - 1),
            'Submit source text in UTF-8, not a compiled file.');
    END IF;
    BEGIN
        RETURN regexp_replace(convert_from(code, 'UTF8'), '^' || chr(65279), '');
    EXCEPTION WHEN character_not_in_repertoire THEN
        PERFORM runner.refuse('KR007', format('the file is not UTF-8: %s', SQLERRM),
            'Save it as UTF-8 and submit it again.');
    END;
END
$$;
