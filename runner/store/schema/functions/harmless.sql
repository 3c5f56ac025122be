-- The text with `?` for each character that could disturb a terminal or a log; cut after a thousand characters.
CREATE OR REPLACE FUNCTION runner.harmless(value text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN regexp_replace(
        CASE WHEN length(value) > 1000 THEN left(value, 1000) || ' ...' ELSE value END,
        E'[\\x01-\\x1f\\x7f-\\x9f\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180e\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f'
        '\\u3164\\ufeff\\uffa0\\ufff9-\\ufffb\\U0001d173-\\U0001d17a\\U000e0000-\\U000e007f]', '?', 'g');
END
$$;
