-- How many items one of the session's own batches has, and how many of them are over.
CREATE OR REPLACE FUNCTION runner.batch_progress(
    batch text, user_id text DEFAULT NULL,
    OUT batch_id bigint, OUT items bigint, OUT finished bigint, OUT cancelled_at timestamptz
)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_of record;
BEGIN
    SELECT * INTO v_of FROM runner.batch_of(batch_progress.batch, batch_progress.user_id);
    IF v_of.batch_id IS NULL THEN
        PERFORM runner.refuse('KR053', format('batch %L does not exist', batch_progress.batch), 'Submit it first.');
    END IF;
    batch_id := v_of.batch_id;
    SELECT b.cancelled_at INTO cancelled_at FROM runner.batch b WHERE b.id = v_of.batch_id;
    items := coalesce((SELECT i.number FROM runner.item i WHERE i.batch_id = v_of.batch_id
                       ORDER BY i.number DESC LIMIT 1), 0);
    finished := coalesce((SELECT r.seq FROM runner.item_result r WHERE r.batch_id = v_of.batch_id
                          ORDER BY r.seq DESC LIMIT 1), 0);
END
$$;
