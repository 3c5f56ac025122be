-- When claims last looked for what is due, and from where they look for leases of single jobs.
CREATE TABLE runner.sweep (
    seq bigint PRIMARY KEY,
    looked_at timestamptz NOT NULL,
    reset_at timestamptz NOT NULL,
    lease_from timestamptz NOT NULL,
    next_lease_from timestamptz,
    next_xid xid8,
    code_from integer NOT NULL DEFAULT 0
);
COMMENT ON TABLE runner.sweep IS
    'When a claim last looked for leases of hosts, ends and starts that are due. No finite lease of a job ends before '
    'lease_from. reset_at: when all marks were last set back. The row with the highest seq counts.';
COMMENT ON COLUMN runner.sweep.code_from IS 'Up to this id runner.reap has looked for code without a submission.';
INSERT INTO runner.sweep (seq, looked_at, reset_at, lease_from) VALUES (0, '-infinity', now(), '-infinity');
