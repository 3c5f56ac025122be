-- Says in a sentence why an item of a batch cannot be evaluated; NULL: it can. `reference` is its text, or NULL where
-- it was named by a hash that is stored.
CREATE OR REPLACE FUNCTION runner.item_fault(
    item jsonb, reference text, reference_known boolean, candidate text, settings jsonb, entry_point text,
    candidate_entry_point text
) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_limit CONSTANT integer := 1000000;
BEGIN
    IF item ? 'invalid' THEN
        RETURN coalesce(nullif(left(item ->> 'invalid', 1000), ''), 'its sender says that it is not valid');
    ELSIF reference IS NULL AND NOT reference_known THEN
        RETURN CASE WHEN item ? 'reference_hash' THEN 'no reference with this reference_hash is stored'
                    WHEN item ? 'reference' THEN 'the reference is not a text' ELSE 'there is no reference' END;
    ELSIF candidate IS NULL THEN
        RETURN CASE WHEN item ? 'candidate' THEN 'the candidate is not a text' ELSE 'there is no candidate' END;
    ELSIF btrim(reference, E' \t\r\n') = '' THEN
        RETURN 'the reference is empty';
    ELSIF btrim(candidate, E' \t\r\n') = '' THEN
        RETURN 'the candidate is empty';
    ELSIF octet_length(reference) > v_limit THEN
        RETURN format('the reference has %s bytes, expected at most %s', octet_length(reference), v_limit);
    ELSIF octet_length(candidate) > v_limit THEN
        RETURN format('the candidate has %s bytes, expected at most %s', octet_length(candidate), v_limit);
    ELSIF NOT (entry_point ~ '^[A-Za-z_][A-Za-z0-9_]{0,199}$') THEN
        RETURN 'entry_point is not the name of a class';
    ELSIF NOT (candidate_entry_point ~ '^[A-Za-z_][A-Za-z0-9_]{0,199}$') THEN
        RETURN 'candidate_entry_point is not the name of a class';
    END IF;
    RETURN runner.settings_fault(settings);
END
$$;
