-- Lets the next jobs of validation sweeps be claimed, so that two of each wait or run, and completes sweeps without an
-- open job. Jobs of a paused leaderboard stay held back (runner.queue_again).
CREATE OR REPLACE FUNCTION runner.advance_sweeps(sweep_ids bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_id bigint;
    v_open integer;
    v_let_in integer;
BEGIN
    -- Of two jobs that end together, the second one to come here sees that the first has ended.
    FOR v_id IN
        SELECT w.id FROM leaderboard.validation_sweep w
        WHERE w.id = ANY (advance_sweeps.sweep_ids) AND w.status = 'running' ORDER BY w.id FOR NO KEY UPDATE
    LOOP
        SELECT count(*), count(*) FILTER (WHERE j.state = 'running' OR j.ready OR j.not_before IS NOT NULL)
        INTO v_open, v_let_in
        FROM runner.job j WHERE j.sweep_id = v_id AND j.state IN ('queued', 'running');
        PERFORM runner.queue_again(n.id) FROM (
            SELECT j.id FROM runner.job j
            WHERE j.sweep_id = v_id AND j.state = 'queued' AND NOT j.ready AND j.not_before IS NULL
            ORDER BY j.id LIMIT greatest(0, 2 - v_let_in) FOR NO KEY UPDATE SKIP LOCKED
        ) AS n;
        IF v_open = 0 THEN
            UPDATE leaderboard.validation_sweep w SET status = 'completed', completed_at = now() WHERE w.id = v_id;
        END IF;
    END LOOP;
END
$$;
