-- Jobs that are held back while their leaderboard is paused. runner.let_in alone asks for this order.
CREATE INDEX CONCURRENTLY job_held_idx ON runner.job (gpu_type, priority, turn, id)
    WHERE state = 'queued' AND NOT ready AND NOT after_public AND not_before IS NULL AND sweep_id IS NULL;
