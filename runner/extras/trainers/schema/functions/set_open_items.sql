-- Sets how many items of one user of a login may wait or run; NULL: any number. It holds for items that come from now
-- on.
CREATE OR REPLACE FUNCTION runner.set_open_items(login text, user_id text, max_open_items bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    IF set_open_items.max_open_items < 1 THEN
        PERFORM runner.refuse('KR052', format('%s open items, expected 1 or more', set_open_items.max_open_items),
            'NULL allows any number.');
    END IF;
    IF btrim(set_open_items.user_id) = '' OR length(set_open_items.user_id) > 255
        OR runner.is_odd(set_open_items.user_id) THEN
        PERFORM runner.refuse('KR010', 'a user id has 1 to 255 characters, none of them a control character',
            'Correct it.');
    END IF;
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.rolname = set_open_items.login) THEN
        PERFORM runner.refuse('KR026', format('login %L does not exist', set_open_items.login), 'Look at its name.');
    END IF;
    INSERT INTO runner.batch_owner AS o (login, user_id, max_open_items)
    VALUES (set_open_items.login, coalesce(set_open_items.user_id, set_open_items.login), set_open_items.max_open_items)
    ON CONFLICT (login, user_id) DO UPDATE SET max_open_items = EXCLUDED.max_open_items;
END
$$;
