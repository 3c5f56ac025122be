-- Written once. The primary key is why no item has two results.
CREATE TABLE runner.item_result (
    item_id bigint PRIMARY KEY REFERENCES runner.item (id) ON DELETE CASCADE,
    batch_id bigint NOT NULL,
    seq bigint NOT NULL,
    owner_id integer NOT NULL,
    payload bytea NOT NULL,
    verdict text CONSTRAINT item_result_verdict CHECK (verdict IN (
        'accepted', 'wrong_answer', 'compile_error', 'runtime_error', 'time_limit', 'memory_limit', 'rejected',
        'invalid',
        'internal_error')),
    attempt integer,
    host text,
    reused_from bigint,
    finished_at timestamptz NOT NULL DEFAULT now(),
    result jsonb NOT NULL,
    UNIQUE (batch_id, seq)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.02);
CREATE INDEX item_result_payload_idx ON runner.item_result (owner_id, payload)
    WHERE verdict IS NOT NULL AND verdict <> 'internal_error';
COMMENT ON TABLE runner.item_result IS 'What was found of an item. A verdict of NULL: it was cancelled.';
COMMENT ON COLUMN runner.item_result.seq IS
    'Counts the results of a batch from 1 on; written under the lock on the batch, so a reader never sees a gap.';
COMMENT ON COLUMN runner.item_result.reused_from IS 'The item whose result it repeats.';
