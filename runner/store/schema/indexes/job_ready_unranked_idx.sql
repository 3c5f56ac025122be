-- The same without ranked jobs. It is ordered by the negative priority, so that neither this index nor job_ready_idx is
-- ever a way to what the other one is for: both are ordered, and a plan is kept whatever they hold later.
CREATE INDEX CONCURRENTLY job_ready_unranked_idx ON runner.job (gpu_type, (- priority), turn, id)
    WHERE state = 'queued' AND ready AND mode IN ('test', 'benchmark', 'profile');
