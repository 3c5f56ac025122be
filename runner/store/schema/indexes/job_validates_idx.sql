-- The validations of a submission.
CREATE INDEX CONCURRENTLY job_validates_idx ON runner.job (validates) WHERE validates IS NOT NULL;
