-- Returns the leaderboard's own names for the GPU types asked for. A name matches exactly, by a name or an alias of the
-- registry, or in another case. Without a wish the file's directive counts, else the leaderboard's only type.
CREATE OR REPLACE FUNCTION runner.choose_gpu_types(
    leaderboard_id integer, wanted text[], directive text[]
) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    offered text[];
    wishes text[] := coalesce(nullif(wanted, '{}'), directive);
    wish text;
    match text;
    chosen text[] := '{}';
BEGIN
    SELECT array_agg(g.gpu_type ORDER BY g.gpu_type) INTO offered
    FROM leaderboard.gpu_type g WHERE g.leaderboard_id = choose_gpu_types.leaderboard_id;
    IF offered IS NULL THEN
        PERFORM runner.refuse('KR003', 'the leaderboard offers no GPU type', 'Ask its owner to add one.');
    END IF;
    IF wishes IS NULL THEN
        IF cardinality(offered) > 1 THEN
            PERFORM runner.refuse('KR004', format('the leaderboard offers %s GPU types, choose', cardinality(offered)),
                format('Choose from: %s.', array_to_string(offered, ', ')));
        END IF;
        RETURN offered;
    END IF;
    FOREACH wish IN ARRAY wishes LOOP
        SELECT o.name INTO match
        FROM unnest(offered) AS o (name)
        WHERE lower(o.name) = lower(wish)
           OR EXISTS (SELECT FROM runner.gpu_type r
                      WHERE o.name = ANY (r.name || r.aliases) AND wish = ANY (r.name || r.aliases))
        ORDER BY o.name = wish DESC, lower(o.name) = lower(wish) DESC, o.name
        LIMIT 1;
        IF match IS NULL THEN
            PERFORM runner.refuse('KR003', format('GPU type %L is not offered by this leaderboard', wish),
                format('Choose from: %s.', array_to_string(offered, ', ')));
        ELSIF match = ANY (chosen) THEN
            PERFORM runner.refuse('KR011', format('GPU type %L is asked for twice', match), 'Name each GPU type once.');
        END IF;
        chosen := chosen || match;
    END LOOP;
    RETURN chosen;
END
$$;
