-- Removes those of the submitted files that no submission has, and returns how many. A file that another transaction
-- holds stays.
CREATE OR REPLACE FUNCTION runner.remove_code(ids integer[]) RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_ids integer[];
    v_removed integer;
BEGIN
    SELECT array_agg(u.id) INTO v_ids FROM (
        SELECT c.id FROM leaderboard.code_files c
        WHERE c.id = ANY (remove_code.ids)
          AND NOT EXISTS (SELECT FROM leaderboard.submission s WHERE s.code_id = c.id)
        ORDER BY c.id FOR UPDATE SKIP LOCKED
    ) AS u;
    -- Looked at again under the locks: a submission may have come before them.
    DELETE FROM leaderboard.code_files f
    WHERE f.id = ANY (v_ids) AND NOT EXISTS (SELECT FROM leaderboard.submission s WHERE s.code_id = f.id);
    GET DIAGNOSTICS v_removed = ROW_COUNT;
    RETURN v_removed;
END
$$;
