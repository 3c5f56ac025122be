-- Gives `count` jobs of a user their turns in a class (GPU type, priority) and returns the first; each further one is 2
-- later. A round serves one job of each user who waits: it is two turns, an odd one for newcomers and the even one
-- after it. A user's next job is in the round after that of the last one. Who has none in this round or later is a
-- newcomer, and comes first in the next round; several jobs at once have no first. Those who come while newcomers are
-- served are in the round after, so nobody starves behind them.
--
-- A user's last job is the last that waits: turns of jobs that were cancelled or deleted are taken again, but for those
-- of this round, which may have been claimed. No other code holds this rule.
--
-- The settings leave the planner no choice but job_user_idx.
CREATE OR REPLACE FUNCTION runner.take_turns(
    user_id text, gpu_type text, priority integer, count integer DEFAULT 1
) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_share bigint;
    v_round bigint;
    v_last bigint;
    v_next bigint;
BEGIN
    -- Another transaction that takes turns of this share may be about to commit jobs: they are seen after this.
    INSERT INTO runner.share (user_id, gpu_type, priority, next_turn)
    VALUES (take_turns.user_id, take_turns.gpu_type, take_turns.priority, 0)
    ON CONFLICT (user_id, gpu_type, priority) DO NOTHING;
    SELECT s.next_turn INTO v_share FROM runner.share s
    WHERE s.user_id = take_turns.user_id AND s.gpu_type = take_turns.gpu_type AND s.priority = take_turns.priority
    FOR NO KEY UPDATE;
    SELECT (c.turn + 1) / 2 INTO v_round FROM runner.clock c
    WHERE c.gpu_type = take_turns.gpu_type AND c.priority = take_turns.priority
    ORDER BY c.gpu_type DESC, c.priority DESC, c.seq DESC LIMIT 1;
    SELECT (j.turn + 1) / 2 INTO v_last FROM runner.job j
    WHERE j.state = 'queued' AND j.user_id = take_turns.user_id AND j.gpu_type = take_turns.gpu_type
      AND (- j.priority) = - take_turns.priority
    ORDER BY j.user_id DESC, j.gpu_type DESC, (- j.priority) DESC, j.turn DESC LIMIT 1;
    v_next := greatest(2 * v_round + 1, least(v_share, 2 * coalesce(greatest(v_round, v_last), -1) + 2));
    IF take_turns.count > 1 THEN
        v_next := v_next + v_next % 2;
    END IF;
    UPDATE runner.share s SET next_turn = v_next + v_next % 2 + 2 * take_turns.count
    WHERE s.user_id = take_turns.user_id AND s.gpu_type = take_turns.gpu_type AND s.priority = take_turns.priority;
    RETURN v_next;
END
$$;
