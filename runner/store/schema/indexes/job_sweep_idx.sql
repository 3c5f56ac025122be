-- The jobs of a validation sweep.
CREATE INDEX CONCURRENTLY job_sweep_idx ON runner.job (sweep_id, id) WHERE sweep_id IS NOT NULL;
