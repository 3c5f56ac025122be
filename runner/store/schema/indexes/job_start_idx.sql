-- Jobs whose start time is to come.
CREATE INDEX CONCURRENTLY job_start_idx ON runner.job (not_before) WHERE state = 'queued' AND NOT ready;
