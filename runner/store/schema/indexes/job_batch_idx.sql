-- The groups of a batch.
CREATE INDEX CONCURRENTLY job_batch_idx ON runner.job (batch_id, id) WHERE batch_id IS NOT NULL;
