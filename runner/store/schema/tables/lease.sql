-- The lease of a host on the jobs that its last heartbeat named, in one row.
CREATE TABLE runner.lease (
    host text PRIMARY KEY,
    expires_at timestamptz NOT NULL,
    job_ids bigint[] NOT NULL
) WITH (fillfactor = 30, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 200);
COMMENT ON TABLE runner.lease IS 'The lease of a host on the jobs that its last heartbeat named, in one row.';
