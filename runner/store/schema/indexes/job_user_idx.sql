-- Where a user's turns in a class end. Ordered by the negative priority, as job_ready_unranked_idx is: so no other index is a
-- way to it.
CREATE INDEX CONCURRENTLY job_user_idx ON runner.job (user_id, gpu_type, (- priority), turn) WHERE state = 'queued';
