-- A constant default: no row is written anew.
ALTER TABLE runner.job ADD ready boolean NOT NULL DEFAULT true;
COMMENT ON COLUMN runner.job.ready IS
    'False: claims do not look at it, because its start time has not come (not_before) or its leaderboard is paused.';
COMMENT ON COLUMN runner.job.not_before IS 'Start time or back-off: not claimed earlier.';
COMMENT ON COLUMN runner.job.lease_expires_at IS
    'From the claim to the first heartbeat, its end; then infinity: it ends with runner.lease.expires_at of its host.';
COMMENT ON COLUMN runner.job.turn IS
    'Start tag of fair queueing within (gpu_type, priority); kept, in general, when the job is queued again.';
UPDATE runner.job j SET ready = false WHERE j.state = 'queued' AND j.attempt = 0 AND j.not_before > now();

-- A row that is written often has `seq` in its key and grows it with each write. Readers take the highest. So an index
-- leads to the newest version first, also while a snapshot keeps all former versions.
ALTER TABLE runner.clock ADD seq bigint NOT NULL DEFAULT 0, DROP CONSTRAINT clock_pkey,
    ADD PRIMARY KEY (gpu_type, priority, seq);
COMMENT ON COLUMN runner.clock.seq IS 'Grows with each write; the row with the highest counts.';

CREATE TABLE runner.mark (
    gpu_type text NOT NULL,
    priority integer NOT NULL,
    seq bigint NOT NULL DEFAULT 0,
    turn bigint NOT NULL DEFAULT -1,
    job_id bigint NOT NULL DEFAULT 0,
    next_turn bigint,
    next_job_id bigint,
    next_xid xid8,
    PRIMARY KEY (gpu_type, priority, seq)
) WITH (fillfactor = 50);
COMMENT ON TABLE runner.mark IS
    'Where a claim begins to look in a class (GPU type, priority): no ready job waits before (turn, job_id). The row with the '
    'highest seq counts. (next_turn, next_job_id) follows when every transaction below next_xid is over.';

CREATE TABLE runner.sweep (
    seq bigint PRIMARY KEY,
    looked_at timestamptz NOT NULL,
    reset_at timestamptz NOT NULL,
    lease_from timestamptz NOT NULL,
    next_lease_from timestamptz,
    next_xid xid8
);
COMMENT ON TABLE runner.sweep IS
    'When a claim last looked for leases of hosts, ends and starts that are due. No finite lease of a job ends before '
    'lease_from. reset_at: when all marks were last set back. The row with the highest seq counts.';
INSERT INTO runner.sweep (seq, looked_at, reset_at, lease_from) VALUES (0, '-infinity', now(), '-infinity');

CREATE SEQUENCE runner.claim_number;
COMMENT ON SEQUENCE runner.claim_number IS 'Counts claims: some of them move the marks.';

CREATE TABLE runner.lease (
    host text PRIMARY KEY,
    expires_at timestamptz NOT NULL,
    job_ids bigint[] NOT NULL
) WITH (fillfactor = 30, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 200);
COMMENT ON TABLE runner.lease IS 'The lease of a host on the jobs that its last heartbeat named, in one row.';

ALTER TABLE runner.board ADD paused text, ADD paused_since timestamptz;
COMMENT ON COLUMN runner.board.paused IS 'Why no job of the leaderboard is claimed; NULL: jobs are claimed.';

ALTER TABLE runner.sweep ADD code_from integer NOT NULL DEFAULT 0;
COMMENT ON COLUMN runner.sweep.code_from IS 'Up to this id runner.reap has looked for code without a submission.';

-- Its result has more columns.
DROP FUNCTION IF EXISTS runner.reap(interval, integer);
-- Helpers of other names take their place.
DROP FUNCTION IF EXISTS runner.first_unranked(text, text, integer, integer, bigint);
