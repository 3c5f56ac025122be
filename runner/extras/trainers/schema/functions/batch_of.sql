-- The session's owner row for a user, and its batch of that name; NULL where there is none. A user id of NULL is the
-- login's own name.
CREATE OR REPLACE FUNCTION runner.batch_of(name text, user_id text, OUT owner_id integer, OUT batch_id bigint)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    SELECT o.id INTO owner_id FROM runner.batch_owner o
    WHERE o.login = session_user AND o.user_id = coalesce(batch_of.user_id, session_user);
    SELECT b.id INTO batch_id FROM runner.batch b WHERE b.owner_id = batch_of.owner_id AND b.name = batch_of.name;
END
$$;
