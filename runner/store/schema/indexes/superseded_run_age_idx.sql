-- The oldest results that were replaced, which runner.reap removes.
CREATE INDEX CONCURRENTLY superseded_run_age_idx ON runner.superseded_run (superseded_at);
