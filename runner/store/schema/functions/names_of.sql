-- Returns every name of a GPU type, in lower case. Aliases that a daemon published add nothing. Raises an error for a
-- name that neither the registry nor a leaderboard nor a job has.
CREATE OR REPLACE FUNCTION runner.names_of(gpu_type text) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    IF NOT EXISTS (SELECT FROM runner.gpu_type r, unnest(r.name || r.aliases) AS a (name)
                   WHERE lower(a.name) = lower(names_of.gpu_type))
       AND NOT EXISTS (SELECT FROM leaderboard.gpu_type g WHERE lower(g.gpu_type) = lower(names_of.gpu_type))
       AND NOT EXISTS (SELECT FROM runner.job j WHERE lower(j.gpu_type) = lower(names_of.gpu_type)) THEN
        PERFORM runner.refuse('KR003', format('GPU type %L is not known here', names_of.gpu_type),
            'Look at the list of GPU types.');
    END IF;
    RETURN ARRAY(
        SELECT lower(names_of.gpu_type)
        UNION SELECT lower(n.name) FROM runner.gpu_type r, unnest(r.name || r.aliases) AS n (name)
        WHERE r.login IS NULL
          AND EXISTS (SELECT FROM unnest(r.name || r.aliases) AS a (name)
              WHERE lower(a.name) = lower(names_of.gpu_type)));
END
$$;
