-- Cancels a batch of the session's own: nothing can be added to it, items of groups that wait end at once, groups that
-- run are asked to stop. Takes at most 10,000 groups at a time and returns how many items it ended and how many groups
-- are still to be cancelled: call it again while `left_over` is above 0.
CREATE OR REPLACE FUNCTION runner.cancel_batch(
    batch text, user_id text DEFAULT NULL, OUT ended bigint, OUT running bigint, OUT left_over bigint
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_of record;
    v_ids bigint[];
    v_queued bigint[];
    v_hosts text;
BEGIN
    PERFORM runner.check_isolation();
    SELECT * INTO v_of FROM runner.batch_of(cancel_batch.batch, cancel_batch.user_id);
    IF v_of.batch_id IS NULL THEN
        PERFORM runner.refuse('KR053', format('batch %L does not exist', cancel_batch.batch), 'Look at its name.');
    END IF;
    -- A submit_batch that holds the owner has added all its groups, or finds the batch cancelled.
    PERFORM FROM runner.batch_owner o WHERE o.id = v_of.owner_id FOR NO KEY UPDATE;
    PERFORM FROM runner.batch b WHERE b.id = v_of.batch_id FOR NO KEY UPDATE;
    UPDATE runner.batch b SET cancelled_at = now() WHERE b.id = v_of.batch_id AND b.cancelled_at IS NULL;
    SELECT array_agg(q.id) INTO v_ids FROM (
        SELECT j.id FROM runner.job j
        WHERE j.batch_id = v_of.batch_id AND j.state IN ('queued', 'running') AND NOT j.cancel_requested
        ORDER BY j.id LIMIT 10000 FOR NO KEY UPDATE
    ) AS q;
    WITH changed AS (
        UPDATE runner.job j
        SET cancel_requested = true,
            state = CASE j.state WHEN 'queued' THEN 'cancelled' ELSE j.state END,
            finished_at = CASE j.state WHEN 'queued' THEN now() END, expires_at = NULL
        WHERE j.id = ANY (v_ids) AND j.state IN ('queued', 'running')
        RETURNING j.id, j.state, j.lease_owner
    )
    SELECT array_agg(c.id) FILTER (WHERE c.state = 'cancelled'), count(*) FILTER (WHERE c.state = 'running'),
           string_agg(DISTINCT c.lease_owner, ',')
    INTO v_queued, running, v_hosts FROM changed c;
    ended := runner.end_items(v_queued, NULL, 'cancelled');
    SELECT count(*) INTO left_over FROM runner.job j
    WHERE j.batch_id = v_of.batch_id AND j.state IN ('queued', 'running') AND NOT j.cancel_requested;
    IF running > 0 THEN
        PERFORM runner.call('runner_hosts', v_hosts);
    END IF;
END
$$;
