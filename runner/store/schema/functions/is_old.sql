-- True if every item of a batch has a result, and the last one, or a batch without items, is older than it is kept. Part
-- of runner.reap_batches.
CREATE OR REPLACE FUNCTION runner.is_old(batch runner.batch) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_last record;
BEGIN
    SELECT r.seq, r.finished_at INTO v_last FROM runner.item_result r
    WHERE r.batch_id = batch.id ORDER BY r.seq DESC LIMIT 1;
    RETURN coalesce(v_last.seq, 0) = coalesce((SELECT i.number FROM runner.item i WHERE i.batch_id = batch.id
                                               ORDER BY i.number DESC LIMIT 1), 0)
        AND coalesce(v_last.finished_at, batch.created_at) < now() - batch.keep;
END
$$;
