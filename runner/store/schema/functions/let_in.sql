-- Lets jobs into the queue that were held back while their leaderboard was paused. As in runner.queue_again, for all of
-- a class at once: they keep the order in which they took turns. Those of validation sweeps are runner.advance_sweeps's.
--
-- Jobs that another transaction holds, or is about to commit, are not seen: it may have found the leaderboard paused. So
-- runner.reclaim lets in what is left, every two minutes. The settings leave the planner no choice but job_held_idx.
CREATE OR REPLACE FUNCTION runner.let_in() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_sort = off SET jit = off AS $$
#variable_conflict use_column
BEGIN
    UPDATE runner.job j
    SET ready = true, turn = j.turn + greatest(0, runner.turn_of(h.gpu_type, h.priority) - h.first)
    FROM (
        SELECT q.id, q.gpu_type, q.priority, min(q.turn) OVER (PARTITION BY q.gpu_type, q.priority) AS first
        FROM (
            SELECT o.id, o.gpu_type, o.priority, o.turn FROM runner.job o
            WHERE o.state = 'queued' AND NOT o.ready AND NOT o.after_public AND o.not_before IS NULL
              AND o.sweep_id IS NULL
              AND (SELECT b.paused FROM runner.board b WHERE b.leaderboard_id = (
                       SELECT s.leaderboard_id FROM leaderboard.submission s
                       WHERE s.id = coalesce(o.submission_id, o.validates))) IS NULL
            ORDER BY o.gpu_type, o.priority, o.turn, o.id FOR NO KEY UPDATE SKIP LOCKED
        ) AS q
    ) AS h
    WHERE j.id = h.id;
END
$$;
