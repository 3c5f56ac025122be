-- The jobs of a final.
CREATE INDEX CONCURRENTLY job_final_idx ON runner.job (final_id, only_host, round, finalist) WHERE final_id IS NOT NULL;
