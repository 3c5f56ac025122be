-- The oldest keys, which runner.reap removes.
CREATE INDEX CONCURRENTLY idempotency_age_idx ON runner.idempotency (created_at);
