-- Batches of module evaluations. An item is one candidate for one reference. A group is a job with up to 16 items of one
-- reference and equal settings. KernelBot's tables know nothing of them.
CREATE TABLE runner.batch_owner (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    login text NOT NULL,
    user_id text NOT NULL,
    max_open_items bigint CONSTRAINT batch_owner_max_open_items CHECK (max_open_items > 0),
    created_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (login, user_id)
);
COMMENT ON TABLE runner.batch_owner IS 'Whose batches: a login of the database, and the user it acts for.';
COMMENT ON COLUMN runner.batch_owner.max_open_items IS 'How many items may wait or run; NULL: any number.';

CREATE TABLE runner.batch (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    owner_id integer NOT NULL REFERENCES runner.batch_owner (id) ON DELETE CASCADE,
    name text,
    keep interval NOT NULL DEFAULT '30 days' CONSTRAINT batch_keep CHECK (keep >= interval '1 hour'),
    created_at timestamptz NOT NULL DEFAULT now(),
    idle boolean NOT NULL DEFAULT false,
    cancelled_at timestamptz,
    removing boolean NOT NULL DEFAULT false
);
CREATE UNIQUE INDEX batch_name_idx ON runner.batch (owner_id, name);
CREATE INDEX batch_age_idx ON runner.batch (created_at) WHERE NOT removing;
CREATE INDEX batch_removing_idx ON runner.batch (id) WHERE removing;
CREATE INDEX batch_open_idx ON runner.batch (owner_id) WHERE NOT idle;
COMMENT ON COLUMN runner.batch.keep IS 'Items and results stay so long after the last result.';
COMMENT ON COLUMN runner.batch.idle IS 'True: every item had a result when its owner last submitted, and none came since.';
COMMENT ON COLUMN runner.batch.removing IS 'Its time is over: nothing is added, and runner.reap deletes it part by part.';

CREATE TABLE runner.source (
    hash bytea PRIMARY KEY,
    text text NOT NULL,
    used_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX source_age_idx ON runner.source (used_at);
COMMENT ON TABLE runner.source IS 'References and candidates, each text once, by SHA-256. used_at is at most an hour behind.';

ALTER TABLE runner.job ALTER submission_id DROP NOT NULL;
-- A constant default, and checks that do not read the table: no row is read or written anew.
ALTER TABLE runner.job ADD batch_id bigint;
ALTER TABLE runner.job ADD CONSTRAINT job_of_one_kind CHECK ((submission_id IS NULL) <> (batch_id IS NULL)) NOT VALID;
ALTER TABLE runner.job ADD CONSTRAINT job_batch FOREIGN KEY (batch_id) REFERENCES runner.batch (id) NOT VALID;
COMMENT ON TABLE runner.job IS
    'The queue: evaluate submission S on GPU type T in mode M (public or secret), or a group of items of a batch.';
COMMENT ON COLUMN runner.job.batch_id IS 'The batch of a group; NULL: the job is of a submission.';

CREATE TABLE runner.job_group (
    job_id bigint PRIMARY KEY REFERENCES runner.job (id) ON DELETE CASCADE,
    reference bytea NOT NULL,
    entry_point text NOT NULL,
    settings jsonb NOT NULL
);
COMMENT ON TABLE runner.job_group IS 'What all items of a group have in common.';

-- Written once, never changed.
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
COMMENT ON TABLE runner.item IS 'One candidate for one reference. It is over when runner.item_result has it.';
COMMENT ON COLUMN runner.item.number IS 'Counts the items of a batch from 1 on; written under the lock on the owner.';
COMMENT ON COLUMN runner.item.payload IS 'SHA-256 of all that its result depends on: equal work has equal payloads.';
COMMENT ON COLUMN runner.item.job_id IS 'The group that evaluates it; NULL: its result was there at once.';

-- Written once. The primary key is why no item has two results.
CREATE TABLE runner.item_result (
    item_id bigint PRIMARY KEY REFERENCES runner.item (id) ON DELETE CASCADE,
    batch_id bigint NOT NULL,
    seq bigint NOT NULL,
    owner_id integer NOT NULL,
    payload bytea NOT NULL,
    verdict text CONSTRAINT item_result_verdict CHECK (verdict IN (
        'accepted', 'wrong_answer', 'compile_error', 'runtime_error', 'time_limit', 'memory_limit', 'rejected', 'invalid',
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
