-- True if the text has characters that could disturb a terminal or a log, or that are not seen: control characters,
-- line separators, bidirectional overrides, spaces without width, fillers, tags. The two joiners are needed in some
-- scripts and symbols: they are odd at an end of the text or beside ASCII. So are selectors of variants after ASCII.
CREATE OR REPLACE FUNCTION runner.is_odd(value text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN coalesce(
        value ~ E'[\\x01-\\x1f\\x7f-\\x9f\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180e\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f'
        '\\u3164\\ufeff\\uffa0\\ufff9-\\ufffb\\U0001d173-\\U0001d17a\\U000e0000-\\U000e007f]'
        OR value ~ E'(^|[ -~])[\\u200c\\u200d]|[\\u200c\\u200d]([ -~]|$)'
        OR value ~ E'(^|[ -~])[\\u180b-\\u180d\\u180f\\ufe00-\\ufe0f\\U000e0100-\\U000e01ef]', false);
END
$$;
