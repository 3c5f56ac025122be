-- Jobs that are cancelled if they wait for too long. No other job has a value there. As for job_lease_idx, the condition
-- names the column searched for.
CREATE INDEX CONCURRENTLY job_expiry_idx ON runner.job (expires_at) WHERE expires_at IS NOT NULL;
