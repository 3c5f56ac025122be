-- True if the session's login has the rights of the functions' owner, who may act for every host.
CREATE OR REPLACE FUNCTION runner.is_owner() RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT pg_has_role(session_user, current_user, 'MEMBER') $$;
