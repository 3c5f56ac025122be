-- Returns the virtual time of a class (GPU type, priority): the highest turn claimed so far, or 0.
CREATE OR REPLACE FUNCTION runner.turn_of(gpu_type text, priority integer) RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN coalesce((
        SELECT c.turn FROM runner.clock c WHERE c.gpu_type = turn_of.gpu_type AND c.priority = turn_of.priority
        ORDER BY c.gpu_type DESC, c.priority DESC, c.seq DESC LIMIT 1), 0);
END
$$;
