-- Binds a host to another login. The old login loses the host and the jobs that run there in the same moment.
CREATE OR REPLACE FUNCTION runner.move_host(host text, login text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.rolname = move_host.login AND r.rolcanlogin) THEN
        PERFORM runner.refuse('KR026', format('login %L does not exist', move_host.login), 'Create it first.');
    END IF;
    UPDATE runner.host h SET login = move_host.login WHERE h.name = move_host.host;
    IF NOT FOUND THEN
        PERFORM runner.refuse('KR018', format('host %L is not known here', move_host.host),
            'Look at the list of hosts.');
    END IF;
END
$$;
