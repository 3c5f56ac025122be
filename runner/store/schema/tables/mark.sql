-- Where a claim begins to look in a class. A row that is written often has `seq` in its key and grows it with each write,
-- and readers take the highest. So an index leads to the newest version first, also while a snapshot keeps all former ones.
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
