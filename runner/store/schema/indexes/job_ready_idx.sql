-- A claim walks this index per GPU type. Only jobs that may be claimed are in it.
CREATE INDEX CONCURRENTLY job_ready_idx ON runner.job (gpu_type, priority DESC, turn, id) WHERE state = 'queued' AND ready;
