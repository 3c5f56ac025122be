-- A trainer's named set of items.
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
COMMENT ON COLUMN runner.batch.idle
    IS 'True: every item had a result when its owner last submitted, and none came since.';
COMMENT ON COLUMN runner.batch.removing
    IS 'Its time is over: nothing is added, and runner.reap deletes it part by part.';
