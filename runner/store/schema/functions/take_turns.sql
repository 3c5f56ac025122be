-- Takes `count` consecutive turns for a user in a class (GPU type, priority) and returns the first. That is the virtual
-- time of the class or the end of the user's own earlier submissions, whichever is later. That end is the last job that
-- waits or was claimed: turns of jobs that were cancelled or deleted before a claim are taken again. No other code holds
-- this rule.
--
-- The settings leave the planner no choice but job_user_idx.
CREATE OR REPLACE FUNCTION runner.take_turns(user_id text, gpu_type text, priority integer, count integer DEFAULT 1) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_share record;
    v_clock bigint;
    v_last bigint;
    v_next bigint;
BEGIN
    -- Another transaction that takes turns of this share may be about to commit jobs: they are seen after this.
    SELECT s.next_turn, s.claimed INTO v_share FROM runner.share s
    WHERE s.user_id = take_turns.user_id AND s.gpu_type = take_turns.gpu_type AND s.priority = take_turns.priority
    FOR NO KEY UPDATE;
    SELECT c.turn INTO v_clock FROM runner.clock c
    WHERE c.gpu_type = take_turns.gpu_type AND c.priority = take_turns.priority
    ORDER BY c.gpu_type DESC, c.priority DESC, c.seq DESC LIMIT 1;
    IF v_share.next_turn IS NULL THEN
        INSERT INTO runner.share AS s (user_id, gpu_type, priority, next_turn)
        VALUES (take_turns.user_id, take_turns.gpu_type, take_turns.priority, coalesce(v_clock, 0) + take_turns.count)
        -- Another transaction has made it meanwhile.
        ON CONFLICT (user_id, gpu_type, priority) DO UPDATE
        SET next_turn = greatest(s.next_turn + take_turns.count, EXCLUDED.next_turn)
        RETURNING s.next_turn INTO v_next;
        RETURN v_next - take_turns.count;
    END IF;
    SELECT j.turn INTO v_last FROM runner.job j
    WHERE j.state = 'queued' AND j.user_id = take_turns.user_id AND j.gpu_type = take_turns.gpu_type
      AND (- j.priority) = - take_turns.priority
    ORDER BY j.user_id DESC, j.gpu_type DESC, (- j.priority) DESC, j.turn DESC LIMIT 1;
    -- Claimed jobs are not after the clock, nor after `claimed`.
    v_next := greatest(v_clock, least(v_share.next_turn, greatest(v_clock, v_last, v_share.claimed) + 1));
    UPDATE runner.share s SET next_turn = v_next + take_turns.count
    WHERE s.user_id = take_turns.user_id AND s.gpu_type = take_turns.gpu_type AND s.priority = take_turns.priority;
    RETURN v_next;
END
$$;
