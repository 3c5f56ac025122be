-- Where a user's turns in a class end. Ordered by the negative priority: so job_ready_idx is no way to it.
CREATE INDEX CONCURRENTLY job_user_idx ON runner.job (user_id, gpu_type, (- priority), turn) WHERE state = 'queued';
