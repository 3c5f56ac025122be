-- True if the text has characters that could disturb a terminal or a log, or that are not seen: control characters, line
-- separators, bidirectional overrides, spaces without width, tags. The two joiners are needed in some scripts and symbols:
-- they are odd at an end of the text or beside ASCII.
CREATE OR REPLACE FUNCTION runner.is_odd(value text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN coalesce(
        value ~ '[\x01-\x1f\x7f-\x9f\u00ad\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]'
        OR value ~ '(^|[ -~])[\u200c\u200d]|[\u200c\u200d]([ -~]|$)', false);
END
$$;
