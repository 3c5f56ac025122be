-- How often a job is tried again that no submission is to blame for: one row, for the whole queue.
CREATE TABLE runner.retry (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    max_attempts integer NOT NULL DEFAULT 3 CHECK (max_attempts > 0),
    pause_s double precision NOT NULL DEFAULT 5 CHECK (pause_s >= 0),
    pause_max_s double precision NOT NULL DEFAULT 300 CHECK (pause_max_s >= 0),
    max_lost_leases integer NOT NULL DEFAULT 5 CHECK (max_lost_leases > 0),
    max_unanswered_claims integer NOT NULL DEFAULT 3 CHECK (max_unanswered_claims >= 0)
);
COMMENT ON TABLE runner.retry
    IS 'How often a job is tried again; `kernel-runner migrate` writes what the configuration says.';
COMMENT ON COLUMN runner.retry.max_attempts
    IS 'A job that has failed this often through no fault of its submission ends.';
COMMENT ON COLUMN runner.retry.pause_s
    IS 'After the first failure; it doubles with each further one, up to pause_max_s.';
COMMENT ON COLUMN runner.retry.max_lost_leases
    IS 'A job whose lease was lost this often ends: it is assumed to kill daemons.';
COMMENT ON COLUMN runner.retry.max_unanswered_claims IS
    'Claims of a job whose answer its daemon never read, before each counts as a lost lease.';
INSERT INTO runner.retry DEFAULT VALUES;
