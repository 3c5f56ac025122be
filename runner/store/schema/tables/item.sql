-- An item is one candidate for one reference. Written once, never changed.
CREATE TABLE runner.item (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    batch_id bigint NOT NULL REFERENCES runner.batch (id),
    number bigint NOT NULL,
    owner_id integer NOT NULL,
    key text NOT NULL,
    payload bytea NOT NULL,
    job_id bigint REFERENCES runner.job (id) ON DELETE CASCADE,
    reference bytea,
    candidate bytea,
    entry_point text,
    created_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (owner_id, key),
    UNIQUE (batch_id, number)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.02);
CREATE INDEX item_job_idx ON runner.item (job_id) WHERE job_id IS NOT NULL;
CREATE INDEX item_reference_idx ON runner.item (reference) WHERE reference IS NOT NULL;
CREATE INDEX item_candidate_idx ON runner.item (candidate) WHERE candidate IS NOT NULL;
COMMENT ON TABLE runner.item IS 'One candidate for one reference. It is over when item_result has it.';
COMMENT ON COLUMN runner.item.number IS 'Counts the items of a batch from 1 on; written under the lock on the owner.';
COMMENT ON COLUMN runner.item.payload IS 'SHA-256 of all that its result depends on: equal work has equal payloads.';
COMMENT ON COLUMN runner.item.job_id IS 'The group that evaluates it; NULL: its result was there at once.';
