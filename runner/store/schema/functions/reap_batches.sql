-- Part of runner.reap: removes batches whose last result is older than they are kept, at most `at_most` rows of each
-- kind, then texts without an item. Returns how many rows. A batch is marked first: nothing is added to it from then on.
-- One that still has an item without a result is passed over, or many of them would be in the way of all others.
--
-- A text that runner.submit_batch finds is marked as used, so one that was not used for a day is about to be used by no
-- transaction. Texts that are still needed are marked as used when it is their turn to be looked at.
CREATE OR REPLACE FUNCTION runner.reap_batches(at_most integer) RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_batch record;
    v_removed integer := 0;
    v_left integer := reap_batches.at_most;
    v_gone integer;
    v_hashes bytea[];
BEGIN
    FOR v_batch IN
        SELECT b.id, b.owner_id FROM runner.batch b
        WHERE NOT b.removing AND b.created_at < now() - b.keep AND runner.is_old(b)
        ORDER BY b.created_at LIMIT reap_batches.at_most
    LOOP
        -- A call of submit_batch that adds to it holds this row.
        PERFORM FROM runner.batch_owner o WHERE o.id = v_batch.owner_id FOR NO KEY UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        UPDATE runner.batch b SET removing = true
        FROM (SELECT o.id FROM runner.batch o WHERE o.id = v_batch.id FOR NO KEY UPDATE SKIP LOCKED) AS free
        WHERE b.id = free.id AND runner.is_old(b);
    END LOOP;

    FOR v_batch IN SELECT b.id FROM runner.batch b WHERE b.removing ORDER BY b.id LOOP
        EXIT WHEN v_left <= 0;
        WITH gone AS (
            DELETE FROM runner.item i USING (
                SELECT o.id FROM runner.item o WHERE o.batch_id = v_batch.id ORDER BY o.number LIMIT v_left
            ) AS old
            WHERE i.id = old.id RETURNING i.reference, i.candidate
        )
        SELECT count(*), v_hashes || array_agg(g.reference) || array_agg(g.candidate) INTO v_gone, v_hashes FROM gone g;
        v_left := v_left - v_gone;
        v_removed := v_removed + v_gone;
        DELETE FROM runner.job j USING (
            SELECT o.id FROM runner.job o
            WHERE o.batch_id = v_batch.id AND NOT EXISTS (SELECT FROM runner.item i WHERE i.job_id = o.id)
            ORDER BY o.id LIMIT reap_batches.at_most
        ) AS old
        WHERE j.id = old.id;
        GET DIAGNOSTICS v_gone = ROW_COUNT;
        v_removed := v_removed + v_gone;
        DELETE FROM runner.batch b
        WHERE b.id = v_batch.id AND NOT EXISTS (SELECT FROM runner.item i WHERE i.batch_id = b.id)
          AND NOT EXISTS (SELECT FROM runner.job j WHERE j.batch_id = b.id);
        GET DIAGNOSTICS v_gone = ROW_COUNT;
        v_removed := v_removed + v_gone;
    END LOOP;

    DELETE FROM runner.source s
    WHERE s.hash = ANY (v_hashes) AND s.used_at < now() - interval '1 day'
      AND NOT EXISTS (SELECT FROM runner.item i WHERE i.reference = s.hash)
      AND NOT EXISTS (SELECT FROM runner.item i WHERE i.candidate = s.hash);
    SELECT array_agg(o.hash) INTO v_hashes FROM (
        SELECT s.hash FROM runner.source s WHERE s.used_at < now() - interval '1 day'
        ORDER BY s.used_at LIMIT reap_batches.at_most FOR UPDATE SKIP LOCKED
    ) AS o;
    DELETE FROM runner.source s
    WHERE s.hash = ANY (v_hashes)
      AND NOT EXISTS (SELECT FROM runner.item i WHERE i.reference = s.hash)
      AND NOT EXISTS (SELECT FROM runner.item i WHERE i.candidate = s.hash);
    GET DIAGNOSTICS v_gone = ROW_COUNT;
    UPDATE runner.source s SET used_at = now() WHERE s.hash = ANY (v_hashes);
    RETURN v_removed + v_gone;
END
$$;
