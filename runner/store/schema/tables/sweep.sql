-- When claims last looked for what is due, and when all of the queue was last swept.
CREATE TABLE runner.sweep (
    seq bigint PRIMARY KEY,
    looked_at timestamptz NOT NULL DEFAULT '-infinity',
    swept_at timestamptz NOT NULL DEFAULT now(),
    code_from integer NOT NULL DEFAULT 0
);
COMMENT ON TABLE runner.sweep IS
    'When a claim last looked for leases, ends and starts that are due, and when runner.reclaim last looked at '
    'all leases '
    'and moved the floors. The row with the highest seq counts.';
COMMENT ON COLUMN runner.sweep.code_from IS 'Up to this id runner.reap has looked for code without a submission.';
INSERT INTO runner.sweep (seq) VALUES (0);
