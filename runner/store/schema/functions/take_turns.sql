-- Takes `count` consecutive turns for a user in a class (GPU type, priority) and returns the first. That is the virtual
-- time of the class or the end of the user's own earlier submissions, whichever is later. No other code holds this
-- rule.
CREATE OR REPLACE FUNCTION runner.take_turns(user_id text, gpu_type text, priority integer, count integer DEFAULT 1) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_clock bigint;
    v_next bigint;
BEGIN
    SELECT c.turn INTO v_clock FROM runner.clock c
    WHERE c.gpu_type = take_turns.gpu_type AND c.priority = take_turns.priority;
    INSERT INTO runner.share AS s (user_id, gpu_type, priority, next_turn)
    VALUES (take_turns.user_id, take_turns.gpu_type, take_turns.priority, coalesce(v_clock, 0) + take_turns.count)
    ON CONFLICT (user_id, gpu_type, priority) DO UPDATE
    SET next_turn = greatest(s.next_turn + take_turns.count, EXCLUDED.next_turn)
    RETURNING s.next_turn INTO v_next;
    RETURN v_next - take_turns.count;
END
$$;
